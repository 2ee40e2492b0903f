"""The list of cases: channels last, joins, moves, transposed convolutions, tails on the host."""

import numpy as np
import pytest

from almac.compiler.build import build
from almac.compiler.graph import CompileError, Host
from almac.compiler.importer import import_model
from almac.hdl.config import ArrayConfig
from almac.report import report
from almac.sim.golden import evaluate
from almac.sim.oracle import oracle_tensors
from almac.verify import verify


def codes(seed, shape, dtype=np.int8):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def agree(model, lanes=8, rows=8, **x):
    """What the array computes, against golden and onnxruntime; the program."""
    compiled = build(model, ArrayConfig(lanes=lanes, rows=rows))
    result = verify(compiled, model, x, "program")
    assert result.first_difference is None
    assert result.equal
    return compiled.program


def between(node, shape, *, kind="int8", zero=0, more="", weights="8,8,1,1"):
    """Text of a model of two convolutions, and a node from ``e`` to ``r`` in between."""
    return f"""g ({kind}[N,{shape}] x) => ({kind}[A,B,C,D] y)
        <float s = {{0.5}}, float t = {{8}}, {kind} z = {{{zero}}}{more}> {{
        d = DequantizeLinear(x, s, z)
        v = DequantizeLinear(w, s)
        c = Conv(d, v)
        q = QuantizeLinear(c, t, z)
        e = DequantizeLinear(q, t, z)
        {node}
        p = QuantizeLinear(r, t, z)
        f = DequantizeLinear(p, t, z)
        u = DequantizeLinear(w2, s)
        b = Conv(f, u)
        y = QuantizeLinear(b, t, z) }}"""


def test_u14_numbers_of_the_case(parse, check):
    model = parse("""g (int8[N,2,2,2] x) => (float[N,1] y)
        <float one = {1}, float[1,4] ws = {1,10,1,20}, int8[1,8] w = {1,10,10,100,2,20,10,100}> {
        d = DequantizeLinear(x, one)
        f = Flatten <axis = 1> (d)
        v = DequantizeLinear <axis = 1, block_size = 2> (w, ws)
        y = Gemm <transB = 1> (f, v) }""")
    check(model, [18518], x=np.arange(8, dtype=np.int8).reshape(1, 2, 2, 2))


@pytest.mark.parametrize(("kind", "zero"), [("float", 3), ("uint8", 128), ("int8", -128)])
@pytest.mark.parametrize("shape", [(2, 3), (1, 5), (4, 1)])
@pytest.mark.parametrize("back", [False, True])
def test_u14_channels_last(parse, check, kind, zero, shape, back):
    """Inputs and outputs of an exporter with the channels last, whatever their type."""
    height, width = shape
    dtype = "int8" if kind == "float" else kind
    quantize = "q = QuantizeLinear(t, s, z) d = DequantizeLinear(q, s, z)" if kind == "float" else (
        "d = DequantizeLinear(t, s, z)")
    end = ("o = DequantizeLinear(p, s2, z) y = Transpose <perm = [0,2,3,1]> (o)" if back else
           "o = DequantizeLinear(p, s2, z) f = Flatten(o) v = DequantizeLinear(w2, s) y = MatMul(f, v)")
    model = parse(f"""g ({kind}[N,{height},{width},3] x) => (float[N,{"A,B,C" if back else "K"}] y)
        <float s = {{0.5}}, float s2 = {{16}}, {dtype} z = {{{zero}}}> {{
        t = Transpose <perm = [0,3,1,2]> (x)
        {quantize}
        u = DequantizeLinear(w, s)
        c = Conv <pads = [1,1,1,1]> (d, u)
        p = QuantizeLinear(c, s2, z)
        {end} }}""", w=codes(0, (4, 3, 3, 3)), w2=codes(1, (4 * height * width, 2)))
    x = np.random.default_rng(2).normal(0, 30, (3, height, width, 3)).astype(np.float32)
    x = x if kind == "float" else codes(2, x.shape, np.dtype(kind))
    check(model, x=x)
    agree(model, x=x)


