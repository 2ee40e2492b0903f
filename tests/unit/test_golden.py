from fractions import Fraction

import numpy as np
import pytest

from almac.compiler.graph import (
    Add,
    Conv,
    Dequantize,
    Graph,
    Index,
    MaxPool,
    Move,
    Quantize,
    Requantize,
    Reshape,
    SumPool,
    Table,
    Value,
)
from almac.compiler.weights import to_planes
from almac.sim.convolve import convolve
from almac.sim.golden import evaluate


def one(op, before, after, batch):
    """Output of a graph of one op."""
    graph = Graph(ops=(op,), values={"x": before, "y": after}, inputs=("x",), outputs=("y",))
    return evaluate(graph, {"x": batch})["y"]


def codes(seed, *shape):
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def by_definition(op, weight, x):
    """The formula of the docstring, one product at a time."""
    count, channels, rows, columns = weight.shape
    top, left, bottom, right = op.pads
    padded = np.full((*x.shape[:2], x.shape[2] + top + bottom, x.shape[3] + left + right), op.pad_code, np.int64)
    padded[:, :, top:top + x.shape[2], left:left + x.shape[3]] = x
    height, width = (
        (size - dilation * (kernel - 1) - 1) // stride + 1
        for size, dilation, kernel, stride in zip(
            padded.shape[2:], op.dilations, (rows, columns), op.strides, strict=True))
    out = np.zeros((len(x), count, height, width), np.int64)
    for n, k, p, q in np.ndindex(out.shape):
        first = k // (count // op.groups) * channels
        for c, r, s in np.ndindex(channels, rows, columns):
            out[n, k, p, q] += weight[k, c, r, s] * padded[
                n, first + c, p * op.strides[0] + r * op.dilations[0], q * op.strides[1] + s * op.dilations[1]]
    return out


