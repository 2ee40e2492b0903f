"""What went wrong for users of other tools; numbers are those of the project's list of cases."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import onnx
import pytest

import almac
from almac.compiler.build import build
from almac.compiler.graph import CompileError, Conv, Planes, Quantize
from almac.compiler.importer import import_model
from almac.compiler.pipeline import run
from almac.compiler.proof import accumulator_bits
from almac.compiler.scales import fixed_point
from almac.compiler.weights import to_planes
from almac.hdl.config import ArrayConfig
from almac.sim.rounding import saturate, shift_half_even


def compile_model(model):
    return build(model, ArrayConfig())


def int8(*values, shape):
    return np.array(values, np.int8).reshape(shape)


def numbers(values):
    return ", ".join(str(value) for value in values)


def quantizer(count, scale=1.0, zero_point=0):
    return f"""g (float[N,{count}] x) => (int8[N,{count}] y)
        <float s = {{{scale}}}, int8 z = {{{zero_point}}}> {{ y = QuantizeLinear(x, s, z) }}"""


def linear(node, weights, kernel, *, shape, out, attributes=""):
    """One operator with int8 weights on int8 codes, all scales 1, to real numbers."""
    return f"""g (int8[N,{shape}] x) => (float[N,{out}] y)
        <float one = {{1}}, int8[{kernel}] w = {{{numbers(weights)}}}> {{
            d = DequantizeLinear(x, one)
            v = DequantizeLinear(w, one)
            y = {node} {attributes} (d, v) }}"""


def test_u01_every_unsupported_node_is_named(parse):
    model = parse("""g (float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] w = {1}> {
        a = Conv(x, w)
        b = Sigmoid(a)
        c = Conv(b, w)
        y = Erf(c) }""")
    for node, name in zip(model.graph.node, ("c0", "sg0", "c1", "e0"), strict=True):
        node.name = name
    with pytest.raises(CompileError) as error:
        compile_model(model)
    text = str(error.value)
    for part in ("'sg0' (Sigmoid, opset 21, [1, 1, 4, 4] to [1, 1, 4, 4])", "'e0' (Erf, opset 21,", "quantize"):
        assert part in text


def test_u01_nodes_behind_the_next_quantizer_are_named_too(parse):
    model = parse("""g (float[1,4] x) => (float[1,4] y) <float s = {1}, int8 z = {0}, int32 k = {1}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        a = CumSum(d, k)
        b = Relu(a)
        r = QuantizeLinear(b, s, z)
        e = DequantizeLinear(r, s, z)
        y = CumSum(e, k) }""")
    with pytest.raises(CompileError, match=r"^2 nodes are not supported:\n.*\(CumSum.*\n.*\(CumSum") as error:
        compile_model(model)
    assert "Relu" not in str(error.value)


@pytest.mark.parametrize("factors", [(0.5, 1, 2, 4), (-0.5, 1, -2, 0)])
def test_u02_factor_per_channel_is_folded(parse, check, factors):
    model = parse(f"""g (float[N,2,3,3] x) => (int8[N,4,3,3] y)
        <float s = {{0.25}}, int8 z = {{0}}, int8[4,2,1,1] w = {{1,-1,0,1,1,1,-1,0}},
         float[1,4,1,1] f = {{{numbers(factors)}}}> {{
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, s)
        a = Conv(d, v)
        b = Mul(a, f)
        y = QuantizeLinear(b, s, z) }}""")
    assert [type(op).__name__ for op in import_model(model).ops] == [
        "Quantize", "Conv", "Requantize", "Dequantize"]
    check(model, x=np.random.default_rng(2).normal(0, 8, (4, 2, 3, 3)).astype(np.float32))


def test_u02_constant_along_another_axis(parse, check):
    """Between layers it is refused, by name; behind the last one the host computes it; golden does both."""
    text = """g (float[N,2,2,2] x) => (float[N,2,2,2] y)
        <float s = {1}, int8 z = {0}, int8[2,2,1,1] w = {1,0,0,1}, float[2] f = {1,2}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, s)
        a = Conv(d, v)
        b = Mul(a, f)
        p = QuantizeLinear(b, s, z)
        y = DequantizeLinear(p, s, z) }"""
    between = text.replace("y = D", "e = D").replace("z) }", "z) y = Conv(e, v) }")
    x = np.random.default_rng(0).normal(0, 9, (3, 2, 2, 2)).astype(np.float32)
    for model in (parse(text), parse(between)):
        check(model, x=x)
    assert [step.kind for step in compile_model(parse(text)).program.after] == ["Mul", "QuantizeLinear"]
    with pytest.raises(CompileError, match=r"(?s)1 node .*\(Mul, .*its constant has the shape \(2,\)") as error:
        compile_model(parse(between))
    assert "2 nodes" not in str(error.value)


ADD = """g (int8[N,1] a, int8[N,1] b) => (int8[N,1] y)
    <float sa = {0.5}, float sb = {0.25}, int8 z = {0}> {
    da = DequantizeLinear(a, sa, z)
    db = DequantizeLinear(b, sb, z)
    c = Add(da, db)
    y = QuantizeLinear(c, sa, z) }"""


def test_u03_add_of_two_scales(parse, check):
    check(parse(ADD), [4, 6, 127, -128], a=int8(3, 3, 127, -128, shape=(4, 1)),
          b=int8(3, 5, 127, -128, shape=(4, 1)))


def test_u03_add_of_every_pair(parse, check):
    a, b = (grid.reshape(-1, 1).astype(np.int8) for grid in np.meshgrid(*[np.arange(-128, 128)] * 2))
    check(parse(ADD), a=a, b=b)


@pytest.mark.parametrize(("text", "x", "expected"), [
    (quantizer(6), [0.5, 1.5, 2.5, -0.5, -1.5, -2.5], [0, 2, 2, 0, -2, -2]),
    (quantizer(3, zero_point=1), [0.5, 1.5, -0.5], [1, 3, 1]),
    # Multiplying by the reciprocal would give -128 (E10).
    (quantizer(1, scale=0.019607844), [-2.5], [-127]),
])
def test_u04_ties_go_to_even_before_the_zero_point(parse, check, text, x, expected):
    check(parse(text), expected, x=np.array([x], np.float32))


def test_u04_half_precision(parse, check):
    text = "g (float16[N,3] x) => (int8[N,3] y) <int8 z = {0}> { y = QuantizeLinear(x, s, z) }"
    check(parse(text, s=np.array(0.1, np.float16)), [1, -1, 3], x=np.array([[0.06, -0.06, 0.26]], np.float16))


def test_u14_flatten_is_channels_first(parse, check):
    weights = (1, 3, 9, 27, 2, 6, 18, 54)
    model = parse(f"""g (int8[N,2,2,2] x) => (float[N,1] y)
        <float one = {{1}}, int8[1,8] w = {{{numbers(weights)}}}> {{
        d = DequantizeLinear(x, one)
        f = Flatten(d)
        v = DequantizeLinear(w, one)
        y = Gemm <transB = 1> (f, v) }}""")
    x = np.arange(8, dtype=np.int8).reshape(1, 2, 2, 2)
    check(model, [626], x=x)
    # The pass that removes the flattening keeps the order.
    assert not any(type(op).__name__ == "Reshape" for op in run(import_model(model)).ops)


def test_u14_channels_last_input(parse, check):
    model = parse("""g (int8[N,2,2,2] x) => (float[N,1] y)
        <float one = {1}, int8[8,1] w = {1,3,9,27,2,6,18,54}, int64[2] shape = {-1,8}> {
        t = Transpose <perm = [0,3,1,2]> (x)
        d = DequantizeLinear(t, one)
        f = Reshape(d, shape)
        v = DequantizeLinear(w, one)
        y = MatMul(f, v) }""")
    x = np.arange(8, dtype=np.int8).reshape(1, 2, 2, 2).transpose(0, 2, 3, 1)
    check(model, [626], x=np.ascontiguousarray(x))


@pytest.mark.parametrize(("weights", "kernel", "x", "expected"), [
    ((1, 2, 3, 4), "4,1,1", [[1, 2], [10, 20]], [1, 2, 2, 4, 30, 60, 40, 80]),
    ((1, 1, 1, -1, 2, 0, 0, 2), "4,2,1", [[1], [2], [3], [4]], [3, -1, 6, 8]),
])
def test_u15_groups(parse, check, weights, kernel, x, expected):
    x = np.array([x], np.int8)
    text = linear("Conv", weights, kernel, shape=f"{x.shape[1]},{x.shape[2]}", out=f"4,{x.shape[2]}",
                  attributes="<group = 2>")
    check(parse(text), expected, x=x)


@pytest.mark.parametrize("axis", [1, -1])
def test_u16_scales_and_zero_points_per_column(parse, check, axis):
    model = parse(f"""g (int8[N,2] x) => (float[N,3] y)
        <float one = {{1}}, int8[2,3] w = {{1,1,1,4,4,4}}, float[3] s = {{0.5,2,10}}, int8[3] z = {{0,1,-1}}> {{
        d = DequantizeLinear(x, one)
        v = DequantizeLinear <axis = {axis}> (w, s, z)
        y = MatMul(d, v) }}""")
    check(model, [0.5, 0, 20, 2, 6, 50], x=int8(1, 0, 0, 1, shape=(2, 2)))


def test_u16_scales_of_the_wrong_axis_are_refused(parse):
    model = parse("""g (int8[N,2] x) => (float[N,2] y)
        <float one = {1}, int8[2,2] w = {1,1,4,4}, float[2] s = {0.5,2}> {
        d = DequantizeLinear(x, one)
        v = DequantizeLinear <axis = 0> (w, s)
        y = MatMul(d, v) }""")
    with pytest.raises(CompileError, match=r"\(MatMul, .*scale for each index of axis 1; supported: axis 0"):
        compile_model(model)


def test_u16_depthwise_scales(parse, check):
    model = parse("""g (int8[N,2,1] x) => (int8[N,2,1] y)
        <float h = {0.5}, float one = {1}, int8 z = {0}, int8[2,1,1] w = {1,-1}, float[2] s = {0.5,2}> {
        d = DequantizeLinear(x, h)
        v = DequantizeLinear <axis = 0> (w, s)
        a = Conv <group = 2> (d, v)
        y = QuantizeLinear(a, one, z) }""")
    check(model, [2, -20], x=int8(10, 20, shape=(1, 2, 1)))


@pytest.mark.parametrize(("auto_pad", "out", "expected"), [
    ("SAME_UPPER", "1,2,2", [348, 252, 274, 175]),
    ("SAME_LOWER", "1,2,2", [111, 217, 363, 573]),
    ("VALID", "1,1,1", [348]),
])
def test_u17_automatic_padding(parse, check, auto_pad, out, expected):
    text = linear("Conv", range(1, 10), "1,1,3,3", shape="1,4,4", out=out,
                  attributes=f'<strides = [2,2], auto_pad = "{auto_pad}">')
    check(parse(text), expected, x=np.arange(1, 17, dtype=np.int8).reshape(1, 1, 4, 4))


def test_u17_automatic_padding_of_an_odd_size(parse, check):
    text = linear("Conv", [1] * 9, "1,1,3,3", shape="1,7,5", out="1,4,3",
                  attributes='<strides = [2,2], auto_pad = "SAME_UPPER">')
    check(parse(text), [12, 27, 24, 63, 108, 81, 123, 198, 141, 112, 177, 124],
          x=np.arange(35, dtype=np.int8).reshape(1, 1, 7, 5))


def test_u20_batch_normalization_with_a_negative_factor(parse, check):
    model = parse("""g (int8[N,1,1] x) => (float[N,1,1] r, int8[N,1,1] y)
        <float one = {1}, float q = {0.25}, int8 z = {0}, int8[1,1,1] w = {1},
         float[1] gamma = {-1}, float[1] beta = {0.25}, float[1] mean = {2}, float[1] var = {4}> {
        d = DequantizeLinear(x, one)
        v = DequantizeLinear(w, one)
        r = Conv(d, v)
        b = BatchNormalization <epsilon = 0.0> (r, gamma, beta, mean, var)
        c = Relu(b)
        y = QuantizeLinear(c, q, z) }""")
    x = int8(0, 1, 2, 3, shape=(4, 1, 1))
    # The convolution itself is an output too: it keeps its sign.
    check(model, [0, 1, 2, 3], x=x)
    model.graph.output.pop(0)
    check(model, [5, 3, 1, 0], x=x)


@pytest.mark.parametrize(("low", "high", "expected"), [
    ("zero", "six", [0, 2, 6]), ("", "six", [-3, 2, 6]), ("zero", "", [0, 2, 9])])
def test_u21_clip_may_be_one_sided(parse, check, low, high, expected):
    model = parse(f"""g (int8[N,1] x) => (int8[N,1] y)
        <float one = {{1}}, int8 z = {{0}}, int8[1,1] w = {{1}}, float zero = {{0}}, float six = {{6}}> {{
        d = DequantizeLinear(x, one)
        v = DequantizeLinear(w, one)
        a = MatMul(d, v)
        c = Clip(a, {low}, {high})
        y = QuantizeLinear(c, one, z) }}""")
    check(model, expected, x=int8(-3, 2, 9, shape=(3, 1)))


@pytest.mark.parametrize("after", ["MatMul(d, v)", "Identity(d)"])
def test_u21_greatest_float_is_no_bound(parse, check, after):
    """Divided by a scale below one it is infinite: the importer once died of it."""
    model = parse(f"""g (int8[N,1] x) => (int8[N,1] y)
        <float s = {{0.5}}, int8 z = {{0}}, int8[1,1] w = {{2}}, float low = {{-3.4028235e38}},
         float high = {{3.4028235e38}}> {{
        d = DequantizeLinear(x, s)
        v = DequantizeLinear(w, s)
        a = {after}
        c = Clip(a, low, high)
        y = QuantizeLinear(c, s, z) }}""")
    check(model, [-128, 2, 127], x=int8(-128, 2, 127, shape=(3, 1)))


@pytest.mark.parametrize(("weight", "scale"), [(127, 1e-9 / 127), (0, 1.0)])
def test_u23_bias_of_a_channel_that_hardly_counts(parse, check, weight, scale):
    model = parse(f"""g (int8[N,1] x) => (int8[N,1] y)
        <float sx = {{0.02}}, float sw = {{{scale}}}, float sy = {{0.01}}, int8 z = {{0}},
         int8[1,1] w = {{{weight}}}, float[1] b = {{1}}> {{
        d = DequantizeLinear(x, sx)
        v = DequantizeLinear(w, sw)
        a = Gemm(d, v, b)
        y = QuantizeLinear(a, sy, z) }}""")
    check(model, [100, 100], x=int8(-128, 127, shape=(2, 1)))


def test_u24_symbolic_batch(parse, check):
    model = parse(linear("MatMul", (1, 2), "2,1", shape="2", out="1"))
    x = int8(1, 2, 3, 4, 5, 6, shape=(3, 2))
    check(model, [5], x=x[:1])
    check(model, [5, 11, 17], x=x)


def test_u24_fixed_batch_is_a_loop(parse, check):
    model = parse(linear("MatMul", (1, 2), "2,1", shape="2", out="1").replace("[N,", "[4,"))
    for count in (1, 3, 4, 5):
        x = np.arange(2 * count, dtype=np.int8).reshape(count, 2)
        check(model, x @ [1, 2], x=x)


def test_u27_initializer_that_is_listed_as_an_input(parse, check):
    model = parse(linear("MatMul", (2,), "1,1", shape="1", out="1"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.INT8, [1, 1]))
    assert import_model(model).inputs == ("x",)
    check(model, [6], x=int8(3, shape=(1, 1)))


POOLS = [
    ("GlobalAveragePool", "a = GlobalAveragePool(d)", 13, "1,1,1"),
    ("axes attribute", "a = ReduceMean <axes = [2,3]> (d)", 13, "1,1,1"),
    ("axes input", "a = ReduceMean(d, axes)", 18, "1,1,1"),
    ("dropped axes", "a = ReduceMean <keepdims = 0> (d, axes)", 21, "1"),
]


@pytest.mark.parametrize(("row", "expected"), [
    ([2, 3], 2), ([-2, -3], -2), ([0, 1], 0), ([1, 1, 2], 1), ([-1, -1, -2], -1), ([5] * 49, 5)])
@pytest.mark.parametrize(("node", "opset", "out"), [row[1:] for row in POOLS], ids=[row[0] for row in POOLS])
def test_u29_averages(parse, check, row, expected, node, opset, out):
    model = parse(f"""g (int8[N,1,1,{len(row)}] x) => (int8[N,{out}] y)
        <float s = {{0.5}}, int8 z = {{0}}, int64[2] axes = {{-1,-2}}> {{
        d = DequantizeLinear(x, s, z)
        {node}
        y = QuantizeLinear(a, s, z) }}""", opset)
    check(model, [expected], x=np.array(row, np.int8).reshape(1, 1, 1, -1))


def test_u29_empty_axes_reduce_nothing(parse, check):
    model = parse("""g (int8[N,1,1,2] x) => (int8[N,1,1,2] y) <float s = {0.5}, int8 z = {0}> {
        d = DequantizeLinear(x, s, z)
        a = ReduceMean <noop_with_empty_axes = 1> (d)
        y = QuantizeLinear(a, s, z) }""")
    check(model, [2, 5], x=int8(2, 5, shape=(1, 1, 1, 2)))


def test_u31_last_window_may_hang_over(parse, check):
    text = """g (int8[N,1,{size},{size}] x) => (int8[N,1,{out},{out}] y) <float s = {{1}}, int8 z = {{0}}> {{
        d = DequantizeLinear(x, s, z)
        a = MaxPool <kernel_shape = [{k},{k}], strides = [{s},{s}], pads = [{p},{p},{p},{p}], ceil_mode = 1> (d)
        y = QuantizeLinear(a, s, z) }}"""
    check(parse(text.format(size=4, out=2, k=3, s=2, p=0)), [11, 12, 15, 16],
          x=np.arange(1, 17, dtype=np.int8).reshape(1, 1, 4, 4))
    check(parse(text.format(size=9, out=3, k=4, s=4, p=2)), [1] * 9, x=np.ones((1, 1, 9, 9), np.int8))


def test_u33_padding_of_a_maximum_is_never_the_greatest(parse, check):
    model = parse("""g (int8[N,1,2,2] x) => (int8[N,1,1,1] y) <float s = {1}, int8 z = {0}> {
        d = DequantizeLinear(x, s, z)
        a = MaxPool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (d)
        y = QuantizeLinear(a, s, z) }""")
    check(model, [-3], x=int8(-5, -7, -9, -3, shape=(1, 1, 2, 2)))


def test_u34_padding_is_the_zero_point(parse, check):
    model = parse(f"""g (uint8[N,1,2,2] x) => (uint8[N,1,2,2] y)
        <float s = {{1}}, uint8 zx = {{10}}, uint8 zy = {{100}}, int8[1,1,3,3] w = {{{numbers([1] * 9)}}}> {{
        d = DequantizeLinear(x, s, zx)
        v = DequantizeLinear(w, s)
        a = Conv <pads = [1,1,1,1]> (d, v)
        y = QuantizeLinear(a, s, zy) }}""")
    check(model, [140] * 4, x=np.full((1, 1, 2, 2), 20, np.uint8))


def test_u36_missing_zero_point_means_uint8(parse, check):
    model = parse("g (float[N,4] x) => (uint8[N,4] y) <float s = {1}> { y = QuantizeLinear(x, s) }")
    check(model, [0, 0, 3, 255], x=np.array([[-1, 0.5, 3, 300]], np.float32))


def test_u36_output_type_without_a_zero_point(parse, check):
    model = parse("""g (float[N,2] x) => (int8[N,2] y) <float s = {0.5}> {
        y = QuantizeLinear <output_dtype = 3> (x, s) }""")
    check(model, [-2, 2], x=np.array([[-1, 1]], np.float32))


def test_u37_both_ends_saturate(parse, check):
    check(parse(quantizer(6)), [-128, -128, -128, 127, 127, 127],
          x=np.array([[-129, -128, -127.6, 127.4, 127.5, 300]], np.float32))


@pytest.mark.parametrize(("channels", "kernel", "weight", "bits"), [
    (1024, 1, -1, 19), (1024, 1, 1, 19), (1, 1, -1, 9)])
def test_u41_accumulator_of_a_power_of_two(channels, kernel, weight, bits):
    weights = np.full((1, channels, kernel, kernel), weight)
    op = Conv(inputs=("x",), output="y", weight=to_planes(weights))
    assert accumulator_bits(op) == bits
    assert abs(weights.sum()) * 128 < 1 << (bits - 1)


@pytest.mark.parametrize(("channels", "weight"), [(256 * 9, -2), (1, -2)])
def test_u41_accumulator_of_two_planes_holds_what_comes_between(channels, weight):
    planes = to_planes(np.array([[weight] * channels]).reshape(1, channels, 1, 1))
    # -2 = 1 - 3: a shared factor makes one plane of it.
    assert planes.count == 1
    op = Conv(inputs=("x",), output="y", weight=planes)
    assert abs(weight) * channels * 128 < 1 << (accumulator_bits(op) - 1)
    two = Planes(trits=np.stack([np.ones((1, channels, 1, 1)), -np.ones((1, channels, 1, 1))]).astype(np.int8),
                 alpha=np.array([[[1]], [[3]]]))
    assert accumulator_bits(Conv(inputs=("x",), output="y", weight=two)) >= accumulator_bits(op)


def test_u48_scales_that_are_no_powers_of_two():
    """Every accumulator of -20000..20000, against the float32 scales multiplied and divided exactly."""
    scales = np.float32([0.37, 0.11, 0.73])
    multiplier, shift = fixed_point(np.array([scales[0] * scales[1] / scales[2]]))
    acc = np.arange(-20000, 20001)
    codes = saturate(shift_half_even(acc * multiplier, shift), -128, 127)
    factor = Fraction(float(scales[0] * scales[1] / scales[2]))
    assert float(factor) == pytest.approx(0.0557534, abs=1e-7)
    assert codes.tolist() == [max(-128, min(127, round(int(a) * factor))) for a in acc]


def test_u48_agrees_with_onnxruntime(parse, check):
    model = parse("""g (int8[N,2] x) => (int8[N,1] y)
        <float sx = {0.37}, float sw = {0.11}, float sy = {0.73}, int8 z = {0}, int8[2,1] w = {127,1}> {
        d = DequantizeLinear(x, sx)
        v = DequantizeLinear(w, sw)
        a = MatMul(d, v)
        y = QuantizeLinear(a, sy, z) }""")
    # All accumulators from -16384 to 16256.
    x = np.array([(a, b) for a in range(-128, 128) for b in range(-64, 64)], np.int8)
    check(model, x=x, near_ties=8)


def test_u51_scales_of_blocks(parse, check):
    model = parse("""g (int8[N,4] x) => (float[N,1] y)
        <float one = {1}, int8[1,4] w = {1,2,3,4}, float[1,2] s = {0.5,2}> {
        d = DequantizeLinear(x, one)
        v = DequantizeLinear <axis = 1, block_size = 2> (w, s)
        y = Gemm <transB = 1> (d, v) }""")
    check(model, [0.5, 1, 6, 8], x=np.eye(4, dtype=np.int8))


NET = """g (float[N,1,4,4] x) => (float[N,2] y)
    <float s = {0.0625}, float t = {0.5}, int8 z = {3},
     int8[2,1,3,3] w = {1,0,-1,1,1,0,-1,0,1,0,1,1,-1,0,0,1,-1,1}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    v = DequantizeLinear(w, t)
    a = Conv <pads = [1,1,1,1]> (d, v)
    r = Relu(a)
    p = QuantizeLinear(r, s, z)
    e = DequantizeLinear(p, s, z)
    m = GlobalAveragePool(e)
    n = QuantizeLinear(m, s, z)
    o = DequantizeLinear(n, s, z)
    y = Flatten(o) }"""


def test_u54_one_network_for_all_opsets(parse, check):
    graphs = []
    for opset in (10, 11, 13, 17, 18, 21, 25):
        model = parse(NET, opset)
        x = np.random.default_rng(opset).normal(0, 2, (5, 1, 4, 4)).astype(np.float32)
        check(model, x=x)
        graphs.append(import_model(model))
    texts = {repr((graph.ops, graph.values, graph.inputs, graph.outputs)) for graph in graphs}
    assert len(texts) == 1


def test_u54_one_program_for_all_opsets(parse):
    assert len({almac.compile(parse(NET, opset)).digest for opset in (10, 11, 13, 17, 18, 21, 25)}) == 1


def test_u54_older_opsets_are_refused_with_their_number(parse):
    with pytest.raises(CompileError, match=r"^the model is of opset 6; supported: 7 to 25; convert"):
        import_model(parse(NET, 6))


def test_u54_newer_opsets_warn_with_their_number(parse):
    with pytest.warns(UserWarning, match="the model is of opset 26; its operators are taken for those of 25"):
        program = almac.compile(parse(NET, 26))
    assert program.digest == almac.compile(parse(NET, 25)).digest


def test_u55_dilation(parse, check):
    text = linear("Conv", range(1, 10), "1,1,3,3", shape="1,5,5", out="1,3,3",
                  attributes="<dilations = [2,2], pads = [1,1,1,1]>")
    check(parse(text), [396, 560, 344, 552, 777, 474, 240, 326, 188],
          x=np.arange(1, 26, dtype=np.int8).reshape(1, 1, 5, 5))


def test_u55_dilation_of_a_maximum(parse, check):
    model = parse("""g (int8[N,1,5] x) => (int8[N,1,3] y) <float s = {1}, int8 z = {0}> {
        d = DequantizeLinear(x, s, z)
        a = MaxPool <kernel_shape = [2], dilations = [2]> (d)
        y = QuantizeLinear(a, s, z) }""")
    check(model, [3, 9, 8], x=int8(1, 9, 3, 2, 8, shape=(1, 1, 5)))


def test_u56_one_dimension(parse, check):
    text = linear("Conv", (1, 10, 100), "1,1,3", shape="1,4", out="1,2",
                  attributes="<pads = [0,1], strides = [2]>")
    check(parse(text), [321, 43], x=int8(1, 2, 3, 4, shape=(1, 1, 4)))


def test_u56_kernel_that_is_not_square(parse, check):
    text = linear("Conv", (1, 10, 100), "1,1,1,3", shape="1,2,4", out="1,2,2",
                  attributes="<pads = [0,1,0,1], strides = [1,2]>")
    check(parse(text), [210, 432, 650, 876], x=int8(*range(1, 9), shape=(1, 1, 2, 4)))


def test_u62_one_weight_for_two_convolutions(parse, check):
    model = parse("""g (float[N,2,3] x) => (int8[N,2,3] y)
        <float s = {0.5}, int8 z = {0}, int8[2,2,1] w = {1,-1,0,1}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        e = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, s)
        a = Conv(d, v)
        p = QuantizeLinear(a, s, z)
        f = DequantizeLinear(p, s, z)
        b = Conv(f, v)
        r = QuantizeLinear(b, s, z)
        h = DequantizeLinear(r, s, z)
        c = Add(h, e)
        y = QuantizeLinear(c, s, z) }""")
    assert sum(isinstance(op, Quantize) for op in import_model(model).ops) == 1
    check(model, x=np.random.default_rng(0).normal(0, 20, (8, 2, 3)).astype(np.float32))


def test_e2_two_bit_weights(parse, check):
    text = """g (int8[N,4] x) => (float[N,1] y) <float one = {1}> {
        d = DequantizeLinear(x, one)
        v = DequantizeLinear(w, one)
        y = MatMul(d, v) }"""
    weights = np.array([[-2], [-1], [0], [1]]).astype(ml_dtypes.int2)
    check(parse(text, 25, w=weights), [-2, -1, 0, 1], x=np.eye(4, dtype=np.int8))
    with pytest.raises(CompileError, match=r"^initializer 'w' is of a 2-bit type, .* from opset 25 on; .* 21$"):
        import_model(parse(text, 21, w=weights))
