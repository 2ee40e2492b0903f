"""Patterns of nodes, each against onnxruntime."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from almac.compiler.graph import Conv, Table
from almac.compiler.importer import import_model
from almac.sim.compare import compare_with_oracle

ROOT = Path(__file__).parents[2]
MODELS = [ROOT / "examples/digits/model.onnx",
          *sorted((ROOT / "tests/models").glob("*.onnx")),
          *sorted((ROOT / "../shared/models/demo").resolve().glob("*mnist*.onnx"))]


def kinds(model):
    return [type(op).__name__ for op in import_model(model).ops]


def reals(seed, *shape, spread=3.0):
    return np.random.default_rng(seed).normal(0, spread, shape).astype(np.float32)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_trained_networks_agree_with_onnxruntime(path):
    graph = import_model(path)
    shape = graph.values[graph.inputs[0]].shape
    x = np.random.default_rng(0).uniform(0, 1, (20, *shape)).astype(np.float32)
    result = compare_with_oracle(graph, path, {graph.inputs[0]: x})
    assert result.first_difference is None
    assert result.near_ties < 1e-5 * result.elements


def test_model_in_memory_is_the_file():
    path = MODELS[0]
    assert repr(import_model(path)) == repr(import_model(onnx.load(path)))


ACTIVATION = """g (float[N,3,5,5] x) => ({dtype}[N,{out}] y)
    <float s = {{0.0513}}, {dtype} z = {{{zero_point}}}, float t = {{0.03071}},
     float one = {{1}}, float six = {{2.5}}, float zero = {{0}}> {{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    {nodes}
    y = QuantizeLinear(a, t, z) }}"""


@pytest.mark.parametrize("nodes", [
    "a = Sigmoid(d)", "a = HardSwish(d)", "a = LeakyRelu <alpha = 0.1> (d)", "a = Tanh(d)", "a = Relu(d)",
    "a = Clip(d, zero, six)", "a = HardSigmoid(d)", "a = Identity(d)", "a = Elu(d)",
    "b = Sigmoid(d) a = Mul(d, b)", "b = Add(d, one) c = Clip(b, zero, six) e = Mul(c, d) a = Div(e, six)",
    "b = Abs(d) c = Identity(b) e = Sqrt(c) a = Sub(one, e)",
])
@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", -20), ("uint8", 140)])
def test_function_of_one_tensor_is_a_table(parse, check, nodes, dtype, zero_point):
    model = parse(ACTIVATION.format(nodes=nodes, dtype=dtype, zero_point=zero_point, out="3,5,5"), 17)
    assert kinds(model) == ["Quantize", "Table", "Dequantize"]
    check(model, x=reals(0, 40, 3, 5, 5))


def test_requantization_to_the_same_scale_is_nothing(parse, check):
    model = parse("""g (float[N,4] x) => (int8[N,4] y) <float s = {0.1}, int8 z = {3}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        y = QuantizeLinear(d, s, z) }""")
    assert kinds(model) == ["Quantize", "Dequantize"]
    check(model, x=reals(0, 10, 4))


@pytest.mark.parametrize(("node", "out"), [
    ("a = MaxPool <kernel_shape = [2,2], strides = [2,2]> (d)", "3,2,2"),
    ("a = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (d)", "3,5,5"),
    ("a = AveragePool <kernel_shape = [2,2]> (d)", "3,4,4"),
    ("a = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1> (d)", "3,5,5"),
    ("a = GlobalAveragePool(d)", "3,1,1"),
    ("b = GlobalAveragePool(d) a = Flatten(b)", "3"),
    ("b = GlobalAveragePool(d) a = Relu(b)", "3,1,1"),
    ("b = Flatten(d) a = Relu(b)", "75"),
    ("a = Transpose <perm = [0,2,3,1]> (d)", "5,5,3"),
])
def test_pools_and_layouts(parse, check, node, out):
    model = parse(ACTIVATION.format(nodes=node, dtype="uint8", zero_point=100, out=out))
    check(model, x=reals(1, 40, 3, 5, 5))


def test_maximum_between_dequantizer_and_convolution(parse, check):
    model = parse("""g (float[N,2,4,4] x) => (float[N,2,1,1] y) <float s = {0.1}, int8 z = {-9}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (d)
        v = DequantizeLinear(w, s)
        y = Conv(m, v) }""", w=np.random.default_rng(0).integers(-1, 2, (2, 2, 2, 2)).astype(np.int8))
    assert kinds(model) == ["Quantize", "MaxPool", "Conv", "Dequantize"]
    check(model, x=reals(2, 10, 2, 4, 4))


CONV = """g (float[N,3,6,6] x) => ({out} y)
    <float s = {{0.0437}}, int8 z = {{5}}, float t = {{0.0619}}, float[4] sw = {{0.01, 0.02, 0.03, 0.04}},
     float[4] sb = {{0.000437, 0.000874, 0.001311, 0.001748}}, float[4] gamma = {{1, -2, 0, 0.5}},
     float[4] beta = {{0.1, 0.2, -0.3, 0.4}}, float[4] mean = {{0, 1, -1, 0.5}}, float[4] var = {{1, 2, 3, 0.5}},
     float[1,4,1,1] c = {{0.5, -0.25, 0, 1}}, float zero = {{0}}, float low = {{-0.7}}, float high = {{1.23}}> {{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    v = DequantizeLinear <axis = 0> (w, sw)
    b = DequantizeLinear <axis = 0> (ib, sb)
    {nodes} }}"""
CONV_DATA = {"w": np.random.default_rng(3).integers(-128, 128, (4, 3, 3, 3)).astype(np.int8),
             "ib": np.array([1000, -20000, 300, 7], np.int32)}


@pytest.mark.parametrize("nodes", [
    "a = Conv(d, v)",
    "a = Conv(d, v, b)",
    "a = Conv(d, v, beta)",
    "f = Conv(d, v) a = Add(f, c)",
    "f = Conv(d, v, b) a = Sub(f, c)",
    "f = Conv(d, v, b) a = Mul(f, c)",
    "f = Conv(d, v) a = BatchNormalization(f, gamma, beta, mean, var)",
    "f = Conv(d, v, b) e = BatchNormalization(f, gamma, beta, mean, var) a = Relu(e)",
    "f = Conv(d, v, b) a = Clip(f, low, high)",
    "f = Conv(d, v, b) e = Relu(f) a = Clip(e, '', high)".replace("''", ""),
    "f = Conv <pads = [1,1,1,1], strides = [2,2]> (d, v, b) a = Relu(f)",
])
def test_what_follows_a_convolution_is_folded(parse, check, nodes):
    out = "int8[N,4,3,3]" if "strides" in nodes else "int8[N,4,4,4]"
    model = parse(CONV.format(out=out, nodes=f"{nodes} y = QuantizeLinear(a, t, z)"), **CONV_DATA)
    assert kinds(model) == ["Quantize", "Conv", "Requantize", "Dequantize"]
    check(model, x=reals(4, 50, 3, 6, 6))


@pytest.mark.parametrize("nodes", [
    "y = Conv(d, v)", "y = Conv(d, v, b)", "a = Conv(d, v, beta) y = Identity(a)",
    "a = Conv(d, v, b) y = BatchNormalization(a, gamma, beta, mean, var)",
])
def test_real_outputs_are_made_on_the_host(parse, check, nodes):
    model = parse(CONV.format(out="float[N,4,4,4]", nodes=nodes), **CONV_DATA)
    assert kinds(model) == ["Quantize", "Conv", "Dequantize"]
    check(model, x=reals(5, 20, 3, 6, 6))


def test_integer_bias_stays_an_integer(parse):
    nodes = "a = Conv(d, v, b) y = QuantizeLinear(a, t, z)"
    op = import_model(parse(CONV.format(out="int8[N,4,4,4]", nodes=nodes), **CONV_DATA)).ops[2]
    steps = CONV_DATA["ib"] - 5 * CONV_DATA["w"].astype(np.int64).sum(axis=(1, 2, 3))
    assert op.offset.tolist() == (steps * op.multiplier).tolist()


@pytest.mark.parametrize(("gemm", "w"), [
    ("<transB = 1>", (4, 6)), ("", (6, 4)), ("<alpha = -0.5, beta = 2.0>", (6, 4))])
@pytest.mark.parametrize("bias", ["", ", c"])
def test_gemm(parse, check, gemm, w, bias):
    model = parse(f"""g (float[N,6] x) => (int8[N,4] y)
        <float s = {{0.0531}}, int8 z = {{-7}}, float sw = {{0.0217}}, float[4] c = {{1, -0.5, 0, 0.3}}> {{
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, sw)
        a = Gemm {gemm} (d, v{bias})
        y = QuantizeLinear(a, s, z) }}""", w=np.random.default_rng(1).integers(-8, 8, w).astype(np.int8))
    check(model, x=reals(6, 50, 6))


@pytest.mark.parametrize(("dtype", "zero_point"), [
    (np.int8, 0), (np.int8, -3), (np.uint8, 128), (np.uint8, 7), (ml_dtypes.int4, 0), (ml_dtypes.uint4, 8)])
def test_types_of_weights(parse, check, dtype, zero_point):
    limits = ml_dtypes.iinfo(dtype)
    w = np.random.default_rng(2).integers(int(limits.min), int(limits.max) + 1, (6, 4)).astype(dtype)
    model = parse("""g (float[N,6] x) => (int8[N,4] y) <float s = {0.0531}, int8 z = {-7}, float t = {0.471}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, s, wz)
        a = MatMul(d, v)
        y = QuantizeLinear(a, t, z) }""", w=w, wz=np.array(zero_point).astype(dtype))
    check(model, x=reals(7, 50, 6))
    conv = next(op for op in import_model(model).ops if isinstance(op, Conv))
    np.testing.assert_array_equal(conv.weight.dense()[:, :, 0, 0].T, w.astype(np.int64) - zero_point)


def test_group_scales_and_further_planes(parse, check):
    """Two planes of trits, each with scales for blocks of two input channels, are one convolution."""
    rng = np.random.default_rng(8)
    unit = rng.uniform(0.01, 0.02, (5, 1, 1, 1)).astype(np.float32)
    planes = {}
    for name in ("a", "b"):
        factors = rng.integers(1, 16, (5, 3, 1, 1)).astype(np.float32)
        planes[f"w{name}"] = rng.integers(-1, 2, (5, 6, 3, 3)).astype(np.int8)
        planes[f"s{name}"] = np.broadcast_to(unit * factors, (5, 3, 3, 3)).astype(np.float32)
    model = parse("""g (float[N,6,5,5] x) => (int8[N,5,5,5] y) <float s = {0.05}, int8 z = {4}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        va = DequantizeLinear <axis = 1, block_size = 2> (wa, sa)
        vb = DequantizeLinear <axis = 1, block_size = 2> (wb, sb)
        v = Add(va, vb)
        a = Conv <pads = [1,1,1,1]> (d, v)
        y = QuantizeLinear(a, s, z) }""", **planes)
    conv = next(op for op in import_model(model).ops if isinstance(op, Conv))
    assert conv.weight.trits.shape == (2, 5, 6, 3, 3)
    assert conv.weight.alpha.shape == (2, 5, 3)
    np.testing.assert_array_equal(conv.weight.trits, [planes["wa"], planes["wb"]])
    check(model, x=reals(9, 30, 6, 5, 5))


def test_weights_that_the_model_quantizes_itself(parse, check):
    """QCDQ: float constant, QuantizeLinear, Clip, DequantizeLinear; and the same on activations."""
    model = parse("""g (float[N,4] x) => (float[N,2] y)
        <float s = {0.25}, int8 z = {0}, int8 low = {-2}, int8 high = {1}, float[4,2] w = {
            -0.5, 0.3, 0.1, -0.2, 0.25, 0.9, -0.9, 0}> {
        q = QuantizeLinear(x, s, z)
        c = Clip(q, low, high)
        d = DequantizeLinear(c, s, z)
        qw = QuantizeLinear(w, s, z)
        cw = Clip(qw, low, high)
        v = DequantizeLinear(cw, s, z)
        y = MatMul(d, v) }""")
    graph = import_model(model)
    assert graph.ops[2].weight.dense().reshape(2, 4).tolist() == [[-2, 0, 1, -2], [1, -1, 1, 0]]
    check(model, x=reals(10, 20, 4))


def test_sum_of_a_tensor_with_itself(parse, check):
    model = parse("""g (float[N,4] x) => (int8[N,4] y) <float s = {0.1037}, float t = {0.1571}, int8 z = {7}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        a = Add(d, d)
        r = Relu(a)
        y = QuantizeLinear(r, t, z) }""")
    check(model, x=reals(11, 100, 4))


@pytest.mark.parametrize("ratio", [1, 3, 0.01, 1000])
def test_sum_of_any_two_scales(parse, check, ratio):
    model = parse(f"""g (uint8[N,1] a, int8[N,1] b) => (uint8[N,1] y)
        <float sa = {{0.1037}}, float sb = {{{0.1 * ratio}}}, float sy = {{{0.0917 * (1 + ratio)}}},
         uint8 za = {{99}}, int8 zb = {{-30}}> {{
        da = DequantizeLinear(a, sa, za)
        db = DequantizeLinear(b, sb, zb)
        c = Add(da, db)
        y = QuantizeLinear(c, sy, za) }}""")
    a, b = np.meshgrid(np.arange(256), np.arange(-128, 128))
    check(model, a=a.reshape(-1, 1).astype(np.uint8), b=b.reshape(-1, 1).astype(np.int8), near_ties=16)


def test_shape_that_an_exporter_computes(parse, check):
    model = parse("""g (float[N,2,2,2] x) => (int8[N,8] y)
        <float s = {0.1}, int8 z = {0}, int64 first = {0}, int64[1] axes = {0}, int64[1] rest = {-1}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        shape = Shape(d)
        batch = Gather(shape, first)
        batches = Unsqueeze(batch, axes)
        target = Concat <axis = 0> (batches, rest)
        f = Reshape(d, target)
        y = QuantizeLinear(f, s, z) }""")
    assert kinds(model) == ["Quantize", "Reshape", "Dequantize"]
    check(model, x=reals(12, 1, 2, 2, 2))


def test_constants_may_be_nodes(parse, check):
    model = parse("""g (float[N,2] x) => (int8[N,1] y) {
        s = Constant <value = float {0.5}> ()
        z = Constant <value = int8 {1}> ()
        w = Constant <value = int8[2,1] {1, -1}> ()
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, s)
        a = MatMul(d, v)
        y = QuantizeLinear(a, s, z) }""")
    check(model, x=reals(13, 20, 2, spread=20.0))


def test_table_takes_the_place_of_clip_on_codes(parse):
    model = parse("""g (uint8[N,1] x) => (uint8[N,1] y) <uint8 low = {10}, uint8 high = {200}, float s = {1}> {
        d = DequantizeLinear(x, s)
        q = QuantizeLinear(d, s)
        y = Clip(q, low, high) }""")
    op = next(op for op in import_model(model).ops if isinstance(op, Table))
    assert [op.table[0], op.table[10], op.table[100], op.table[255]] == [-118, -118, -28, 72]


def random_convolution(rng):
    """Text, constants and shape of a convolution: 1-D or 2-D, groups, pads, dilations, types, zero points."""
    axes, groups = int(rng.integers(1, 3)), int(rng.choice([1, 1, 2, 3]))
    kernel, strides = rng.integers(1, 4, axes).tolist(), rng.integers(1, 4, axes).tolist()
    attributes = [f"group = {groups}", f"strides = {strides}"]
    if rng.random() < 0.3:
        # onnxruntime has no dilations there.
        attributes.append(f'auto_pad = "{rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])}"')
    else:
        attributes += [f"pads = {rng.integers(0, 3, 2 * axes).tolist()}",
                       f"dilations = {rng.integers(1, 3, axes).tolist()}"]
    x, w, y = rng.choice(["int8", "uint8"], 3)
    per_group, count = int(rng.integers(1, 5)), groups * int(rng.integers(1, 4))
    scales = () if rng.random() < 0.4 else (count,)

    def codes(kind, *shape):
        limits = np.iinfo(kind)
        return np.asarray(rng.integers(limits.min, limits.max + 1, shape)).astype(kind)

    constants = {
        "w": codes(w, count, per_group, *kernel), "wz": codes(w, *scales), "xz": codes(x), "yz": codes(y),
        "ws": np.asarray(rng.uniform(0.001, 0.02, scales), np.float32),
        "b": rng.normal(0, 2, count).astype(np.float32)}
    shape = (groups * per_group, *rng.integers(5, 9, axes).tolist())
    return f"""g (float[N,{",".join(map(str, shape))}] x) => ({y}[N,K{",P" * axes}] y)
        <float xs = {{{rng.uniform(0.005, 0.1)}}}, float ys = {{{rng.uniform(0.02, 0.3)}}}> {{
        q = QuantizeLinear(x, xs, xz)
        d = DequantizeLinear(q, xs, xz)
        v = DequantizeLinear <axis = 0> (w, ws, wz)
        a = Conv <{", ".join(attributes)}> (d, v{rng.choice([", b", ""])})
        y = QuantizeLinear(a, ys, yz) }}""", constants, shape


@pytest.mark.parametrize("seed", range(60))
def test_any_convolution(parse, check, seed):
    text, constants, shape = random_convolution(np.random.default_rng(seed))
    check(parse(text, 17, **constants), x=reals(seed, 4, *shape), near_ties=2)
