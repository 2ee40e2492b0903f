"""The list of cases: files and commands, what is refused, sizes of memories, fixed batches."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest

import almac
from almac.compiler.build import build
from almac.compiler.importer import import_model
from almac.hdl.config import ArrayConfig
from almac.report import report
from almac.verify import verify


def codes(seed, shape, dtype=np.int8):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def test_u01_command_names_all_and_leaves_nothing(parse, tmp_path):
    model = parse("""g (float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] w = {1}> {
        a = Conv(x, w)
        b = Sigmoid(a)
        c = Conv(b, w)
        y = Erf(c) }""")
    for node, name in zip(model.graph.node, ("c0", "sg0", "c1", "e0"), strict=True):
        node.name = name
    onnx.save(model, tmp_path / "model.onnx")
    command = [sys.executable, "-m", "almac", "compile", tmp_path / "model.onnx", "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr + done.stdout
    text = " ".join(done.stderr.split())
    assert text.count("almac:") == 1
    for part in ("'sg0' (Sigmoid, opset 21, [1, 1, 4, 4] to", "'e0' (Erf, opset 21, [1, 1, 4, 4] to", "uantize"):
        assert part in text
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


WEIGHTS = np.random.default_rng(0).integers(-1, 2, (10, 100)).astype(np.int8)


def test_u50_two_bits_a_weight(parse):
    """1000 ternary weights take 250 bytes, and what fills the last words, however they are written."""
    text = """g (int8[N,100] x) => (float[N,10] y)
        <float s = {0.5}, int8 z = {0}, int8 low = {-1}, int8 high = {1}> {
        d = DequantizeLinear(x, s, z)
        NODES
        y = Gemm <transB = 1> (d, v) }"""
    qcdq = "q = QuantizeLinear(w, s, z) c = Clip(q, low, high) v = DequantizeLinear(c, s, z)"
    clipped = parse(text.replace("NODES", qcdq), 25, w=WEIGHTS * np.float32(0.5))
    narrow = parse(text.replace("NODES", "v = DequantizeLinear(w, s)"), 25, w=WEIGHTS.astype(ml_dtypes.int2))
    programs = [build(model, ArrayConfig(lanes=20, rows=10)).program for model in (clipped, narrow)]
    assert len({program.digest for program in programs}) == 1
    for program in programs:
        assert report(program)["weight_bytes"] == program.weight_bytes == 250
    # Lanes without a weight are the only filling.
    padded = build(narrow, ArrayConfig(lanes=16, rows=16)).program
    assert padded.weight_bytes == 16 * -(-100 // 16) * 16 // 4


@pytest.mark.parametrize(("shape", "axis", "block", "scales"), [
    ((4, 8, 3, 3), 1, 4, (4, 2, 3, 3)), ((3, 6, 1, 1), 1, 2, (3, 3, 1, 1)), ((2, 5, 1, 1), 1, 3, (2, 2, 1, 1))])
def test_u51_blocks_of_input_channels(parse, check, shape, axis, block, scales):
    numbers = np.exp2(np.random.default_rng(1).integers(-2, 2, scales[:2])).astype(np.float32)
    model = parse(f"""g (int8[N,{shape[1]},4,4] x) => (int8[N,{shape[0]},A,B] y)
        <float s = {{0.5}}, float t = {{64}}, int8 z = {{-9}}, int8 zy = {{0}}> {{
        d = DequantizeLinear(x, s, z)
        v = DequantizeLinear <axis = {axis}, block_size = {block}> (w, ws)
        a = Conv(d, v)
        y = QuantizeLinear(a, t, zy) }}""", w=codes(0, shape) // 16,
        ws=np.broadcast_to(numbers[..., None, None], scales).copy())
    x = codes(2, (3, shape[1], 4, 4))
    check(model, x=x)
    compiled = build(model, ArrayConfig(lanes=8, rows=8))
    assert verify(compiled, model, {"x": x}, "program").equal


def test_u51_blocks_of_another_axis_are_named(parse):
    model = parse("""g (int8[N,4] x) => (float[N,2] y) <float one = {1}, int8[2,4] w = {1,2,3,4,5,6,7,8},
        float[1,4] s = {1,2,4,8}> {
        d = DequantizeLinear(x, one)
        v = DequantizeLinear <axis = 0, block_size = 2> (w, s)
        y = Gemm <transB = 1> (d, v) }""")
    with pytest.raises(almac.CompileError, match=r"\(Gemm, .*blocks of axis 0"):
        almac.compile(model)


def test_u89_external_data_in_a_folder(parse, check, tmp_path):
    model = parse("""g (int8[N,8] x) => (float[N,8] y) <float s = {0.5}> {
        d = DequantizeLinear(x, s)
        v = DequantizeLinear(w, s)
        y = MatMul(d, v) }""", w=codes(0, (8, 8)))
    (tmp_path / "data").mkdir()
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="data/weights.bin", size_threshold=0)
    assert (tmp_path / "data" / "weights.bin").stat().st_size >= 64
    # Saving has moved the data out of the model in memory.
    onnx.load_external_data_for_model(model, str(tmp_path))
    assert almac.compile(path).digest == almac.compile(model).digest
    check(path, x=codes(1, (3, 8)))


FIXED = [
    "f = Reshape(d, flat) r = Relu(f)", "a = Expand(d, wide) r = Relu(a)", "a = Tile(d, times) r = Relu(a)",
    "a = Slice(d, from, to, axes) r = Relu(a)", "f = Flatten(d) r = Relu(f)", "r = Relu(d)",
    "a = Expand(d, last) r = Relu(a)",
    'r = Resize <mode = "nearest"> (d, , , sizes)',
    "h = Shape(d) k = Gather(h, first) m = Concat <axis = 0> (k, minus) r = Reshape(d, m)"]


@pytest.mark.parametrize("nodes", FIXED)
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_u24_shapes_that_name_the_batch(parse, check, nodes, batch):
    """A model of a fixed batch is one image, repeated."""
    model = parse(f"""g (int8[{batch},3,1,2] x) => (int8[{batch},B,C,D] y) <float s = {{0.5}}, int8 z = {{0}},
        int64[2] flat = {{{batch},6}}, int64[4] wide = {{{batch},3,2,2}}, int64[4] times = {{1,1,2,1}},
        int64[2] from = {{0,1}}, int64[2] to = {{{batch},3}}, int64[2] axes = {{0,1}}, int64[1] first = {{0}},
        int64[1] last = {{2}}, int64[4] sizes = {{{batch},3,2,4}}, int64[1] minus = {{-1}}> {{
        d = DequantizeLinear(x, s, z)
        {nodes}
        y = QuantizeLinear(r, s, z) }}""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for count in {batch, 2 * batch}:
        check(model, x=codes(0, (count, 3, 1, 2)))