@pytest.mark.parametrize("fields", [
    {},
    {"strides": (2, 1), "pads": (1, 0, 2, 1), "pad_code": -7},
    {"dilations": (2, 3), "pads": (2, 3, 2, 3), "pad_code": 5},
    {"groups": 2},
    {"groups": 4, "strides": (2, 2), "pads": (1, 1, 1, 1), "pad_code": -128},
])
def test_convolution_matches_its_definition(fields):
    groups = fields.get("groups", 1)
    weight = np.random.default_rng(1).integers(-128, 128, (4, 4 // groups, 2, 3))
    op = Conv(inputs=("x",), output="y", weight=to_planes(weight), **fields)
    x = codes(2, 2, 4, 7, 8)
    np.testing.assert_array_equal(convolve(op, x), by_definition(op, weight, x))


@pytest.mark.parametrize(("channels", "weight"), [(1024, -1), (1023, 1), (4096, 127), (4096, -128)])
def test_extremes_are_exact(channels, weight):
    """Beyond 2**24 a float32 sum would round."""
    op = Conv(inputs=("x",), output="y", weight=to_planes(np.full((1, channels, 1, 1), weight)))
    x = np.full((1, channels, 1, 1), -128, np.int8)
    x[0, 0] = 127
    assert convolve(op, x).item() == weight * (-128 * (channels - 1) + 127)


@pytest.mark.parametrize("seed", range(3))
def test_requantize_matches_exact_fractions(seed):
    rng = np.random.default_rng(seed)
    acc = rng.integers(-1 << 31, 1 << 31, (8, 5, 3))
    acc[:, ::2] >>= 20
    op = Requantize(inputs=("x",), output="y", multiplier=rng.integers(1 << 23, 1 << 24, 5),
                    offset=rng.integers(-1 << 30, 1 << 30, 5), shift=np.array([24, 40, 31, 52, 30]),
                    zero_point=-3, low=-100, high=90)
    got = one(op, Value(shape=(5, 3), kind="acc"), Value(shape=(5, 3)), acc)
    for n, k, p in np.ndindex(acc.shape):
        exact = Fraction(int(acc[n, k, p]) * int(op.multiplier[k]) + int(op.offset[k]), 1 << int(op.shift[k]))
        assert got[n, k, p] == min(90, max(-100, round(exact) - 3))


def test_requantize_takes_ties_to_even():
    op = Requantize(inputs=("x",), output="y", multiplier=np.array([1 << 23]), offset=np.array([0]),
                    shift=np.array([24]), zero_point=1)
    acc = np.array([[-5, -3, -1, 0, 1, 3, 5]]).reshape(-1, 1)
    got = one(op, Value(shape=(1,), kind="acc"), Value(shape=(1,)), acc)
    assert got.reshape(-1).tolist() == [-1, -1, 1, 1, 1, 3, 3]


def test_add_matches_exact_fractions():
    op = Add(inputs=("x", "x"), output="y", multipliers=(9_000_001, 12_345_678), left=3, offset=-77, shift=27,
             zero_point=5)
    x = np.arange(-128, 128, dtype=np.int8).reshape(-1, 1)
    got = one(op, Value(shape=(1,)), Value(shape=(1,)), x)
    for a, y in zip(x.reshape(-1).tolist(), got.reshape(-1).tolist(), strict=True):
        exact = Fraction((a << 3) * 9_000_001 + a * 12_345_678 - 77, 1 << 27)
        assert y == min(127, max(-128, round(exact) + 5))


def test_maximum_never_takes_the_padding():
    op = MaxPool(inputs=("x",), output="y", kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    x = np.full((1, 1, 2, 2), -127, np.int8)
    assert one(op, Value(shape=(1, 2, 2)), Value(shape=(1, 1, 1)), x).item() == -127


def test_sum_counts_the_padding_code():
    op = SumPool(inputs=("x",), output="y", kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 1), pad_code=10)
    x = np.arange(6, dtype=np.int8).reshape(1, 1, 2, 3)
    got = one(op, Value(shape=(1, 2, 3)), Value(shape=(1, 1, 2), kind="acc"), x)
    assert got.reshape(-1).tolist() == [0 + 1 + 3 + 4, 2 + 5 + 10 + 10]


def test_table_is_indexed_from_the_lowest_code():
    op = Table(inputs=("x",), output="y", table=tuple(range(-128, 128)))
    x = np.arange(-128, 128, dtype=np.int8).reshape(1, -1)
    np.testing.assert_array_equal(one(op, Value(shape=(256,)), Value(shape=(256,)), x), x)


def test_layouts_keep_the_codes():
    x = codes(0, 2, 3, 4, 5)
    before = Value(shape=(3, 4, 5))
    op = Move(inputs=("x",), output="y", move=Index(np.arange(60).reshape(3, 4, 5).transpose(2, 0, 1)))
    np.testing.assert_array_equal(one(op, before, Value(shape=(5, 3, 4)), x), x.transpose(0, 3, 1, 2))
    flat = Reshape(inputs=("x",), output="y")
    np.testing.assert_array_equal(one(flat, before, Value(shape=(60,)), x), x.reshape(2, 60))


def test_quantize_divides():
    """Multiplying by the reciprocal would give -128."""
    scale = float(np.float32(5) / np.float32(255))
    got = one(Quantize(inputs=("x",), output="y"), Value(shape=(1,), kind="real"),
              Value(shape=(1,), scale=scale), np.array([[-2.5]], np.float32))
    assert got.item() == -127


def test_unsigned_codes_are_stored_less_128():
    value = Value(shape=(3,), unsigned=True)
    x = np.array([[0, 128, 255]], np.uint8)
    stored = one(Quantize(inputs=("x",), output="y", exact=True), Value(shape=(3,), kind="real"), value, x)
    assert stored.tolist() == [[-128, 0, 127]]
    back = one(Dequantize(inputs=("x",), output="y", exact=True, scale=np.ones(1), bias=np.zeros(1)),
               value, Value(shape=(3,), kind="real"), stored)
    np.testing.assert_array_equal(back, x)
    assert back.dtype == np.uint8


def test_dequantize_does_not_wrap_codes_far_from_the_zero_point():
    op = Dequantize(inputs=("x",), output="y", scale=np.array([0.5], np.float32), bias=np.zeros(1, np.float32),
                    zero_point=100)
    got = one(op, Value(shape=(2,)), Value(shape=(2,), kind="real"), np.array([[-128, 127]], np.int8))
    assert got.tolist() == [[-114.0, 13.5]]
