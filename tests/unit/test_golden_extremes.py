"""The fast ways of the golden model against slow and obvious ones, where floating point is at its limits."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almac.compiler.graph import Add, Conv, Graph, MaxPool, Mul, Requantize, SumPool, Value
from almac.compiler.weights import to_planes
from almac.sim.convolve import convolve
from almac.sim.golden import apply
from almac.sim.rounding import shift_half_even


def output(op, x, shape, *others):
    """Output of an op, for one image of the shape ``shape``."""
    graph = Graph(ops=(op,), values={"y": Value(shape=shape)}, inputs=op.inputs, outputs=("y",))
    return apply(graph, op, [x, *others])


@st.composite
def convolutions(draw):
    """A convolution, its weights and codes, at extremes more often than not."""
    sides = st.integers(1, 4)
    groups, per_group, rows_per_group = draw(sides), draw(st.sampled_from([1, 2, 5, 400])), draw(sides)
    kernel = (draw(sides), draw(sides)) if per_group < 400 else (1, draw(st.integers(1, 2)))
    strides, dilations = ((draw(st.integers(1, 3)), draw(st.integers(1, 2))) for _ in range(2))
    pads = tuple(draw(st.lists(st.integers(0, 2), min_size=4, max_size=4)))
    height, width = (dilation * (side - 1) + 1 + draw(st.integers(0, 5))
                     for dilation, side in zip(dilations, kernel, strict=True))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    # All of one sign, the sums grow large, and odd ones show what is lost.
    weight = rng.choice([-364, -1, 0, 127, 364] if draw(st.booleans()) else [363, 364],
                        (groups * rows_per_group, per_group, *kernel))
    x = rng.choice([-128, 0, 5, 127] if draw(st.booleans()) else [-128, -127],
                   (draw(st.integers(0, 3)), groups * per_group, height, width)).astype(np.int8)
    op = Conv(inputs=("x",), output="y", weight=to_planes(weight), groups=groups, strides=strides,
              dilations=dilations, pads=pads, pad_code=draw(st.sampled_from([-128, 0, 127])))
    return op, weight, x


@given(convolutions())
def test_any_convolution_matches_its_definition(case):
    """Also of sums far beyond 2**24."""
    op, weight, x = case
    want = in_wide_integers(op, weight, x)
    for _ in range(2):
        # The second time from what the first has kept.
        np.testing.assert_array_equal(convolve(op, x), want)


def in_wide_integers(op, weight, x):
    """The formula of the docstring, a kernel position at a time."""
    top, left, bottom, right = op.pads
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=op.pad_code)
    (sh, sw), (dh, dw), (rows, columns) = op.strides, op.dilations, weight.shape[2:]
    height = (padded.shape[2] - dh * (rows - 1) - 1) // sh + 1
    width = (padded.shape[3] - dw * (columns - 1) - 1) // sw + 1
    grouped = weight.reshape(op.groups, -1, *weight.shape[1:])
    total = np.zeros((len(x), *grouped.shape[:2], height, width), np.int64)
    for r, s in np.ndindex(rows, columns):
        shifted = padded[:, :, r * dh:r * dh + sh * height:sh, s * dw:s * dw + sw * width:sw][:, :, :height, :width]
        shifted = shifted.reshape(len(x), op.groups, weight.shape[1], height, width)
        total += np.einsum("gkc,ngcpq->ngkpq", grouped[..., r, s], shifted)
    return total.reshape(len(x), len(weight), height, width)


def test_convolution_of_a_large_batch():
    weight = np.random.default_rng(1).integers(-364, 365, (3, 16, 3, 3))
    op = Conv(inputs=("x",), output="y", weight=to_planes(weight), pads=(1, 1, 1, 1))
    x = np.random.default_rng(2).integers(-128, 128, (11, 16, 60, 60)).astype(np.int8)
    np.testing.assert_array_equal(convolve(op, x), in_wide_integers(op, weight, x))


def test_convolution_takes_other_weights_and_wider_integers():
    weight = np.full((1, 600, 1, 1), 1 << 16)
    op = Conv(inputs=("x",), output="y", weight=to_planes(np.ones((1, 600, 1, 1))))
    x = np.full((1, 600, 1, 1), 255)
    assert convolve(op, x, weight).item() == 255 * 600 << 16


def rounded(total, shift, op):
    """The definition, in Python's integers: ``round`` of a fraction takes ties to even."""
    return min(op.high, max(op.low, round(Fraction(total, 1 << shift)) + op.zero_point))


#: Magnitudes around the limits of float32, float64 and the accumulator.
WIDE = st.one_of(st.integers(-1 << 31, (1 << 31) - 1), st.integers(-300, 300),
                 st.sampled_from([-1 << 31, (1 << 31) - 1, 1 << 24, (1 << 24) + 1]))
LIMITS = st.fixed_dictionaries({"zero_point": st.integers(-128, 127), "low": st.integers(-128, 0),
                                "high": st.integers(0, 127)})


