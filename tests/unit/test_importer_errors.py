"""Refusals: what is wrong, where, and what to do; never a traceback."""

import re

import numpy as np
import onnx
import pytest

from almac.compiler.build import build
from almac.compiler.graph import CompileError
from almac.hdl.config import ArrayConfig


def compile_model(model):
    return build(model, ArrayConfig(lanes=16, rows=16))


#: Behind the nodes in question there is a layer: what the array cannot do cannot be left to the host.
NET = """g (float[{batch},1,4,4] x) => (int8[{batch},1,{out}] y)
    <float s = {{{scale}}}, int8 z = {{0}}, int8[1,1,3,3] w = {{1,0,-1,1,1,0,-1,0,1}}, float one = {{1}},
     float[1,1,3,3] f = {{1,0,-1,1,1,0,-1,0,1}}, int64[2] shape = {{4,-1}}, float[3] many = {{1,2,3}},
     float[4] row = {{1,2,3,4}}> {{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    v = DequantizeLinear(w, one)
    {nodes}
    codes = QuantizeLinear(a, s, z)
    real = DequantizeLinear(codes, s, z)
    negated = Neg(real)
    y = QuantizeLinear(negated, s, z) }}"""


def text(nodes="a = Conv(d, v)", *, batch="N", scale=1.0, out="2,2"):
    return NET.format(nodes=nodes, batch=batch, scale=scale, out=out)


@pytest.mark.parametrize(("nodes", "message"), [
    ("a = Conv(d, f)", r"\(Conv, opset 21, \[1, 1, 4, 4\] to \[1, 1, 2, 2\]\): its weights are not quantized"),
    ("a = Conv <auto_pad = \"OTHER\"> (d, v)", r"auto_pad = 'OTHER'; supported: NOTSET, VALID"),
    ("a = Conv <pads = [-1,0,0,0]> (d, v)", r"pads = \[-1, 0, 0, 0\]; supported: none below zero"),
    ("a = Conv <dilations = [4,4]> (d, v)", "its window of 9 is larger than its padded input of 4"),
    ("a = Conv <group = 2> (d, v)", "its input has 1 channels, its weights 1 for each of 2 groups"),
    ("c = Conv(d, v) a = Sigmoid(c)", r"\(Sigmoid, .*reads a tensor that is not quantized; supported here: Relu"),
    ("c = Conv(d, v) r = Relu(c) a = Add(r, one)", r"\(Add, .*computes on what Relu or Clip has limited"),
    ("c = Conv(d, v) a = Conv(c, v)", r"\(Conv, .*reads a tensor that is not quantized"),
    ("c = Conv(d, v, many) a = Relu(c)", "its bias has 3 elements for 1 output channels, or"),
    ("a = Conv(q, v)", r"\(Conv, .*computes on codes; put DequantizeLinear before it"),
    ("a = Softmax(d)", r"\(Softmax, .*belongs on the host; cut the model before it; the host computes only before"),
    ("a = Reshape(d, shape)", r"makes \[4, 4\] of \[1, 1, 4, 4\]; supported: shapes that keep the batch first"),
    ("a = Transpose <perm = [1,0,2,3]> (d)", r"perm = \[1, 0, 2, 3\]; supported: orders that keep the batch"),
    ("a = Flatten <axis = 2> (d)", "axis = 2; supported: 1"),
    ("a = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1]> (d)", "averages over windows of different sizes"),
    ("a = MaxPool(d)", r"kernel_shape = \[\] for an input of the shape \(1, 4, 4\); supported: 1-D and 2-D"),
    ("a = Conv <pads = [1,1]> (d, v)", r"pads = \[1, 1\]; supported: two numbers for each of 2 axes"),
    ("a = Conv <strides = [0,1]> (d, v)", r"strides = \[0, 1\]; supported: one number above zero"),
    ("a = Mul(d, row)", r"\(Mul, .*its constant holds more than one number; supported on a tensor"),
    ("m = Relu(d) a = Mul(m, q)", r"\(Mul, .*Mul of two tensors; supported: Add, Sub and Mul of two that are"),
    ("a = Log(d)", r"\(QuantizeLinear, .*is not a number for every code; limit its input"),
    ("h = QuantizeLinear(d, many, z) a = DequantizeLinear(h, many, z)", "activations with a scale per channel"),
    ("a = Add(d, x)", r"\(Add, .*computes on a tensor that is not quantized; quantize"),
])
def test_refused_node_is_named(parse, nodes, message):
    with pytest.raises(CompileError, match=message) as error:
        compile_model(parse(text(nodes)))
    assert re.match(r"\d+ nodes? (is|are) not (supported|valid).*:\nnode '", str(error.value))