def test_u24_two_inputs_with_fixed_batches(parse, check):
    text = """g (int8[4,2] a, int8[4,2] b) => (float[4,2] y) <float one = {1}, int8 z = {0}> {
        d = DequantizeLinear(a, one, z)
        e = DequantizeLinear(b, one, z)
        c = Add(d, e)
        q = QuantizeLinear(c, one, z)
        y = DequantizeLinear(q, one, z) }"""
    for count in (1, 3, 4, 6):
        a, b = (np.arange(2 * count, dtype=np.int8).reshape(count, 2) * k for k in (1, 2))
        for batch in ("4", "N"):
            check(parse(text.replace("[4,", f"[{batch},")), a * 3, a=a, b=b)


def test_u25_images_of_a_batch_are_apart(parse):
    model = parse(between("r = Relu(e)", "8,2,2"), w=codes(0, (8, 8, 1, 1)), w2=codes(1, (8, 8, 1, 1)))
    a, b = codes(2, (2, 1, 8, 2, 2))
    graph = import_model(model)
    both, turned = (evaluate(graph, {"x": np.concatenate(pair)})["y"] for pair in ((a, b), (b, a)))
    assert both[1].tolist() == turned[0].tolist()
    assert both[0].tolist() == turned[1].tolist()
    assert both[0].tolist() != both[1].tolist()


def test_u35_concat_of_two_scales(parse, check):
    model = parse("""g (int8[N,2] a, int8[N,2] b) => (int8[N,4] y)
        <float half = {0.5}, float tenth = {0.1}, int8 z = {0}> {
        d = DequantizeLinear(a, half, z)
        e = DequantizeLinear(b, tenth, z)
        c = Concat <axis = 1> (d, e)
        y = QuantizeLinear(c, half, z) }""")
    check(model, [10, -4, 20, -3], a=np.int8([[10, -4]]), b=np.int8([[100, -13]]))


