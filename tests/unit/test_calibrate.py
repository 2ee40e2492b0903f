"""Where quantizers go in a float model, what they hold, and what is refused."""

import numpy as np
import onnx
import onnxruntime
import pytest

from almac.compiler.calibrate import quantize_int8
from almac.compiler.graph import CompileError

#: A convolution of eight channels, over four images of 2 x 4 x 4.
W = np.random.default_rng(1).normal(size=(8, 2, 3, 3)).astype(np.float32)
V = np.random.default_rng(2).normal(size=(8, 8, 1, 1)).astype(np.float32)
M = np.random.default_rng(3).normal(size=(8, 5)).astype(np.float32)
C = np.random.default_rng(4).uniform(0.5, 2, size=(8, 1, 1)).astype(np.float32)
X = np.random.default_rng(5).normal(size=(4, 2, 4, 4)).astype(np.float32)

CONV = "Conv <pads = [1,1,1,1]>"


def run(model, x, *outputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.concatenate([session.run([*outputs] or None, {"x": x[k:k + 1]})[0] for k in range(len(x))])


def with_constants(model, arrays):
    """The model, with those of the arrays that it reads."""
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in arrays.items() if name in read)
    return model


def quantized(model):
    """Tensors behind which there is a quantizer, without constants."""
    return [node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]


def constants(model):
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def parameters(model, name):
    """Scale and zero point of the quantizer behind a tensor."""
    node = next(node for node in model.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == name)
    return tuple(constants(model)[key].item() for key in node.input[1:])


@pytest.fixture
def quantize(parse):
    """Quantized model of the nodes between x and y, which also runs; ``gives`` is the type of y."""
    def build(nodes, gives="float[N,8,4,4]", x=X, **arrays):
        shape = ",".join(map(str, x.shape[1:]))
        model = with_constants(parse(f"g (float[N,{shape}] x) => ({gives} y) {{ {nodes} }}"),
                               {"w": W, "v": V, "m": M, "c": C} | arrays)
        result = quantize_int8(model, {"x": x})
        onnx.checker.check_model(result, full_check=True)
        exact = run(model, x)
        error = np.abs(run(result, x) - exact).max()
        # Below the least normal numbers there is nothing to compare.
        assert error <= 0.05 * np.abs(exact).max() + 1e-37
        return result
    return build


@pytest.mark.parametrize(("nodes", "expected"), [
    (f"y = {CONV}(x, w)", ["x"]),
    (f"a = {CONV}(x, w) y = BatchNormalization(a, p, p, p, p)", ["x"]),
    (f"a = {CONV}(x, w) b = Add(a, c) d = Mul(c, b) e = Sub(d, c) y = Div(e, c)", ["x"]),
    (f"a = {CONV}(x, w) b = Mul(a, c) y = Relu(b)", ["x", "y/float"]),
    (f"a = {CONV}(x, w) b = Identity(a) y = Relu(b)", ["x", "y/float"]),
    (f"a = {CONV}(x, w) b = Clip(a, , one) y = Conv(b, v)", ["x", "b"]),
    (f"a = {CONV}(x, w) b = Relu(a) d = Mul(b, c) y = Conv(d, v)", ["x", "b", "d"]),
    (f"a = {CONV}(x, w) b = Relu(a) d = Conv(a, v) y = Add(b, d)", ["x", "a", "b", "d", "y/float"]),
    (f"a = {CONV}(x, w) b = Conv(a, v) d = Add(a, b) y = Relu(d)", ["x", "a", "b", "y/float"]),
    (f"a = {CONV}(x, w) b = Conv(a, v) d = Mul(a, b) e = Mul(d, one) y = Relu(e)", ["x", "a", "b", "d", "y/float"]),
], ids=lambda value: value if isinstance(value, str) else "")
def test_epilogue_has_no_quantizer(quantize, nodes, expected):
    model = quantize(nodes, one=np.float32(1).reshape(()), p=C.reshape(-1))
    assert quantized(model) == expected


