"""The list of cases: one network in several spellings, types, rounding modes."""

import numpy as np
import onnx
import pytest

import almac
from almac.compiler.graph import CompileError

_DOMAINS = '"com.microsoft" : 1, "qonnx.custom_op.general" : 1'


@pytest.fixture
def spelled():
    """Model from the text of a graph whose operators may be of other domains."""
    def build(text, opset=21, ir=10, **initializers):
        model = onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}, {_DOMAINS}]> {text}')
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(array, name) for name, array in initializers.items())
        return model
    return build


CONV = """g (float[N,1,1,4] x) => (float[N,4,1,4] y)
    <float sx = {0.5}, float sw = {0.25}, float sy = {1}, int8 z = {0}, float zero = {0}, float two = {2}, float eight = {8},
     int8 low = {-2}, int8 high = {1}, int8[4,1,1,1] w = {-2,1,0,-1}, float[4,1,1,1] real = {-0.5,0.25,0,-0.25}> { %s }"""
FORMS = {
    "QDQ": """q = QuantizeLinear(x, sx, z) d = DequantizeLinear(q, sx, z) v = DequantizeLinear(w, sw, z) a = Conv(d, v)
        c = QuantizeLinear(a, sy, z) y = DequantizeLinear(c, sy, z)""",
    "QCDQ": """q = QuantizeLinear(x, sx, z) d = DequantizeLinear(q, sx, z) wide = QuantizeLinear(real, sw, z)
        narrow = Clip(wide, low, high) v = DequantizeLinear(narrow, sw, z) a = Conv(d, v)
        c = QuantizeLinear(a, sy, z) y = DequantizeLinear(c, sy, z)""",
    "QOperator": """q = QuantizeLinear(x, sx, z) c = QLinearConv(q, sx, z, w, sw, z, sy, z)
        y = DequantizeLinear(c, sy, z)""",
    "QONNX": """d = qonnx.custom_op.general.Quant <narrow = 0, signed = 1, rounding_mode = "ROUND"> (x, sx, zero, eight)
        v = qonnx.custom_op.general.Quant <narrow = 0, signed = 1, rounding_mode = "ROUND"> (real, sw, zero, two)
        a = Conv(d, v)
        y = qonnx.custom_op.general.Quant <narrow = 0, signed = 1, rounding_mode = "ROUND"> (a, sy, zero, eight)""",
}
EXPECTED = [-1, 1, -2, -25, 0, -1, 1, 12, 0, 0, 0, 0, 0, 1, -1, -12]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opset", [13, 19, 21, 25])
def test_u06_four_forms(spelled, check, form, opset):
    model = spelled(CONV % FORMS[form], opset, 13 if opset > 24 else 10)
    check(model, EXPECTED, x=np.float32([[[[1.5, -2.5, 3.5, 50]]]]))
    check(model, x=np.random.default_rng(0).normal(0, 30, (9, 1, 1, 4)).astype(np.float32))


def test_u06_four_forms_give_one_program(spelled):
    digests = {form: almac.compile(spelled(CONV % nodes)).digest for form, nodes in FORMS.items()}
    assert len({*digests.values()}) == 1, digests


@pytest.mark.parametrize("form", ["QDQ", "QCDQ", "QOperator"])
def test_u06_codes_in_and_out(spelled, check, form):
    text = (CONV % FORMS[form].replace("q = QuantizeLinear(x, sx, z)", "").replace("y = DequantizeLinear(c, sy, z)", ""))
    text = text.replace("float[N,1,1,4] x) => (float[N,4,1,4] y", "int8[N,1,1,4] q) => (int8[N,4,1,4] c")
    check(spelled(text), EXPECTED, q=np.int8([[[[3, -5, 7, 100]]]]))


@pytest.mark.parametrize(("size", "weights"), [(3, "int8"), (1, "uint8"), (2, "int8 per channel")])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_u06_qoperator_is_qdq(spelled, check, size, weights, kind):
    """Codes at both ends, zero points everywhere."""
    rng = np.random.default_rng(size)
    limits = np.iinfo(kind)
    dtype = np.dtype(weights.split()[0])
    scale = np.exp2(-rng.integers(2, 6, 3)).astype(np.float32) if "per" in weights else np.array(0.125, np.float32)
    arrays = {"w": rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (3, 2, size, size)).astype(dtype),
              "ws": scale, "wz": np.full(scale.shape, 3 if dtype == np.uint8 else 0, dtype), "s": np.float32(0.5),
              "zx": np.array(limits.min, kind), "t": np.float32(4), "zy": np.array(limits.max - 100, kind),
              "b": rng.integers(-2000, 2000, 3).astype(np.int32)}
    arrays = {key: np.asarray(value) for key, value in arrays.items()}
    head = f"g ({kind}[N,2,4,4] x) => ({kind}[N,3,A,B] y)"
    pads = "<pads = [1,0,0,1], strides = [1,2]>"
    bias = {"bs": np.asarray(np.float32(0.5) * scale)}
    operator = spelled(f"{head} {{ y = QLinearConv {pads} (x, s, zx, w, ws, wz, t, zy, b) }}", **arrays)
    qdq = spelled(f"""{head} {{ d = DequantizeLinear(x, s, zx) v = DequantizeLinear <axis = 0> (w, ws, wz)
        c = DequantizeLinear <axis = 0> (b, bs) a = Conv {pads} (d, v, c) y = QuantizeLinear(a, t, zy) }}""", **arrays, **bias)
    x = rng.integers(limits.min, limits.max + 1, (5, 2, 4, 4)).astype(kind)
    assert check(operator, x=x).tolist() == check(qdq, x=x).tolist()