@pytest.mark.parametrize("axis", [1, -3, 2, -1])
@pytest.mark.parametrize("kinds", [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_u35_any_concat(parse, check, axis, kinds):
    first, second = kinds
    model = parse(f"""g ({first}[N,4,3,2] a, {second}[N,4,3,2] b) => ({first}[N,A,B,C] y)
        <float sa = {{0.5}}, float sb = {{0.3}}, float sy = {{0.7}}, {first} za = {{100}}, {second} zb = {{7}}> {{
        d = DequantizeLinear(a, sa, za)
        e = DequantizeLinear(b, sb, zb)
        c = Concat <axis = {axis}> (d, e, d)
        y = QuantizeLinear(c, sy, za) }}""")
    inputs = {"a": codes(0, (3, 4, 3, 2), np.dtype(first)), "b": codes(1, (3, 4, 3, 2), np.dtype(second))}
    check(model, **inputs, near_ties=4)
    if axis in (1, -3):
        agree(model, **inputs)
    else:
        with pytest.raises(CompileError, match="joins axis"):
            build(model, ArrayConfig())


def test_u35_channels_that_do_not_begin_a_word(parse, check):
    model = parse(between("h = Relu(e) r = Concat <axis = 1> (e, h)", "3,2,2"), w=codes(0, (3, 3, 1, 1)),
                  w2=codes(1, (2, 6, 1, 1)))
    x = codes(2, (3, 3, 2, 2))
    check(model, x=x)
    with pytest.raises(CompileError, match=r"\(Concat, .*its parts begin at the channels \[3\]; supported on this"):
        build(model, ArrayConfig(lanes=8, rows=8))


MOVES = [
    ("h1, h2 = Split <axis = 1> (e, parts) r = Concat <axis = 1> (h2, h1)", ", int64[2] parts = {4,4}", 8),
    ("r = Slice(e, from, to, channels)", ", int64[1] from = {2}, int64[1] to = {7}, int64[1] channels = {1}", 5),
    ("r = Slice(e, from, to, axes, steps)",
     ", int64[2] from = {1,0}, int64[2] to = {4,5}, int64[2] axes = {2,3}, int64[2] steps = {1,2}", 8),
    ("r = Pad(e, pads)", ", int64[8] pads = {0,0,1,2,0,0,0,1}", 8),
    ("r = Pad(e, pads, filling)", ", int64[8] pads = {0,0,0,1,0,0,1,0}, float filling = {16}", 8),
    ("r = Pad(e, pads)", ", int64[8] pads = {0,0,-1,0,0,0,0,-2}", 8),
    ("g1 = Reshape(e, wide) g2 = Transpose <perm = [0,2,1,3,4]> (g1) r = Reshape(g2, back)",
     ", int64[5] wide = {-1,2,4,4,5}, int64[4] back = {-1,8,4,5}", 8),
    ("r = Gather <axis = 1> (e, picked)", ", int64[6] picked = {7,0,0,-1,3,2}", 6),
    ("r = Identity(e)", "", 8),
]


@pytest.mark.parametrize(("node", "more", "channels"), MOVES)
@pytest.mark.parametrize(("kind", "zero"), [("int8", 0), ("uint8", 200), ("int8", -128)])
def test_u35_moves_between_layers(parse, check, node, more, channels, kind, zero):
    model = parse(between(node, "8,4,5", kind=kind, zero=zero, more=more), w=codes(0, (8, 8, 1, 1)),
                  w2=codes(1, (8, channels, 1, 1)))
    x = codes(2, (3, 8, 4, 5), np.dtype(kind))
    check(model, x=x)
    agree(model, x=x)


@pytest.mark.parametrize(("mode", "nearest", "sizes", "expected"), [
    ("asymmetric", "floor", "2", [1, 1, 2, 2] * 2 + [3, 3, 4, 4] * 2),
    ("half_pixel", "round_prefer_floor", "3", [1, 1, 2, 1, 1, 2, 3, 3, 4]),
    ("half_pixel", "ceil", "3", [1, 2, 2, 3, 4, 4, 3, 4, 4])])
@pytest.mark.parametrize("opset", [11, 13, 18, 19, 25])
def test_u59_nearest(parse, check, mode, nearest, sizes, expected, opset):
    roi = "" if opset >= 13 else "roi"
    last = f"{roi}, scales" if sizes == "2" else f"{roi}, {'' if opset >= 13 else 'none'}, sizes"
    model = parse(f"""g (int8[N,1,2,2] x) => (int8[N,1,A,B] y)
        <float s = {{1}}, int8 z = {{0}}, float[4] scales = {{1,1,2,2}}, int64[4] sizes = {{1,1,3,3}}> {{
        d = DequantizeLinear(x, s, z)
        r = Resize <mode = "nearest", coordinate_transformation_mode = "{mode}", nearest_mode = "{nearest}">
            (d, {last})
        y = QuantizeLinear(r, s, z) }}""", opset, roi=np.zeros(0, np.float32), none=np.zeros(0, np.float32))
    check(model, expected, x=np.int8([1, 2, 3, 4]).reshape(1, 1, 2, 2))


def test_u59_other_modes_are_named(parse, check):
    node = 'r = Resize <mode = "linear"> (e, , scales)'
    model = parse(between(node, "8,2,2", more=", float[4] scales = {1,1,2,2}"), w=codes(0, (8, 8, 1, 1)),
                  w2=codes(1, (8, 8, 1, 1)))
    with pytest.raises(CompileError, match=r"\(Resize, .*mode = linear; supported: nearest"):
        build(model, ArrayConfig())
    check(model, x=codes(2, (2, 8, 2, 2)), near_ties=2)


def test_u64_tail_on_the_host(parse, check):
    model = parse("""g (float[N,6] x) => (float[N,5] y) <float s = {0.1}, float t = {0.05}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, t)
        a = Gemm(d, v)
        p = QuantizeLinear(a, s, z)
        e = DequantizeLinear(p, s, z)
        y = Softmax(e) }""", w=codes(0, (6, 5)))
    x = np.random.default_rng(1).normal(0, 3, (16, 6)).astype(np.float32)
    got = check(model, x=x)
    program = agree(model, x=x)
    assert any("(Softmax)" in line and "after the device" in line for line in report(program)["host"])
    assert got.argmax(axis=1).tolist() == oracle_tensors(model, {"x": x}, set())["y"].argmax(axis=1).tolist()
    assert [op.kind for op in import_model(model).ops if isinstance(op, Host)] == ["Softmax"]