@pytest.mark.parametrize(("nodes", "gives", "expected"), [
    (f"a = {CONV}(x, w) b = GlobalAveragePool(a) d = Flatten(b) y = Gemm(d, m)", "float[N,5]",
     ["x", "a", "b", "d"]),
    (f"a = {CONV}(x, w) b = ReduceMean <keepdims = 0> (a, axes) y = MatMul(b, m)", "float[N,5]", ["x", "a", "b"]),
    (f"a = {CONV}(x, w) y = AveragePool <kernel_shape = [2,2]> (a)", "float[N,8,3,3]", ["x", "a"]),
    ("y = ConvTranspose(x, t)", "float[N,8,6,6]", ["x"]),
], ids=lambda value: value if isinstance(value, str) else "")
def test_linear_operators(quantize, nodes, gives, expected):
    model = quantize(nodes, gives, axes=np.array([2, 3]), t=W.reshape(2, 8, 3, 3))
    assert quantized(model) == expected


@pytest.mark.parametrize("nodes", [
    "s = Sigmoid(a) y = Mul(a, s)",
    "p = Add(a, three) q = Clip(p, zero, six) r = Mul(a, q) y = Div(r, six)",
    "p = Div(a, three) q = Erf(p) r = Add(q, three) s = Mul(a, r) y = Mul(s, six)",
    "y = LeakyRelu(a)", "y = HardSwish(a)", "y = Gelu(a)", "y = PRelu(a, c)", "p = Abs(a) y = Neg(p)",
])
def test_function_of_one_tensor_stays_in_one_piece(quantize, nodes):
    model = quantize(f"a = {CONV}(x, w) {nodes}", three=np.float32(3).reshape(()), zero=np.float32(0).reshape(()),
                     six=np.float32(6).reshape(()))
    assert quantized(model) == ["x", "a", "y/float"]


def test_inner_tensor_with_another_reader_is_quantized(quantize):
    model = quantize(f"a = {CONV}(x, w) s = Sigmoid(a) b = Mul(a, s) d = Conv(s, v) y = Add(b, d)")
    assert quantized(model) == ["x", "a", "s", "b", "d", "y/float"]


@pytest.mark.parametrize(("nodes", "gives"), [
    ("b = MaxPool <kernel_shape = [2,2]> (a)", "float[N,8,3,3]"),
    ("b = GlobalMaxPool(a)", "float[N,8,1,1]"),
    ("b = Transpose <perm = [0,1,3,2]> (a)", "float[N,8,4,4]"),
    ("b = Pad(a, pads)", "float[N,8,6,4]"),
    ("b = Slice(a, one, two, two)", "float[N,8,1,4]"),
    ("b, other = Split <axis = 2, num_outputs = 2> (a)", "float[N,8,2,4]"),
    ("b = Resize <mode = \"nearest\"> (a, , scales)", "float[N,8,8,8]"),
    ("d = Unsqueeze(a, two) b = Squeeze(d, two)", "float[N,8,4,4]"),
    ("d = DepthToSpace <blocksize = 2> (a) b = SpaceToDepth <blocksize = 2> (d)", "float[N,8,4,4]"),
    ("b, mask = Dropout(a)", "float[N,8,4,4]"),
])
def test_layout_keeps_the_parameters(quantize, nodes, gives):
    model = quantize(f"c1 = {CONV}(x, w) a = Relu(c1) {nodes} y = Conv(b, v)", gives,
                     pads=np.array([0, 0, 1, 0, 0, 0, 1, 0]), one=np.array([1]), two=np.array([2]),
                     scales=np.array([1, 1, 2, 2], np.float32))
    names = quantized(model)
    assert names[0] == "x"
    assert names[-1] == "b"
    assert len({parameters(model, name) for name in names[1:]}) == 1
    assert sum(name.endswith("/scale") for name in constants(model)) == 4  # x, w, a, v


def test_concat_has_a_scale_of_its_own(quantize):
    model = quantize(f"a = {CONV}(x, w) b = Relu(a) d = Concat <axis = 1> (b, x) y = Relu(d)", "float[N,10,4,4]")
    assert quantized(model) == ["x", "b", "d", "y/float"]
    assert len({parameters(model, name) for name in ("x", "b", "d")}) == 3


