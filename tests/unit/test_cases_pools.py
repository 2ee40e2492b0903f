"""The list of cases, beyond its literal numbers: pools, padding, biases, accumulators."""

import numpy as np
import pytest

from almac.compiler.build import build
from almac.compiler.graph import Conv
from almac.compiler.importer import import_model
from almac.compiler.proof import accumulator_bits
from almac.hdl.config import ArrayConfig
from almac.verify import verify


def codes(seed, shape, dtype=np.int8):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def agree(model, lanes=8, rows=8, **x):
    """What the array computes, against golden and onnxruntime."""
    compiled = build(model, ArrayConfig(lanes=lanes, rows=rows))
    result = verify(compiled, model, x, "program")
    assert result.first_difference is None
    assert result.equal


def one(node, shape, *, kind="int8", zero=0, scale=0.5, out_zero=None, out_scale=0.5, out="A,B,C"):
    """Text of a model of one node from codes ``d`` to codes."""
    return f"""g ({kind}[N,{shape}] x) => ({kind}[N,{out}] y)
        <float s = {{{scale}}}, float t = {{{out_scale}}}, {kind} z = {{{zero}}},
         {kind} zy = {{{zero if out_zero is None else out_zero}}}, int64[2] axes = {{-1,-2}},
         int64[1] last = {{3}}> {{
        d = DequantizeLinear(x, s, z)
        {node}
        y = QuantizeLinear(r, t, zy) }}"""


@pytest.mark.parametrize(("bias", "kind"), [
    (np.float32([1, 1, 1, -0.3]), "real"), (np.int32([7, 2 ** 31 - 1, -(2 ** 31), 0]), "of the sums"),
    (np.int32([5, -5, 100, 0]), "of another scale")])
def test_u23_bias_beyond_the_weights(parse, check, bias, kind):
    """A channel of zeros, and one whose scale is next to nothing, give Q(bias) whatever comes in."""
    scales = np.float32([1e-9 / 127, 1e-9 / 127, 0.25, 0.25])
    sums = scales * np.float32(0.02)
    given = {"real": {"b": bias}, "of the sums": {"c": bias, "bs": sums},
             "of another scale": {"c": bias, "bs": np.full(4, 0.01, np.float32)}}[kind]
    before = "" if kind == "real" else "b = DequantizeLinear <axis = 0> (c, bs)"
    model = parse(one(f"v = DequantizeLinear <axis = 0> (w, ws) {before} r = Conv(d, v, b)", "2,1", scale=0.02,
                      out_scale=0.01, out_zero=-3, out="4,1"), ws=scales, **given,
                  w=np.int8([[127, -127], [1, 1], [0, 0], [1, -1]])[..., None])
    x = codes(0, (64, 2, 1))
    got = check(model, x=x, near_ties=20)
    real = bias if kind == "real" else bias * given["bs"].astype(np.float64)
    expected = np.clip(np.rint(real[:3] / np.float32(0.01)) - 3, -128, 127)
    assert (got[:, :3, 0] == expected).all()
    if np.abs(expected).max() < 2 ** 20:
        agree(model, x=x)


@pytest.mark.parametrize(("opset", "node", "out"), [
    (10, "r = GlobalAveragePool(d)", "3,1,1"), (10, "r = ReduceMean <axes = [2, 3]> (d)", "3,1,1"),
    (11, "r = ReduceMean <axes = [-1, -2]> (d)", "3,1,1"),
    (13, "r = ReduceMean <axes = [-2, -1], keepdims = 0> (d)", "3"),
    (17, "r = ReduceMean <axes = [3]> (d)", "3,5,1"), (18, "r = ReduceMean(d, axes)", "3,1,1"),
    (21, "r = ReduceMean <keepdims = 0> (d, last)", "3,5"), (25, "r = ReduceMean(d, axes)", "3,1,1"),
    (12, "r = ReduceSum <axes = [2, 3]> (d)", "3,1,1"), (13, "r = ReduceSum(d, axes)", "3,1,1"),
    (25, "r = ReduceSum <keepdims = 0> (d, last)", "3,5"), (17, "r = ReduceMax <axes = [2, 3]> (d)", "3,1,1"),
    (20, "r = ReduceMax(d, axes)", "3,1,1"), (13, "r = GlobalMaxPool(d)", "3,1,1"),
    (18, "r = ReduceMean <noop_with_empty_axes = 1> (d)", "3,5,7")])
