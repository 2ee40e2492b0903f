"""The list of cases, beyond its literal numbers: convolutions, pools, normalization, bounds, biases."""

import numpy as np
import pytest

from almac.compiler.build import build
from almac.compiler.graph import CompileError
from almac.hdl.config import ArrayConfig
from almac.verify import verify


def numbers(values):
    return ", ".join(str(value) for value in values)


def codes(seed, shape, dtype=np.int8):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def agree(model, lanes=8, rows=8, **x):
    """What the array computes, against golden and onnxruntime."""
    compiled = build(model, ArrayConfig(lanes=lanes, rows=rows))
    result = verify(compiled, model, x, "program")
    assert result.first_difference is None
    assert result.equal


def one(node, shape, *, kind="int8", zero=0, scale=0.5, out_scale=0.5, opset=21, out="A,B,C", more=""):
    """Text of a model of one node from codes ``d`` to codes."""
    return f"""g ({kind}[N,{shape}] x) => ({kind}[N,{out}] y)
        <float s = {{{scale}}}, float t = {{{out_scale}}}, {kind} z = {{{zero}}}{more}> {{
        d = DequantizeLinear(x, s, z)
        {node}
        y = QuantizeLinear(r, t, z) }}"""


@pytest.mark.parametrize(("channels", "count", "groups"), [
    (3, 3, 3), (3, 6, 3), (4, 2, 2), (6, 9, 3), (9, 9, 9), (5, 7, 1), (1, 1, 1), (10, 10, 5), (16, 32, 16)])