@pytest.mark.parametrize(("tail", "expected"), [
    ("y = Softmax(g)", ["x", "a", "b"]),
    ("s = LogSoftmax(g) y = Mul(s, s)", ["x", "a", "b"]),
    ("r = Reshape(g, shape) s = Softmax(r) y = Reshape(s, shape)", ["x", "a", "b"]),
    ("r = Relu(g) y = Softmax(r)", ["x", "a", "b", "r"]),
    ("y = Flatten(g)", ["x", "a", "b"]),
])
def test_tail_stays_in_float(quantize, tail, expected):
    model = quantize(f"a = {CONV}(x, w) b = ReduceMean <keepdims = 0> (a, axes) g = MatMul(b, m) {tail}",
                     "float[N,5]", axes=np.array([2, 3]), shape=np.array([-1, 5]))
    assert quantized(model) == expected


def test_host_work_in_the_middle_is_quantized_behind(quantize):
    model = quantize(f"a = {CONV}(x, w) b = Relu(a) d = LRN <size = 3> (b) e = MaxPool <kernel_shape = [1,1]> (d) "
                     "y = Conv(e, v)")
    assert quantized(model) == ["x", "b", "d", "e"]


@pytest.mark.parametrize(("nodes", "expected"), [
    (f"a = Sub(x, two) b = Div(a, two) y = {CONV}(b, w)", ["b"]),
    (f"t = Transpose <perm = [0,1,3,2]> (x) y = {CONV}(t, w)", ["x", "t"]),
    (f"t = Transpose <perm = [0,1,3,2]> (x) b = Mul(t, two) y = {CONV}(b, w)", ["b"]),
    ("y = Mul(x, two)", []),
])
def test_preprocessing_stays_in_float(quantize, nodes, expected):
    assert quantized(quantize(nodes, "float[N,K,4,4]", two=np.float32(2).reshape(()))) == expected


def test_output_keeps_name_and_type(quantize):
    model = quantize(f"a = {CONV}(x, w) y = Relu(a)")
    assert [(item.name, item.type.tensor_type.elem_type) for item in model.graph.output] == [("y", 1)]
    assert [node.output[0] for node in model.graph.node][-3:] == ["y/float", "y/quantized", "y"]


def test_sum_is_written_as_add(quantize):
    model = quantize(f"a = {CONV}(x, w) b = Conv(a, v) y = Sum(a, b)")
    assert "Add" in {node.op_type for node in model.graph.node}
    assert "Sum" not in {node.op_type for node in model.graph.node}


def test_weights_are_symmetric_and_quantized_once(quantize):
    model = quantize(f"a = {CONV}(x, w) b = Conv(a, v) d = Relu(b) y = Conv(d, v)")
    codes = constants(model)
    assert {name for name in codes if name.endswith("/quantized")} == {"w/quantized", "v/quantized"}
    assert codes["w/quantized"].dtype == np.int8
    assert np.abs(codes["w/quantized"].astype(int)).max() == 127
    assert codes["w/zero_point"] == 0
    assert codes["w/scale"] == np.float32(np.abs(W).max() / 127)
    assert "w" not in codes


def test_activations_span_their_range_and_zero(quantize):
    model = quantize(f"y = {CONV}(x, w)", x=np.abs(X) + 1)
    scale, zero_point = parameters(model, "x")
    assert zero_point == -128
    assert np.isclose(scale, (np.abs(X) + 1).max() / 255)


def test_bias_is_in_steps_of_the_products(quantize):
    bias = np.arange(8, dtype=np.float32)
    codes = constants(quantize(f"y = {CONV}(x, w, bias)", bias=bias))
    assert codes["bias/quantized"].dtype == np.int32
    assert codes["bias/scale"] == codes["x/scale"] * codes["w/scale"]
    assert np.allclose(codes["bias/quantized"] * codes["bias/scale"], bias, atol=codes["bias/scale"])