@pytest.mark.parametrize(("kind", "zero"), [("int8", -128), ("int8", 127), ("uint8", 0), ("uint8", 255)])
def test_u29_reductions_of_every_opset(parse, check, opset, node, out, kind, zero):
    model = parse(one(node, "3,5,7", kind=kind, zero=zero, out=out,
                      out_scale=0.5 if "ReduceMean(" in node else 2.0), opset)
    x = codes(opset, (5, 3, 5, 7), np.dtype(kind))
    check(model, x=x, near_ties=5)
    agree(model, x=x)


@pytest.mark.parametrize(("op", "expected"), [("MaxPool", [11, 12, 15, 16]), ("AveragePool", [6, 7.5, 12, 13.5])])
@pytest.mark.parametrize("opset", [10, 13, 17, 21])
def test_u31_last_window(parse, check, op, expected, opset):
    model = parse(f"""g (int8[N,1,4,4] x) => (float[N,1,2,2] y) <float s = {{1}}, int8 z = {{0}}> {{
        d = DequantizeLinear(x, s, z)
        y = {op} <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1> (d) }}""", opset)
    check(model, expected, x=np.arange(1, 17, dtype=np.int8).reshape(1, 1, 4, 4))


@pytest.mark.parametrize("padded", ["", ", count_include_pad = 1", "max"])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize(("size", "kernel", "strides", "pads"), [
    ((9, 9), (4, 4), (4, 4), (2, 2, 2, 2)), ((5, 7), (3, 2), (2, 3), (0, 0, 0, 0)),
    ((6, 5), (3, 3), (2, 2), (0, 1, 2, 0)), ((1, 5), (1, 2), (1, 2), (0, 1, 0, 0)),
    ((4, 4), (2, 2), (3, 3), (1, 1, 1, 1)), ((7, 3), (2, 3), (1, 1), (1, 0, 0, 2))])
def test_u31_any_pool(parse, check, padded, ceil, size, kernel, strides, pads):
    op, padded = ("MaxPool", "") if padded == "max" else ("AveragePool", padded)
    model = parse(one(f"r = {op} <kernel_shape = {list(kernel)}, strides = {list(strides)}, pads = {list(pads)}, "
                      f"ceil_mode = {ceil}{padded}> (d)", f"2,{size[0]},{size[1]}", zero=9), 19)
    check(model, x=codes(ceil, (4, 2, *size)), near_ties=20)


@pytest.mark.parametrize(("opset", "attributes"), [
    (19, "kernel_shape = [2,2], dilations = [2,1]"),
    (22, "kernel_shape = [3,2], dilations = [1,3], strides = [2,1]"),
    (25, "kernel_shape = [2,3], dilations = [2,2], pads = [1,1,1,1]"),
    (25, "kernel_shape = [2,3], dilations = [2,2], pads = [1,2,0,1], count_include_pad = 1")])
def test_u31_dilated_averages(parse, check, opset, attributes):
    model = parse(one(f"r = AveragePool <{attributes}> (d)", "2,6,7", zero=-7), opset)
    check(model, x=codes(0, (4, 2, 6, 7)), near_ties=20)


@pytest.mark.parametrize(("kind", "zero"), [
    ("int8", 0), ("int8", -128), ("int8", 127), ("uint8", 255), ("uint8", 0)])
@pytest.mark.parametrize("pads", ["1,1,1,1", "0,2,2,0", "2,0,0,1"])
@pytest.mark.parametrize("opset", [10, 12, 25])
def test_u33_padding_of_any_maximum(parse, check, kind, zero, pads, opset):
    node = f"r = MaxPool <kernel_shape = [3,3], strides = [2,2], pads = [{pads}]> (d)"
    model = parse(one(node, "2,5,4", kind=kind, zero=zero), opset)
    x = np.concatenate([codes(0, (3, 2, 5, 4), np.dtype(kind)), np.full((1, 2, 5, 4), np.iinfo(kind).min, kind)])
    check(model, x=x)
    agree(model, x=x)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("end", ["min", "max", 5])
@pytest.mark.parametrize("pads", ["1,1,1,1", "0,2,1,0"])
def test_u34_padding_with_any_zero_point(parse, check, kind, end, pads):
    zero = getattr(np.iinfo(kind), end) if isinstance(end, str) else end
    node = f"v = DequantizeLinear(w, s) r = Conv <pads = [{pads}], strides = [1,2]> (d, v)"
    model = parse(one(node, "3,4,3", kind=kind, zero=zero, out_scale=32.0), w=codes(2, (5, 3, 3, 3)))
    x = codes(1, (4, 3, 4, 3), np.dtype(kind))
    check(model, x=x)
    agree(model, x=x)