def test_e8_outputs_without_a_shape(parse, check):
    model = parse("""g (int8[N,2] x) => (float[N,2] y) <float s = {0.5}> {
        d = DequantizeLinear(x, s)
        y = Relu(d) }""")
    del model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name="y"))
    check(model, [0, 1.5], x=np.int8([[-3, 3]]))


@pytest.mark.parametrize("node", ["Conv", "MaxPool", "AveragePool"])
def test_e8_pads_below_zero_are_named(parse, node):
    weights = ", v" if node == "Conv" else ""
    model = parse(f"""g (int8[N,1,4] x) => (float[N,1,A] y) <float s = {{0.5}}, int8[1,1,2] w = {{1,1}}> {{
        d = DequantizeLinear(x, s)
        v = DequantizeLinear(w, s)
        y = {node} <kernel_shape = [2], pads = [-1,0]> (d{weights}) }}""")
    with pytest.raises(almac.CompileError, match=rf"\({node}, .*pads = \[-1, 0\]; supported: none below zero"):
        almac.compile(model)


@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_e1_quantizers_before_opset_19(parse, check, opset, kind):
    model = parse(f"""g (float[N,6] x) => (float[N,6] y) <float s = {{0.5}}, {kind} z = {{10}}> {{
        q = QuantizeLinear <axis = 0> (x, s, z)
        y = DequantizeLinear <axis = 0> (q, s, z) }}""", opset)
    check(model, x=np.random.default_rng(0).normal(0, 40, (8, 6)).astype(np.float32))


@pytest.mark.parametrize(("kind", "opset", "low"), [
    ("int2", 25, -2), ("uint2", 25, 0), ("int4", 21, -8), ("uint4", 25, 0)])
def test_e2_narrow_weights_and_activations(parse, check, kind, opset, low):
    bits = int(kind[-1])
    values = np.arange(low, low + 2 ** bits)
    dtype = getattr(ml_dtypes, kind)
    model = parse(f"""g (float[N,{len(values)}] x) => (float[N,1] y) <float s = {{0.5}}> {{
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, s, z)
        y = MatMul(d, v) }}""", opset, w=values.reshape(-1, 1).astype(dtype), z=np.array(low + 1).astype(dtype))
    x = np.random.default_rng(0).normal(0, 4, (9, len(values))).astype(np.float32)
    x = np.concatenate([np.eye(len(values), dtype=np.float32), x])
    check(model, x=x)
    compiled = build(model, ArrayConfig(lanes=8, rows=8))
    assert verify(compiled, model, {"x": x}, "program").equal


def test_e10_quantizers_divide(parse, check):
    """At 34 of 256 ties a reciprocal would give another code for a scale of 0.3."""
    scale = np.float32(0.3)
    ties = ((np.arange(-128, 128) + np.float32(0.5)) * scale).astype(np.float32)
    model = parse("""g (float[N,256] x) => (int8[N,256] y) <int8 z = {0}> { y = QuantizeLinear(x, s, z) }""",
                  s=np.array(scale))
    got = check(model, x=ties[None])
    reciprocal = np.clip(np.rint(ties * (np.float32(1) / scale)), -128, 127)
    assert (got != reciprocal).sum() > 10


def test_u36_inputs_keep_their_names_and_order(parse):
    model = parse("""g (int8[N,2] b, float[N,2] a, uint8[N,2] unused) => (float[N,2] z, int8[N,2] y)
        <float s = {0.5}, int8 o = {0}> {
        d = DequantizeLinear(b, s)
        q = QuantizeLinear(a, s, o)
        e = DequantizeLinear(q, s, o)
        c = Add(d, e)
        y = QuantizeLinear(c, s, o)
        z = Relu(e) }""")
    graph = import_model(model)
    assert graph.inputs == ("b", "a")
    assert graph.outputs == ("z", "y")
