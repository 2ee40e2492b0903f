"""Models that are not valid, files that are damaged, images of three dimensions: refused, never a traceback."""

import contextlib
import warnings

import numpy as np
import onnx
import pytest

from almac.compiler.build import build
from almac.compiler.graph import CompileError
from almac.hdl.config import ArrayConfig


def compile_model(model):
    return build(model, ArrayConfig(lanes=16, rows=16))


NET = """g (float[N,1,4,4] x) => (int8[N,1,2,2] y)
    <float s = {1}, int8 z = {0}, int8[1,1,3,3] w = {1,0,-1,1,1,0,-1,0,1}, float one = {1}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    v = DequantizeLinear(w, one)
    a = Conv(d, v)
    codes = QuantizeLinear(a, s, z)
    real = DequantizeLinear(codes, s, z)
    negated = Neg(real)
    y = QuantizeLinear(negated, s, z) }"""


@pytest.mark.parametrize("node", [
    "GlobalAveragePool(d)", "MaxPool <kernel_shape = [2,2,2]> (d)", "Conv(d, v)"])
def test_images_of_three_dimensions_are_refused(parse, node):
    model = parse(f"""g (int8[N,2,2,3,3] x) => (float[N,2,1,1,1] y)
        <float s = {{1}}, int8[1,2,1,1,1] w = {{1,1}}, int64[3] axes = {{2,3,4}}> {{
        d = DequantizeLinear(x, s)
        v = DequantizeLinear(w, s)
        y = {node} }}""")
    with pytest.raises(CompileError, match=r"\(2, 2, 3, 3\); supported: 1-D and 2-D"):
        compile_model(model)


@pytest.mark.parametrize("kind", ["STRING", "BOOL", "DOUBLE", "INT64"])
def test_type_of_an_input(parse, kind):
    model = parse(NET)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DataType.Value(kind)
    with pytest.raises(CompileError, match=r"\(QuantizeLinear, .*quantizes a tensor of .*; supported: float32, "):
        compile_model(model)


def repeat_node(graph):
    graph.node.append(graph.node[-1])


def repeat_input(graph):
    graph.input.append(graph.input[0])


def repeat_output(graph):
    graph.output.append(graph.output[0])


def drop_output(graph):
    del graph.node[-1].output[:]


def unknown_attribute(graph):
    graph.node[-1].attribute.append(onnx.helper.make_attribute("strides", [1, 1]))


def wrong_attribute(graph):
    graph.node[3].attribute.append(onnx.helper.make_attribute("strides", "two"))


@pytest.mark.parametrize(("damage", "message"), [
    (repeat_node, "the model is not valid: 'y' is made more than once"),
    (repeat_input, "the model is not valid: 'x' is made more than once"),
    (repeat_output, "the model is not valid: 'y' is listed as an output more than once"),
    (drop_output, r"node 'QuantizeLinear_7' \(QuantizeLinear\) has no output"),
    (unknown_attribute, r"node .* \(QuantizeLinear\): the attribute strides does not exist in opset 21"),
    (wrong_attribute, r"node 'Conv_3' \(Conv\): the attribute strides is not of the type INTS"),
])
def test_model_that_is_not_valid(parse, damage, message):
    model = parse(NET)
    damage(model.graph)
    with pytest.raises(CompileError, match=f"^{message}$"):
        compile_model(model)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_file_is_never_a_traceback(parse, tmp_path, seed):
    rng = np.random.default_rng(seed)
    whole = parse(NET).SerializeToString()
    path = tmp_path / "damaged.onnx"
    for _ in range(500):
        data = bytearray(whole)
        data[rng.integers(len(data))] = rng.integers(256)
        position = int(rng.integers(len(data)))
        del data[position:position + int(rng.integers(3))]
        path.write_bytes(data)
        with contextlib.suppress(CompileError), warnings.catch_warnings(action="ignore"):
            compile_model(path)


@pytest.mark.parametrize("scales", ["1e30", "1e-30"])
def test_sum_of_a_scale_beyond_the_multiplier(parse, scales):
    model = parse(f"""g (int8[N,1] a, int8[N,1] b) => (int8[N,1] y)
        <float s = {{1e10}}, float t = {{{scales}}}, float u = {{1e-10}}, int8 z = {{0}}> {{
        da = DequantizeLinear(a, s)
        db = DequantizeLinear(b, t)
        c = Add(da, db)
        codes = QuantizeLinear(c, u, z)
        real = DequantizeLinear(codes, u, z)
        negated = Neg(real)
        y = QuantizeLinear(negated, u, z) }}""")
    with pytest.raises(CompileError, match=r"\(QuantizeLinear, .*scale must be below 2\*\*24"):
        compile_model(model)


@pytest.mark.parametrize("node", [
    "InstanceNormalization(d, one, one)", "Slice(d, none, none)", "Pad(d, none)", "ConvInteger(q, w)",
    "Nonsense(d)", "QLinearMatMul(q, s, z, w, s, z, s, z)", "Conv(d, one)", "MatMul(d, d)"])
def test_operator_that_is_not_there_is_named(parse, node):
    model = parse(f"""g (float[N,4,4,4] x) => (float[N,4,4,4] y)
        <float s = {{1}}, int8 z = {{0}}, int8[4,4,1,1] w = {{{", ".join(["1"] * 16)}}}, float[0] none = {{}},
         float[4] one = {{1,1,1,1}}> {{
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, s)
        y = {node} }}""")
    op = node.split("(")[0].split()[0]
    with pytest.raises(CompileError, match=rf"^1 node is not (supported|valid).*:\nnode '{op}_3' \(.*, opset 21, "):
        compile_model(model)


def test_scale_that_is_text(parse):
    model = parse(NET.replace("float s = {1}", "float r = {1}"))
    model.graph.initializer.append(onnx.helper.make_tensor("s", onnx.TensorProto.STRING, [1], [b"one"]))
    with pytest.raises(CompileError, match=r"\(QuantizeLinear, .*its scale is not a constant number"):
        compile_model(model)