@pytest.mark.parametrize(("channels", "kernel", "weight", "expected", "bits"), [
    (1024, 1, -1, 131072, 19), (256, 3, -2, 589824, 21), (1, 1, -2, 256, 10)])
def test_u41_sums_at_the_ends(parse, check, channels, kernel, weight, expected, bits):
    model = parse(f"""g (int8[N,{channels},{kernel},{kernel}] x) => (float[N,1,1,1] y) <float one = {{1}}> {{
        d = DequantizeLinear(x, one)
        v = DequantizeLinear(w, one)
        y = Conv(d, v) }}""", w=np.full((1, channels, kernel, kernel), weight, np.int8))
    x = np.full((1, channels, kernel, kernel), -128, np.int8)
    check(model, [expected], x=x)
    agree(model, lanes=16, rows=8, x=x)
    conv = next(op for op in import_model(model).ops if isinstance(op, Conv))
    # Partial sums of a plane may be wider than the sum.
    assert accumulator_bits(conv) >= bits


@pytest.mark.parametrize(("low", "high", "expected"), [
    (-100, 100, [100, 100, -100, -100, 44]), (-(10.0 ** 30), 10.0 ** 30, [127, 127, -128, -128, 44]),
    (-(10.0 ** 30), -300, [-128, -128, -128, -128, -128]), (300, 10.0 ** 30, [127] * 5)])
def test_u43_bounds_wider_than_the_codes(parse, check, low, high, expected):
    model = parse(f"""g (int8[N,2] x) => (int8[N,1] y)
        <float one = {{1}}, int8 z = {{0}}, int8[2,1] w = {{46,2}}, float low = {{{low}}},
         float high = {{{high}}}> {{
        d = DequantizeLinear(x, one)
        v = DequantizeLinear(w, one)
        a = MatMul(d, v)
        c = Clip(a, low, high)
        y = QuantizeLinear(c, one, z) }}""")
    # Sums of 6000, 300, -300, -5990 and 44: in eight bits, 300 would be 44.
    x = np.int8([[127, 79], [6, 12], [-6, -12], [-127, -74], [0, 22]])
    check(model, expected, x=x)
    agree(model, x=x)


@pytest.mark.parametrize("scales", [(0.37, 0.11, 0.73), (1 / 3, 0.7, 0.9), (1e-4, 3e3, 0.017), (0.0039, 0.02, 1.3)])
def test_u48_any_scales(parse, check, scales):
    model = parse(f"""g (int8[N,2] x) => (int8[N,1] y)
        <float sx = {{{scales[0]}}}, float sw = {{{scales[1]}}}, float sy = {{{scales[2]}}}, int8 z = {{0}},
         int8[2,1] w = {{1,7}}> {{
        d = DequantizeLinear(x, sx)
        v = DequantizeLinear(w, sw)
        a = MatMul(d, v)
        y = QuantizeLinear(a, sy, z) }}""")
    x = np.int8([(a, b) for a in range(-128, 128, 3) for b in range(-128, 128, 5)])
    check(model, x=x, near_ties=8)
    agree(model, x=x[::37])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("size", "kernel", "strides", "dilations", "pads"), [
    ((5, 5), (3, 3), (1, 1), (2, 2), (1, 1, 1, 1)), ((6, 4), (2, 3), (2, 1), (1, 2), (0, 2, 1, 2)),
    ((9,), (3,), (2,), (3,), (1, 0)), ((1,), (1,), (1,), (1,), (0, 0)), ((4,), (3,), (2,), (1,), (0, 1)),
    ((1, 7), (1, 3), (1, 2), (1, 1), (0, 1, 0, 0)), ((3, 1), (3, 1), (1, 1), (1, 1), (2, 0, 2, 0))])
def test_u55_u56_any_window(parse, check, groups, size, kernel, strides, dilations, pads):
    node = (f"v = DequantizeLinear(w, s) r = Conv <group = {groups}, strides = {list(strides)}, dilations = "
            f"{list(dilations)}, pads = {list(pads)}> (d, v)")
    shape, out = ",".join(map(str, (4, *size))), "A,B,C"[:2 * len(size) + 1]
    model = parse(one(node, shape, out_scale=16.0, zero=-100, out=out), w=codes(0, (6, 4 // groups, *kernel)))
    x = codes(1, (3, 4, *size))
    check(model, x=x)
    agree(model, x=x)
