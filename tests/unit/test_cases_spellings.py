"""The list of cases: one network in several spellings, types, rounding modes."""

import numpy as np
import onnx
import pytest

import almac

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
    <float sx = {0.5}, float sw = {0.25}, float sy = {1}, int8 z = {0}, float zero = {0}, float two = {2},
     float eight = {8}, int8 low = {-2}, int8 high = {1}, int8[4,1,1,1] w = {-2,1,0,-1},
     float[4,1,1,1] real = {-0.5,0.25,0,-0.25}> { %s }"""
QUANT = 'qonnx.custom_op.general.Quant <narrow = 0, signed = 1, rounding_mode = "ROUND">'
FORMS = {
    "QDQ": """q = QuantizeLinear(x, sx, z) d = DequantizeLinear(q, sx, z) v = DequantizeLinear(w, sw, z)
        a = Conv(d, v) c = QuantizeLinear(a, sy, z) y = DequantizeLinear(c, sy, z)""",
    "QCDQ": """q = QuantizeLinear(x, sx, z) d = DequantizeLinear(q, sx, z) wide = QuantizeLinear(real, sw, z)
        narrow = Clip(wide, low, high) v = DequantizeLinear(narrow, sw, z) a = Conv(d, v)
        c = QuantizeLinear(a, sy, z) y = DequantizeLinear(c, sy, z)""",
    "QOperator": """q = QuantizeLinear(x, sx, z) c = QLinearConv(q, sx, z, w, sw, z, sy, z)
        y = DequantizeLinear(c, sy, z)""",
    "QONNX": f"""d = {QUANT} (x, sx, zero, eight) v = {QUANT} (real, sw, zero, two) a = Conv(d, v)
        y = {QUANT} (a, sy, zero, eight)""",
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
    nodes = FORMS[form].replace("q = QuantizeLinear(x, sx, z)", "").replace("y = DequantizeLinear(c, sy, z)", "")
    text = (CONV % nodes).replace("float[N,1,1,4] x) => (float[N,4,1,4] y", "int8[N,1,1,4] q) => (int8[N,4,1,4] c")
    check(spelled(text), EXPECTED, q=np.int8([[[[3, -5, 7, 100]]]]))


@pytest.mark.parametrize(("kind", "size", "weights"), [
    ("int8", 3, "int8"), ("int8", 2, "int8 per channel"), ("uint8", 3, "int8"), ("uint8", 1, "uint8"),
    ("uint8", 2, "int8 per channel"), ("uint8", 1, "int8 per channel")])
def test_u06_qoperator_is_qdq(spelled, check, size, weights, kind):
    """Codes at both ends, zero points everywhere."""
    rng = np.random.default_rng(size)
    limits = np.iinfo(kind)
    dtype = np.dtype(weights.split()[0])
    scale = np.exp2(-rng.integers(2, 6, 3)).astype(np.float32) if "per" in weights else np.array(0.125, np.float32)
    low, high = (0, 256) if dtype == np.uint8 else (-128, 128)
    arrays = {"w": rng.integers(low, high, (3, 2, size, size)).astype(dtype),
              "ws": scale, "wz": np.full(scale.shape, 3 if dtype == np.uint8 else 0, dtype), "s": np.float32(0.5),
              "zx": np.array(limits.min, kind), "t": np.float32(4), "zy": np.array(limits.max - 100, kind),
              "b": rng.integers(-2000, 2000, 3).astype(np.int32)}
    arrays = {key: np.asarray(value) for key, value in arrays.items()}
    head = f"g ({kind}[N,2,4,4] x) => ({kind}[N,3,A,B] y)"
    pads = "<pads = [1,0,0,1], strides = [1,2]>"
    bias = {"bs": np.asarray(np.float32(0.5) * scale)}
    operator = spelled(f"{head} {{ y = QLinearConv {pads} (x, s, zx, w, ws, wz, t, zy, b) }}", **arrays)
    qdq = spelled(f"""{head} {{ d = DequantizeLinear(x, s, zx) v = DequantizeLinear <axis = 0> (w, ws, wz)
        c = DequantizeLinear <axis = 0> (b, bs) a = Conv {pads} (d, v, c) y = QuantizeLinear(a, t, zy) }}""",
        **arrays, **bias)
    x = rng.integers(limits.min, limits.max + 1, (5, 2, 4, 4)).astype(kind)
    assert check(operator, x=x).tolist() == check(qdq, x=x).tolist()


def test_u16_vector_with_one_scale(spelled, check):
    """The default axis, 1, is none of a vector's: one scale has no axis."""
    model = spelled("""g (int8[N,3] x) => (float[N,3] y)
        <float one = {1}, float half = {0.5}, int8[3] w = {2,4,-6}> {
        d = DequantizeLinear(x, one) b = DequantizeLinear(w, half) y = Add(d, b) }""")
    check(model, [1, 2, -3], x=np.zeros((1, 3), np.int8))