@pytest.mark.parametrize(("kind", "zero"), [("int8", -128), ("uint8", 255), ("int8", 3)])
def test_u15_any_groups(parse, check, channels, count, groups, kind, zero):
    node = f"v = DequantizeLinear <axis = 0> (w, ws) r = Conv <group = {groups}, pads = [1,0,0,1]> (d, v)"
    model = parse(one(node, f"{channels},4,3", kind=kind, zero=zero, out_scale=32.0),
                  w=codes(channels, (count, channels // groups, 2, 2)),
                  ws=np.exp2(np.float32(np.arange(count) % 5 - 3)))
    x = codes(groups, (2, channels, 4, 3), np.dtype(kind))
    check(model, x=x)
    agree(model, x=x)


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("size", "kernel", "strides"), [
    ((5, 4), (2, 3), (2, 2)), ((7, 5), (3, 3), (2, 2)), ((1, 6), (1, 4), (1, 3)), ((4, 4), (1, 1), (1, 1)),
    ((8, 5), (5, 2), (3, 1)), ((6, 6), (4, 4), (2, 2))])
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_u17_any_automatic_padding(parse, check, auto, size, kernel, strides, op):
    attributes = f'<kernel_shape = {list(kernel)}, strides = {list(strides)}, auto_pad = "{auto}">'
    weight = ", v" if op == "Conv" else ""
    node = f"v = DequantizeLinear(w, s) r = {op} {attributes} (d{weight})"
    model = parse(one(node, f"2,{size[0]},{size[1]}", zero=-5), w=codes(1, (3, 2, *kernel)) // 16)
    check(model, x=codes(0, (3, 2, *size)), near_ties=8)


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("node", [
    "MaxPool <kernel_shape = [3], dilations = [2], {auto}> (d)", "Conv <dilations = [2], {auto}> (d, v)"])
def test_u17_automatic_padding_of_dilated_windows_is_refused(parse, node, auto):
    """The standard says what they are; onnxruntime computes something else, or nothing."""
    node = node.format(auto=f'auto_pad = "{auto}"')
    model = parse(one(f"v = DequantizeLinear(w, s) r = {node}", "1,6"), w=np.ones((1, 1, 3), np.int8))
    with pytest.raises(CompileError, match=rf"auto_pad = '{auto}' with dilations = \[1, 2\]; supported: pads as"):
        build(model, ArrayConfig())


@pytest.mark.parametrize(("auto", "expected"), [("SAME_UPPER", [321, 43]), ("SAME_LOWER", [210, 432])])
def test_u17_padding_of_a_signal(parse, check, auto, expected):
    model = parse(f"""g (int8[N,1,4] x) => (float[N,1,2] y) <float one = {{1}}, int8[1,1,3] w = {{1,10,100}}> {{
        d = DequantizeLinear(x, one)
        v = DequantizeLinear(w, one)
        y = Conv <strides = [2], auto_pad = "{auto}"> (d, v) }}""")
    check(model, expected, x=np.array([[[1, 2, 3, 4]]], np.int8))


@pytest.mark.parametrize(("opset", "attributes"), [
    (10, ""), (13, ""), (14, ", training_mode = 0"), (15, ""), (21, ""), (25, ", momentum = 0.5")])
def test_u20_normalization_by_hand(parse, check, opset, attributes):
    """On codes themselves, with the factor below zero."""
    model = parse(f"""g (int8[N,1,1] x) => (float[N,1,1] y)
        <float one = {{1}}, int8 z = {{0}}, float[1] gamma = {{-1}}, float[1] beta = {{0.25}},
         float[1] mean = {{2}}, float[1] var = {{4}}> {{
        d = DequantizeLinear(x, one, z)
        b = BatchNormalization <epsilon = 0.0{attributes}> (d, gamma, beta, mean, var)
        y = Relu(b) }}""", opset)
    check(model, [1.25, 0.75, 0.25, 0], x=np.arange(4, dtype=np.int8).reshape(4, 1, 1))


def test_u20_default_epsilon(parse, check):
    text = """g (int8[N,1,1] x) => (float[N,1,1] y)
        <float one = {1}, int8 z = {0}, int8[1,1,1] w = {1}, float[1] gamma = {1}, float[1] beta = {0},
         float[1] mean = {0}, float[1] var = {1e-6}> {
        d = DequantizeLinear(x, one, z)
        v = DequantizeLinear(w, one)
        c = Conv(d, v)
        y = BatchNormalization(c, gamma, beta, mean, var) }"""
    x = np.array([-1, 1], np.int8).reshape(2, 1, 1)
    for model in (parse(text), parse(text.replace("Conv(d, v)", "Identity(d)"))):
        got = check(model, x=x)
        np.testing.assert_allclose(got.reshape(-1), [-301.5113, 301.5113], atol=1e-4)


NORMALIZED = """g (int8[N,1,2,2] x) => (float[N,1,2,2] y)
    <float one = {1}, int8 z = {0}, int8[1,1,3,3] w = {1,1,1,1,1,1,1,1,1}, float[1] gamma = {2},
     float[1] beta = {3}, float[1] mean = {0}, float[1] var = {1}> {
    d = DequantizeLinear(x, one, z)
    v = DequantizeLinear(w, one)
    b = BatchNormalization <epsilon = 0.0> (d, gamma, beta, mean, var)
    y = Conv <pads = [1,1,1,1]> (b, v) }"""


def test_u20_normalization_before_padding(parse, check):
    """Folding the shift into the bias would give 35; it is not folded."""
    x = np.ones((1, 1, 2, 2), np.int8)
    model = parse(NORMALIZED)
    check(model, [20] * 4, x=x)
    with pytest.raises(CompileError, match=r"(?s)\(Conv, opset 21, .*quantize"):
        build(model, ArrayConfig())
    between = "q = QuantizeLinear(b, one, z) e = DequantizeLinear(q, one, z) y = Conv"
    quantized = parse(NORMALIZED.replace("y = Conv", between).replace("(b, v)", "(e, v)"))
    check(quantized, [20] * 4, x=x)
    agree(quantized, x=x)


@pytest.mark.parametrize("order", ["normalized codes", "normalized sums", "after Flatten"])
@pytest.mark.parametrize("gamma", [(0.5, -2.0, 0.0), (1.0, 1.0, 1.0)])
def test_u20_any_normalization(parse, check, order, gamma):
    node = {"normalized codes": "r = BatchNormalization(d, gamma, beta, mean, var)",
            "normalized sums": "v = DequantizeLinear(w, s) c = Conv(d, v) "
                               "r = BatchNormalization(c, gamma, beta, mean, var)",
            "after Flatten": "f = Flatten(d) r = BatchNormalization(f, gamma, beta, mean, var)"}[order]
    size = "3,1,1" if order == "after Flatten" else "3,2,3"
    model = parse(one(node, size, zero=7), w=np.array(codes(3, (3, 3, 1, 1)) // 32), gamma=np.float32(gamma),
                  beta=np.float32([1, -3, 5]), mean=np.float32([-2, 0.5, 0]), var=np.float32([0.25, 4, 1]))
    x = codes(4, (6, *map(int, size.split(","))))
    check(model, x=x, near_ties=2)
    agree(model, x=x)


@pytest.mark.parametrize(("opset", "clip", "expected"), [
    (10, "Clip <min = 0.0, max = 6.0> (a)", [0, 2, 6]), (10, "Clip <max = 6.0> (a)", [-3, 2, 6]),
    (10, "Clip <min = 0.0> (a)", [0, 2, 9]), (11, "Clip(a, zero, six)", [0, 2, 6]),
    (12, "Clip(a, , six)", [-3, 2, 6]),
    (13, "Clip(a, zero, six)", [0, 2, 6]), (13, "Clip(a, zero)", [0, 2, 9]), (13, "Clip(a)", [-3, 2, 9]),
    (25, "Clip(a, , six)", [-3, 2, 6]), (13, "Clip(a, six, zero)", [0, 0, 0])])
@pytest.mark.parametrize(("scale", "before"), [(0.5, "MatMul(d, v)"), (0.5, "Add(d, d)"), (1, "Identity(d)")])
def test_u21_clip_of_every_opset(parse, check, opset, clip, expected, scale, before):
    model = parse(f"""g (int8[N,1] x) => (int8[N,1] y)
        <float s = {{{scale}}}, float one = {{1}}, int8 z = {{0}}, int8[1,1] w = {{2}}, float zero = {{0}},
         float six = {{6}}> {{
        d = DequantizeLinear(x, s, z)
        v = DequantizeLinear(w, one, z)
        a = {before}
        c = {clip}
        y = QuantizeLinear(c, one, z) }}""", opset)
    check(model, expected, x=np.array([[-3], [2], [9]], np.int8))


@pytest.mark.parametrize("node", [
    "r = Conv(d, v)", "r = MaxPool <kernel_shape = [3]> (d)", "r = AveragePool <kernel_shape = [3]> (d)"])
def test_u17_window_larger_than_the_image_is_refused(parse, node):
    model = parse(one(f"v = DequantizeLinear(w, s) {node}", "1,2", out="1,1"), w=np.ones((1, 1, 3), np.int8))
    with pytest.raises(CompileError, match=r"its window of 3 is larger than its padded input of 2"):
        build(model, ArrayConfig())