@pytest.mark.parametrize(("nodes", "gives"), [
    (f"y = {CONV}(x, w, bias)", "float[N,8,4,4]"),
    (f"a = {CONV}(x, w) b = GlobalAveragePool(a) d = Flatten(b) y = Gemm <transB = 1, beta = 0.5> (d, n, bias)",
     "float[N,8]"),
])
def test_bias_beyond_int32_stays_in_float(quantize, nodes, gives):
    model = quantize(nodes, gives, bias=np.full(8, 1e7, np.float32), w=W * np.float32(1e-3),
                     n=V.reshape(8, 8) * np.float32(1e-3))
    assert model.graph.node[-1].op_type == "Add"
    assert [*model.graph.node[-1].input] == ["y/unbiased", "bias/float"]
    assert model.graph.node[-1].output == ["y"]


@pytest.mark.parametrize(("x", "w"), [
    (X, 0 * W), (0 * X, W), (X * np.float32(1e-38), W), (X, W * np.float32(1e-44)),
])
def test_scales_are_numbers_above_zero(quantize, x, w):
    model = quantize(f"y = {CONV}(x, w)", x=x, w=w)
    scales = [array for name, array in constants(model).items() if name.endswith("/scale")]
    assert len(scales) == 2
    assert all(np.isfinite(scale) and scale > 0 for scale in scales)


def test_names_stay_and_new_ones_differ(parse):
    model = parse("g (float[N,2,4,4] x) => (float[N,8,2,2] y) { y = Conv(x, w) }", w=W)
    model.graph.node[0].name = "first"
    model.graph.node[0].input[0] = model.graph.input[0].name = "x/quantized"
    result = quantize_int8(model, {"x/quantized": X})
    names = [name for node in result.graph.node for name in node.output]
    assert len({*names, "x/quantized"}) == len(names) + 1
    assert [node.op_type for node in result.graph.node if node.name == "first"] == ["Conv"]


@pytest.mark.parametrize("weight", [
    "w = Identity(k)", "w = Transpose <perm = [3,2,0,1]> (k)", "w = Reshape(k, shape)", "w = Mul(k, k)",
    "w = Constant <value = float[1,1,1,1] {2.0}> ()", "w = DequantizeLinear(q, s)",
])
def test_weights_behind_constant_nodes(parse, weight):
    arrays = {"k": W[:2, :, :2, :2], "shape": np.array([2, 2, 2, 2]), "s": np.float32(0.5).reshape(()),
              "q": np.arange(16, dtype=np.int8).reshape(2, 2, 2, 2)}
    channels = 1 if "Constant" in weight else 2
    x = X[:, :channels]
    model = with_constants(
        parse(f"g (float[N,{channels},4,4] x) => (float[N,K,P,Q] y) {{ {weight} y = Conv(x, w) }}", 13), arrays)
    result = quantize_int8(model, {"x": x})
    assert constants(result)["w/quantized"].dtype == np.int8
    assert [node.op_type for node in result.graph.node] == [
        "QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "Conv"]


def test_old_opset_is_converted(parse):
    model = parse("g (float[1,2,4,4] x, int64[4] shape) => (float[1,8,4,4] y) <int64[4] shape = {8,2,1,1}> { "
                  "w = ConstantOfShape <value = float[1] {0.5}> (shape) y = Conv(x, w) }", 9)
    result = quantize_int8(model, {"x": X})
    assert result.opset_import[0].version == 21
    assert [item.name for item in result.graph.input] == ["x"]
    assert np.allclose(run(result, X), run(model, X), atol=0.1)


def test_upsample_keeps_its_coordinates(parse):
    model = parse("g (float[1,1,4,4] x) => (float[1,1,10,10] y) <float[4] s = {1,1,2.5,2.5}, "
                  "float[1,1,1,1] one = {1}> { u = Upsample(x, s) y = Conv(u, one) }", 9)
    x = X[:, :1]
    assert np.allclose(run(quantize_int8(model, {"x": x}), x), run(model, x), atol=0.02)


def test_quantized_model_is_imported(quantize, check):
    model = quantize(f"a = {CONV}(x, w) b = BatchNormalization(a, p, p, p, p) d = Relu(b) e = Conv(d, v) "
                     "s = Sigmoid(e) f = Mul(e, s) h = Add(f, d) "
                     "i = GlobalAveragePool(h) j = Flatten(i) y = Gemm(j, m)",
                     "float[N,5]", p=C.reshape(-1))
    check(model, x=X, near_ties=2)


def test_progress_counts_samples(parse):
    seen = []
    quantize_int8(parse("g (float[2,2,4,4] x) => (float[2,8,2,2] y) { y = Conv(x, w) }", w=W), {"x": X},
                  progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 4), (4, 4)]


