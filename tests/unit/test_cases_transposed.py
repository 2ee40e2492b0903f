"""The list of cases: transposed convolutions, shared weights, several readers of one tensor."""

import numpy as np
import pytest

from almac.compiler.build import build
from almac.compiler.graph import Quantize
from almac.compiler.importer import import_model
from almac.hdl.command import Space
from almac.hdl.config import ArrayConfig
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


UPPER = [4, 6, 14, 9, 10, 12, 29, 18, 24, 30, 70, 42, 20, 24, 53, 30]
LOWER = [12, 29, 18, 21, 30, 70, 42, 50, 24, 53, 30, 35, 36, 80, 45, 50]


@pytest.mark.parametrize(("attributes", "expected"), [
    ('auto_pad = "SAME_UPPER"', UPPER), ('auto_pad = "SAME_LOWER"', LOWER),
    ("pads = [1,1,1,1], output_padding = [1,1]", LOWER), ('output_shape = [4,4], auto_pad = "SAME_UPPER"', UPPER),
    ("pads = [0,0,1,1]", UPPER)])
@pytest.mark.parametrize("opset", [10, 11, 21, 25])
def test_u60_numbers_of_the_case(parse, check, attributes, expected, opset):
    model = parse(f"""g (int8[N,1,2,2] x) => (float[N,1,4,4] y)
        <float one = {{1}}, int8 z = {{0}}, int8[1,1,3,3] w = {{2,3,4,5,6,7,8,9,10}}> {{
        d = DequantizeLinear(x, one, z)
        v = DequantizeLinear(w, one, z)
        y = ConvTranspose <strides = [2,2], {attributes}> (d, v) }}""", opset)
    check(model, expected, x=np.int8([2, 3, 4, 5]).reshape(1, 1, 2, 2))


def test_u60_scales_of_axis_1(parse, check):
    model = parse("""g (int8[N,1,1,1] x) => (float[N,2,1,1] y)
        <float one = {1}, float[2] s = {1,10}, int8[1,2,1,1] w = {3,3}> {
        d = DequantizeLinear(x, one)
        v = DequantizeLinear <axis = 1> (w, s)
        y = ConvTranspose(d, v) }""")
    check(model, [6, 60], x=np.int8([[[[2]]]]))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("size", "kernel", "attributes"), [
    ((3, 4), (3, 2), "strides = [2,1]"), ((2, 2), (3, 3), "strides = [2,2], pads = [1,0,0,2]"),
    ((3, 2), (2, 3), "strides = [3,2], dilations = [2,1], output_padding = [2,1]"),
    ((1, 1), (4, 4), "strides = [2,2], pads = [1,1,1,1]"), ((3, 3), (1, 1), "strides = [1,1]"),
    ((5,), (3,), "strides = [2], pads = [1,1], output_padding = [1]"), ((4,), (2,), "strides = [2]"),
    ((2, 3), (3, 3), 'strides = [2,2], output_shape = [5,6]'), ((4, 4), (2, 2), "pads = [1,1,1,1]"),
    ((2, 2), (2, 2), 'strides = [3,3], auto_pad = "SAME_UPPER"'), ((2, 3), (5, 5), 'auto_pad = "SAME_LOWER"')])
@pytest.mark.parametrize(("kind", "zero"), [("uint8", 3), ("int8", -128)])
def test_u60_any_transposed_convolution(parse, check, groups, size, kernel, attributes, kind, zero):
    model = parse(f"""g ({kind}[N,4,{",".join(map(str, size))}] x) => ({kind}[N,{"A,B,C"[:2 * len(size) + 1]}] y)
        <float s = {{0.5}}, float t = {{16}}, {kind} z = {{{zero}}}> {{
        d = DequantizeLinear(x, s, z)
        v = DequantizeLinear <axis = 1> (w, ws)
        a = ConvTranspose <group = {groups}, {attributes}> (d, v, b)
        y = QuantizeLinear(a, t, z) }}""", w=codes(0, (4, 3, *kernel)), ws=np.float32([0.5, 2, 0.25]),
        b=np.arange(3 * groups, dtype=np.float32) * 8)
    x = codes(1, (3, 4, *size), np.dtype(kind))
    check(model, x=x)
    if "dilations" not in attributes:
        agree(model, x=x)