@pytest.mark.parametrize(("scale", "shown"), [("0.0", "0.0"), ("-1.0", "-1.0")])
def test_scale_must_be_positive(parse, scale, shown):
    with pytest.raises(CompileError, match=rf"its scale is \[{shown}\]; scales must be finite and greater"):
        compile_model(parse(text(scale=scale)))


@pytest.mark.parametrize("scale", [np.nan, np.inf])
def test_scale_must_be_finite(parse, scale):
    model = parse(text())
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "s")
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(scale, np.float32), "s"))
    with pytest.raises(CompileError, match=rf"its scale is \[{scale}\]; scales must be finite"):
        compile_model(model)


@pytest.mark.parametrize("dimension", [2, 3])
def test_sizes_other_than_the_batch_are_fixed(parse, dimension):
    model = parse(text())
    model.graph.input[0].type.tensor_type.shape.dim[dimension].dim_param = "size"
    with pytest.raises(CompileError, match=r"^input 'x' has the shape \[\?, 1, .*\?.*\]; supported: a batch "):
        compile_model(model)


def test_missing_file(tmp_path):
    with pytest.raises(CompileError, match=r"nothing\.onnx does not exist$"):
        compile_model(tmp_path / "nothing.onnx")
    with pytest.raises(CompileError, match=r" is not a file$"):
        compile_model(tmp_path)


@pytest.mark.parametrize("size", [1, 100, -10])
def test_truncated_file(parse, tmp_path, size):
    path = tmp_path / "cut.onnx"
    path.write_bytes(parse(text()).SerializeToString()[:size])
    with pytest.raises(CompileError, match=rf"^{re.escape(str(path))} (is not a whole ONNX file|holds no ONNX)"):
        compile_model(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip", b"{}", b"\x00" * 64])
def test_not_an_onnx_file(tmp_path, content):
    path = tmp_path / "other.onnx"
    path.write_bytes(content)
    with pytest.raises(CompileError, match=r"other\.onnx (is not a whole ONNX file|holds no ONNX graph)"):
        compile_model(path)


def test_cycle(parse):
    model = parse(text("c = Conv(d, v) a = Relu(c)"))
    conv = next(node for node in model.graph.node if node.op_type == "Conv")
    conv.input[0] = "a"
    with pytest.raises(CompileError, match=r"^node '.*' \(Conv\) reads a, which nothing makes, or which depends"):
        compile_model(model)


def test_dangling_input(parse):
    with pytest.raises(CompileError, match=r"\(Conv\) reads lost, which nothing makes"):
        compile_model(parse(text("a = Conv(lost, v)")))


def test_initializer_without_data(parse):
    model = parse(text())
    next(tensor for tensor in model.graph.initializer if tensor.name == "w").ClearField("int32_data")
    with pytest.raises(CompileError, match=r"^initializer 'w' cannot be read \("):
        compile_model(model)


def test_external_data_that_is_missing(parse, tmp_path):
    model = parse(text(), big=np.zeros(2000, np.float32))
    path = tmp_path / "split.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=100)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(CompileError, match=r"split\.onnx is not a whole ONNX file \(.*weights\.bin"):
        compile_model(path)


def test_foreign_domain_is_named(parse):
    model = parse(text("c = Conv(d, v) a = Relu(c)"))
    node = next(node for node in model.graph.node if node.op_type == "Relu")
    node.op_type, node.domain = "MultiThreshold", "qonnx.custom_op.general"
    model.opset_import.append(onnx.helper.make_opsetid("qonnx.custom_op.general", 1))
    with pytest.raises(CompileError, match=r"\(qonnx\.custom_op\.general\.MultiThreshold, .*threshold"):
        compile_model(model)


def test_scales_of_a_sum_may_not_be_too_far_apart(parse):
    model = parse("""g (int8[N,1] a, int8[N,1] b) => (int8[N,1] y) <float s = {1}, float t = {1e-6}, int8 z = {0}> {
        da = DequantizeLinear(a, s)
        db = DequantizeLinear(b, t)
        c = Add(da, db)
        codes = QuantizeLinear(c, s, z)
        real = DequantizeLinear(codes, s, z)
        negated = Neg(real)
        y = QuantizeLinear(negated, s, z) }""")
    with pytest.raises(CompileError, match=r"adds tensors whose scales differ 2\*\*\d+ times; supported: up to"):
        compile_model(model)


def test_scale_beyond_the_multiplier(parse):
    model = parse(text("c = Conv(d, v) a = Relu(c)").replace("float one = {1}", "float one = {1e30}"))
    with pytest.raises(CompileError, match=r"\(QuantizeLinear, .*scale must be below 2\*\*24"):
        compile_model(model)