@pytest.mark.parametrize(("given", "message"), [
    ({}, r"calibration needs samples of all inputs, and found none; expected: 'x': float32\[\?, 2, 4, 4\]; some"),
    ({"z": X}, "and found 'z'; expected: 'x'"),
    ({"x": X[:0]}, "calibration has 0 samples; expected: as many of each input, and at least one"),
    ({"x": X[:, :1]}, r"calibration of 'x' is float32\[4, 1, 4, 4\]; expected: float32\[\?, 2, 4, 4\]"),
    ({"x": X[0]}, r"calibration of 'x' is float32\[2, 4, 4\]; expected"),
    ({"x": X.astype(np.float64)}, r"calibration of 'x' is float64\[4, 2, 4, 4\]; expected: float32"),
    ({"x": X * np.float32("nan")}, r"tensor 'x' holds nan for sample 0; supported: finite"),
    ({"x": X * np.float32(1e38)}, r"tensor 'y' holds inf for sample 0; supported: finite"),
])
def test_unfit_calibration_is_refused(parse, given, message):
    model = parse("g (float[N,2,4,4] x) => (float[N,8,2,2] y) { a = Conv(x, w) y = Relu(a) }", w=W)
    with np.errstate(over="ignore"), pytest.raises(CompileError, match=message):
        quantize_int8(model, given)


def test_part_of_a_batch_is_refused(parse):
    model = parse("g (float[3,2,4,4] x) => (float[3,8,2,2] y) { y = Conv(x, w) }", w=W)
    with pytest.raises(CompileError, match=r"takes 3 samples at a time, and calibration has 4; expected"):
        quantize_int8(model, {"x": X})


@pytest.mark.parametrize(("nodes", "opset", "message"), [
    ("y = Conv(x, bad)", 21, r"node '.*' \(Conv\): its constant 'bad' holds nan; supported: finite numbers"),
    ("y = Conv(x, w, many)", 21, r"its constant 'many' holds inf"),
    ("a = Conv(x, w) y = Nope(a)", 9, r"of opset 9 and cannot be converted to opset 13 .*; export it with"),
    ("q = QuantizeLinear(x, s) d = DequantizeLinear(q, s) y = Conv(d, w)", 21,
     r"\(QuantizeLinear\); supported: float models .*; a quantized model needs no calibration"),
    ("k = Expand(s, shape) y = Conv(x, k)", 21, r"\(Expand\): makes a constant of 1099511627776 elements"),
    ("k = ConstantOfShape(shape) y = Conv(x, k)", 21, r"\(ConstantOfShape\): makes a constant of the shape"),
    ("a = Reshape(x, shape) b = Relu(a) y = Conv(b, w)", 21, r"^onnxruntime cannot run the model \("),
])
def test_model_that_does_not_fit_is_refused(parse, nodes, opset, message):
    arrays = {"w": W, "bad": W * np.float32("nan"), "many": np.full(8, np.inf, np.float32),
              "s": np.float32(1).reshape(()), "shape": np.array([1 << 20, 1 << 20])}
    model = with_constants(
        parse(f"g (float[N,2,4,4] x) => (float[N,8,2,2] y) {{ {nodes} }}", opset), arrays)
    with pytest.raises(CompileError, match=message):
        quantize_int8(model, {"x": X})


def test_other_reals_than_float32_are_refused(parse):
    model = parse("g (float16[N,2,4,4] x) => (float16[N,8,2,2] y) { y = Conv(x, w) }", w=W.astype(np.float16))
    with pytest.raises(CompileError, match=r"\(Conv\) reads 'w', which is of float16; supported: models"):
        quantize_int8(model, {"x": X.astype(np.float16)})