def test_u16_depthwise_qoperator(spelled, check):
    model = spelled("""g (int8[N,2,1,1] x) => (int8[N,2,1,1] y)
        <float h = {0.5}, float one = {1}, int8 z = {0}, int8[2,1,1,1] w = {1,-1}, float[2] s = {0.5,2},
         int8[2] zs = {0,0}> {
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
    ("narrow = 1, signed = 1", 8, [-127, -127, -127, 127, 127, 127]),
    ("narrow = 0, signed = 1", 8, [-128, -128, -128, 127, 127, 127]),
    ("narrow = 0, signed = 0", 8, [0, 0, 0, 127, 128, 255]),
    ("narrow = 1, signed = 0", 8, [0, 0, 0, 127, 128, 254]),
    ("narrow = 1, signed = 1", 4, [-7, -7, -7, 7, 7, 7])])
def test_u37_narrow_ranges(spelled, check, attributes, bits, expected):
    model = spelled(f"""g (float[N,6] x) => (float[N,6] y)
        <float one = {{1}}, float zero = {{0}}, float bits = {{{bits}}}> {{
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


def test_u40_e9_large_products_of_both_types(spelled, check):
    model = spelled("""g (uint8[N,4,1,1] x) => (uint8[N,1,1,1] y)
        <float sx = {0.003921569}, float sw = {0.007874016}, float sy = {0.01568627}, uint8 z = {0}, int8 zw = {0},
         int8[1,4,1,1] w = {127,127,127,127}> { y = QLinearConv(x, sx, z, w, sw, zw, sy, z) }""")
    # The exact sum of products, whatever the oracle's kernels do on this machine.
    check(model, [255], x=np.full((1, 4, 1, 1), 255, np.uint8))


BIPOLAR = "qonnx.custom_op.general.BipolarQuant"


def test_u45_bipolar(spelled, check):
    """Zero, of either sign, is positive: as activations, as weights, and of sums on the array."""
    numbers, expected = np.float32([[-1, -0.0, 0, 1e-9, 3]]), [-0.5, 0.5, 0.5, 0.5, 0.5]
    given = "<float half = {0.5}, float one = {1}, float zero = {0}, float eight = {8}>"
    head = "g (float[N,5] x) => (float[N,5] y)"
    check(spelled(f"{head} {given} {{ y = {BIPOLAR} (x, half) }}"), expected, x=numbers)
    model = spelled(f"""{head} {given} {{
        d = {QUANT} (x, one, zero, eight) v = {BIPOLAR} (w, half) m = MatMul(d, v) y = Identity(m) }}""",
        w=np.broadcast_to(numbers, (5, 5)).copy())
    check(model, expected, x=np.float32([[1, 0, 0, 0, 0]]))
    model = spelled(f"""{head} {given} {{
        d = {QUANT} (x, one, zero, eight) v = {QUANT} (w, one, zero, eight) m = MatMul(d, v) s = Add(m, b)
        y = {BIPOLAR} (s, half) }}""", w=np.eye(5, dtype=np.float32), b=np.float32([0, 0.5, -0.5, 1e30, -1e30]))
    x = np.float32([[0, 0, 0, 0, 0], [-1, -1, 1, -128, 127], [1, 1, 0, 127, 127]])
    check(model, [[0.5, 0.5, -0.5, 0.5, -0.5], [-0.5, -0.5, 0.5, 0.5, -0.5], [0.5, 0.5, -0.5, 0.5, -0.5]], x=x)
    almac.compile(model)


@pytest.mark.parametrize(("mode", "expected"), [
    ("ROUND", [-2, -2, 0, 0, 2, 2]), ("HALF_EVEN", [-2, -2, 0, 0, 2, 2]), ("CEIL", [-2, -1, 0, 1, 2, 3]),
    ("FLOOR", [-3, -2, -1, 0, 1, 2]), ("UP", [-3, -2, -1, 1, 2, 3]), ("HALF_UP", [-3, -2, -1, 1, 2, 3]),
    ("DOWN", [-2, -1, 0, 0, 1, 2]), ("HALF_DOWN", [-2, -1, 0, 0, 1, 2])])
@pytest.mark.parametrize("where", ["input", "weights", "codes", "sums"])
def test_u47_rounding_modes(spelled, check, mode, expected, where):
    numbers = np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    quant = f'qonnx.custom_op.general.Quant <narrow = 0, signed = 1, rounding_mode = "{mode}">'
    nodes = {"input": f"y = {quant} (x, one, zero, eight)",
             "weights": f"d = {QUANT} (x, half, zero, eight) v = {quant} (w, one, zero, eight) y = MatMul(d, v)",
             "codes": f"d = {QUANT} (x, half, zero, eight) y = {quant} (d, one, zero, eight)",
             "sums": f"d = {QUANT} (x, half, zero, eight) v = {QUANT} (w, one, zero, eight) m = MatMul(d, v) "
                     f"y = {quant} (m, one, zero, eight)"}
    weights = np.diag(numbers) if where == "weights" else np.eye(6, dtype=np.float32)
    model = spelled(f"""g (float[N,6] x) => (float[N,6] y)
        <float half = {{0.5}}, float one = {{1}}, float zero = {{0}}, float eight = {{8}}> {{ {nodes[where]} }}""",
        w=weights)
    check(model, expected, x=np.ones((1, 6), np.float32) if where == "weights" else numbers[None])


def test_u47_other_modes_are_named(spelled):
    model = spelled("""g (float[N,6] x) => (float[N,6] y) <float one = {1}, float zero = {0}, float eight = {8}> {
        y = qonnx.custom_op.general.Quant <rounding_mode = "ROUND_TO_ZERO"> (x, one, zero, eight) }""")
    with pytest.raises(almac.CompileError, match=r"Quant.*rounding_mode = ROUND_TO_ZERO; supported: ROUND,"):
        almac.compile(model)


@pytest.mark.parametrize("opset", [7, 9, 11])
def test_u27_weights_among_the_inputs(spelled, check, opset):
    """The oldest format lists every initializer as an input."""
    model = spelled("""g (float[N,1] x) => (float[N,1] y) <float one = {1}, uint8 z = {100}, float[1,1] w = {2}> {
        q = com.microsoft.QuantizeLinear(x, one, z) d = com.microsoft.DequantizeLinear(q, one, z)
        p = com.microsoft.QuantizeLinear(w, one, z) v = com.microsoft.DequantizeLinear(p, one, z)
        y = MatMul(d, v) }""",
        opset, ir=3)
    for tensor in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    check(model, [6], x=np.float32([[3]]))
    assert [port.name for port in almac.compile(model).inputs] == ["x"]