@st.composite
def requantizations(draw):
    """Multiplier, offset, shift, and accumulators; some of them on a tie or beside it."""
    multiplier = draw(st.one_of(st.integers(1 << 23, (1 << 24) - 1), st.sampled_from([0, 1, 1 << 23])))
    shift = draw(st.one_of(st.integers(0, 60), st.sampled_from([0, 1, 60])))
    accs = draw(st.lists(WIDE, min_size=1, max_size=8))
    offset = draw(st.one_of(st.integers(-1 << 61, 1 << 61), st.integers(-1 << 40, 1 << 40), st.just(0)))
    if draw(st.booleans()):
        # The first accumulator comes to a code and a half, or next to it.
        tie = ((2 * draw(st.integers(-130, 130)) + 1) << shift) // 2 + draw(st.integers(-1, 1))
        offset = max(-1 << 61, min(1 << 61, tie - accs[0] * multiplier))
    return multiplier, offset, shift, accs


@given(st.lists(requantizations(), min_size=1, max_size=4), LIMITS)
def test_any_requantization_matches_exact_fractions(channels, limits):
    acc = np.zeros((2, len(channels), 8), np.int32)
    for k, (*_, accs) in enumerate(channels):
        acc[:, k, :len(accs)] = accs
    multiplier, offset, shift = (np.array(column) for column in list(zip(*channels, strict=True))[:3])
    op = Requantize(inputs=("x",), output="y", multiplier=multiplier, offset=offset, shift=shift, **limits)
    shape = acc.shape[1:]
    got = output(op, acc, shape)
    for k, (m, o, s, _) in enumerate(channels):
        assert got[:, k].tolist() == [[rounded(int(a) * m + o, s, op) for a in row] for row in acc[:, k]]


def test_requantization_by_position():
    rng = np.random.default_rng(0)
    acc = rng.integers(-1 << 20, 1 << 20, (2, 3, 200, 200)).astype(np.int32)
    shape = acc.shape[1:]
    multiplier, offset = rng.integers(1 << 23, 1 << 24, shape), rng.integers(-1 << 60, 1 << 60, shape)
    shift = rng.integers(34, 60, shape)
    op = Requantize(inputs=("x",), output="y", multiplier=multiplier, offset=offset, shift=shift)
    got = output(op, acc, shape)
    steps = shift_half_even(acc * multiplier + offset, shift)
    np.testing.assert_array_equal(got, np.clip(steps, -128, 127))


@given(st.integers(1, (1 << 24) - 1), st.integers(1, (1 << 24) - 1), st.integers(0, 20),
       st.integers(-1 << 55, 1 << 55), st.integers(0, 60), LIMITS)
def test_any_sum_matches_exact_fractions(first, second, left, offset, shift, limits):
    a, b = (x.reshape(1, -1).astype(np.int8) for x in np.meshgrid([-128, -3, 0, 1, 127], [-128, 0, 2, 127]))
    op = Add(inputs=("a", "b"), output="y", multipliers=(first, second), left=left, offset=offset, shift=shift,
             **limits)
    got = output(op, a, (20,), b)
    assert got.reshape(-1).tolist() == [
        rounded((i << left) * first + j * second + offset, shift, op)
        for i, j in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)]


@given(st.integers(-128, 127), st.integers(-128, 127), st.integers(0, (1 << 24) - 1), st.integers(0, 60), LIMITS)
def test_any_product_matches_exact_fractions(zero, other, multiplier, shift, limits):
    x = np.arange(-128, 128, dtype=np.int8)
    op = Mul(inputs=("x", "x"), output="y", zero_points=(zero, other), multiplier=multiplier, shift=shift, **limits)
    got = output(op, x, (), x)
    assert got.tolist() == [rounded((i - zero) * (i - other) * multiplier, shift, op) for i in range(-128, 128)]


@pytest.mark.parametrize(("kernel", "strides", "pads"), [
    ((3, 3), (2, 2), (1, 1, 1, 1)), ((2, 3), (3, 1), (0, 2, 1, 0)), ((7, 9), (1, 1), (0, 0, 0, 0)),
    ((6, 7), (2, 1), (1, 0, 2, 1))])
def test_pools_match_their_definition(kernel, strides, pads):
    x = np.random.default_rng(3).integers(-128, 128, (2, 3, 7, 9)).astype(np.int8)
    shape = (3, *((size + sum(ends) - side) // stride + 1 for size, ends, side, stride in zip(
        (7, 9), (pads[::2], pads[1::2]), kernel, strides, strict=True)))
    fields = {"inputs": ("x",), "output": "y", "kernel": kernel, "strides": strides, "pads": pads}
    for op, pad, reduce in ((MaxPool(**fields), -128, np.max), (SumPool(**fields, pad_code=7), 7, np.sum)):
        padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), pads[::2], pads[1::2]), constant_values=pad)
        got = output(op, x, shape)
        for p, q in np.ndindex(shape[1:]):
            top, left = p * strides[0], q * strides[1]
            window = padded[:, :, top:top + kernel[0], left:left + kernel[1]]
            np.testing.assert_array_equal(got[:, :, p, q], reduce(window, axis=(2, 3)))