@pytest.mark.parametrize(("node", "scales", "expected"), [
    ("d = DequantizeLinear(x, one) v = DequantizeLinear(w, s) y = MatMul(d, v)", 0.5, [1, 2, -3])])
def test_u16_vector_with_one_scale(spelled, check, node, scales, expected):
    """The default axis, 1, is none of a vector's: one scale has no axis."""
    model = spelled(f"""g (int8[N,3] x) => (float[N,3] y) <float one = {{1}}> {{
        d = DequantizeLinear(x, one) b = DequantizeLinear(w, s) y = Add(d, b) }}""", w=np.int8([2, 4, -6]),
        s=np.array(scales, np.float32))
    check(model, expected, x=np.zeros((1, 3), np.int8))


def test_u16_depthwise_qoperator(spelled, check):
    model = spelled("""g (int8[N,2,1,1] x) => (int8[N,2,1,1] y)
        <float h = {0.5}, float one = {1}, int8 z = {0}, int8[2,1,1,1] w = {1,-1}, float[2] s = {0.5,2}, int8[2] zs = {0,0}> {
        y = QLinearConv <group = 2> (x, h, z, w, s, zs, one, z) }""")
    check(model, [2, -20], x=np.int8([10, 20]).reshape(1, 2, 1, 1))


def test_u34_qoperator(spelled, check):
    model = spelled("""g (uint8[N,1,2,2] x) => (uint8[N,1,2,2] y)
        <float s = {1}, uint8 zx = {10}, int8 zw = {0}, uint8 zy = {100}, int8[1,1,3,3] w = {1,1,1,1,1,1,1,1,1}> {
        y = QLinearConv <pads = [1,1,1,1]> (x, s, zx, w, s, zw, s, zy) }""")
    check(model, [140] * 4, x=np.full((1, 1, 2, 2), 20, np.uint8))


@pytest.mark.parametrize(("opset", "kind", "expected"), [
    (21, 3, [-2, 2]), (21, 2, [0, 2]), (21, 22, [-2, 2]), (21, 21, [0, 2]), (25, 26, [-2, 1]), (25, 25, [0, 2])])
def test_u36_output_types(spelled, check, opset, kind, expected):
    model = spelled(f"""g (float[N,2] x) => (float[N,2] y) <float s = {{0.5}}, float one = {{1}}> {{
        q = QuantizeLinear <output_dtype = {kind}> (x, s)
        y = DequantizeLinear(q, one) }}""", opset, 13 if opset > 24 else 10)
    check(model, expected, x=np.float32([[-1, 1]]))


@pytest.mark.parametrize(("attributes", "bits", "expected"), [
    ("narrow = 1, signed = 1", 8, [-127, -127, -127, 127, 127, 127]), ("narrow = 0, signed = 1", 8, [-128, -128, -128, 127, 127, 127]),
    ("narrow = 0, signed = 0", 8, [0, 0, 0, 127, 128, 255]), ("narrow = 1, signed = 0", 8, [0, 0, 0, 127, 128, 254]),
    ("narrow = 1, signed = 1", 4, [-7, -7, -7, 7, 7, 7])])
def test_u37_narrow_ranges(spelled, check, attributes, bits, expected):
    model = spelled(f"""g (float[N,6] x) => (float[N,6] y) <float one = {{1}}, float zero = {{0}}, float bits = {{{bits}}}> {{
        y = qonnx.custom_op.general.Quant <{attributes}> (x, one, zero, bits) }}""")
    check(model, expected, x=np.float32([[-129, -128, -127.6, 127.4, 127.5, 300]]))


NINE = [-2, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 2]


@pytest.mark.parametrize(("signed", "narrow", "expected"), [
    (1, 1, [-0.5, -0.5, -0.5, 0, 0, 0, 0.5, 0.5, 0.5]), (1, 0, [-1, -1, -0.5, 0, 0, 0, 0.5, 0.5, 0.5]),
    (0, 0, [0, 0, 0, 0, 0, 0, 0.5, 1, 1.5])])
@pytest.mark.parametrize("opset", [9, 13, 21])
def test_u39_two_bits(spelled, check, signed, narrow, expected, opset):
    """As activations, and as weights, which must keep their -2."""
    quant = f"qonnx.custom_op.general.Quant <signed = {signed}, narrow = {narrow}, rounding_mode = \"ROUND\">"
    given = "float half = {0.5}, float one = {1}, float zero = {0}, float two = {2}, float eight = {8}"
    head = "g (float[N,9] x) => (float[N,9] y)"
    model = spelled(f"{head} <{given}> {{ y = {quant} (x, half, zero, two) }}", opset)
    check(model, expected, x=np.float32([NINE]))
    model = spelled(f"""{head} <{given}> {{
        d = qonnx.custom_op.general.Quant <signed = 1, narrow = 0> (x, one, zero, eight)
        v = {quant} (w, half, zero, two)
        y = MatMul(d, v) }}""", opset, w=np.diag(np.float32(NINE)))
    check(model, expected, x=np.ones((1, 9), np.float32))
    almac.compile(model)


def test_u40_large_products_of_both_signs(spelled, check):
    model = spelled("""g (uint8[N,4,1,1] x) => (uint8[N,1,1,1] y)
        <float sx = {0.003921569}, float sw = {0.007874016}, float sy = {0.01568627}, uint8 z = {0}, int8 zw = {0},
         int8[1,4,1,1] w = {127,127,127,127}> { y = QLinearConv(x, sx, z, w, sw, zw, sy, z) }""")
    graph = almac.golden(model, np.full((1, 4, 1, 1), 255, np.uint8))
    # The exact sum of products, whatever the oracle's kernels do on this machine.
    assert graph["y"].reshape(-1).tolist() == [255]