def test_u60_transposed_qoperator_weights_between_layers(parse, check):
    """A second layer reads what a transposed convolution makes."""
    model = parse("""g (int8[N,3,3,3] x) => (int8[N,2,7,7] y) <float s = {0.5}, float t = {16}, int8 z = {-5}> {
        d = DequantizeLinear(x, s, z)
        v = DequantizeLinear(w, s)
        a = ConvTranspose <strides = [2,2]> (d, v)
        r = Relu(a)
        q = QuantizeLinear(r, t, z)
        e = DequantizeLinear(q, t, z)
        u = DequantizeLinear(w2, s)
        b = Conv <pads = [1,1,1,1]> (e, u)
        y = QuantizeLinear(b, t, z) }""", w=codes(0, (3, 4, 3, 3)), w2=codes(1, (2, 4, 3, 3)))
    x = codes(2, (3, 3, 3, 3))
    check(model, x=x)
    agree(model, x=x)


def test_u62_shared_weights_of_different_kinds(parse, check):
    """One initializer as a convolution, a transposed one and, flattened, a matrix product."""
    model = parse("""g (int8[N,2,3,3] x) => (int8[N,2,3,3] y, int8[N,2,3,3] u, int8[N,2] o)
        <float s = {0.5}, float t = {4}, int8 z = {3}, int64[2] flat = {2,2}, int8[2,2,1,1] w = {100,-3,7,-128}> {
        d = DequantizeLinear(x, s, z)
        v = DequantizeLinear(w, s)
        a = Conv(d, v)
        b = ConvTranspose(d, v)
        y = QuantizeLinear(a, t, z)
        u = QuantizeLinear(b, t, z)
        g1 = GlobalAveragePool(d)
        g2 = Flatten(g1)
        p = QuantizeLinear(g2, s, z)
        e = DequantizeLinear(p, s, z)
        m = Reshape(w, flat)
        n = DequantizeLinear(m, s)
        c = MatMul(e, n)
        o = QuantizeLinear(c, t, z) }""")
    x = codes(0, (4, 2, 3, 3))
    check(model, x=x, near_ties=4)
    agree(model, x=x)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_u62_one_quantizer_with_many_readers(parse, check, kind):
    """Its codes go to two dequantizers with other parameters, to the user, and to the end."""
    model = parse(f"""g (float[N,4,2,2] x)
        => ({kind}[N,4,2,2] y, {kind}[N,4,2,2] q, float[N,4,2,2] e, {kind}[N,4,2,2] m)
        <float s = {{0.5}}, float h = {{0.25}}, {kind} z = {{7}}, {kind} zh = {{0}}> {{
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        e = DequantizeLinear(q, h, zh)
        c = Add(d, e)
        y = QuantizeLinear(c, s, z)
        g1 = MaxPool <kernel_shape = [1,1]> (d)
        m = QuantizeLinear(g1, h, z) }}""")
    x = np.random.default_rng(0).normal(0, 30, (4, 4, 2, 2)).astype(np.float32)
    assert sum(isinstance(op, Quantize) for op in import_model(model).ops) == 1
    check(model, x=x)
    agree(model, x=x)


def test_u62_shared_weights_are_stored_once(parse):
    text = """g (int8[N,8,2,2] x) => (int8[N,8,2,2] y) <float s = {0.5}, float t = {32}, int8 z = {0}> {
        d = DequantizeLinear(x, s, z)
        v = DequantizeLinear(w, s)
        a = Conv(d, v)
        q = QuantizeLinear(a, t, z)
        e = DequantizeLinear(q, t, z)
        u = DequantizeLinear(SECOND, s)
        b = Conv(e, u)
        y = QuantizeLinear(b, t, z) }"""
    weights = {"w": codes(0, (8, 8, 1, 1)), "other": codes(1, (8, 8, 1, 1))}
    shared, apart = (agree(parse(text.replace("SECOND", name), **weights), x=codes(2, (2, 8, 2, 2)))
                     for name in ("w", "other"))
    sizes = [len(program.images[Space.WEIGHT.name]) for program in (shared, apart)]
    assert sizes[0] * 2 == sizes[1]
