from fractions import Fraction

import numpy as np
import pytest

from almac.hdl.requantize import Requantize
from almac.sim.bench import simulate
from almac.sim.rounding import saturate, shift_half_even

WHOLE = {"low": -128, "high": 127, "zero_point": 0, "side_multiplier": 0, "raw": 0}


def run(operands, **settings):
    """Codes of (acc, side, multiplier, offset, shift), one per cycle."""
    dut = Requantize()
    codes = []

    async def bench(ctx):
        ctx.set(dut.settings, {**WHOLE, **settings})
        for cycle in range(len(operands) + dut.LATENCY - 1):
            if cycle < len(operands):
                acc, side, multiplier, offset, shift = (int(value) for value in operands[cycle])
                ctx.set(dut.acc, acc)
                ctx.set(dut.side, side)
                ctx.set(dut.param, {"multiplier": multiplier, "offset": offset, "shift": shift})
            await ctx.tick()
            if cycle >= dut.LATENCY - 1:
                codes.append(ctx.get(dut.o))

    simulate(dut, bench)
    return codes


def exact(operand, *, low=-128, high=127, zero_point=0, side_multiplier=0):
    """Code in fractions; Python rounds ties to even."""
    acc, side, multiplier, offset, shift = (int(value) for value in operand)
    total = acc * multiplier + side * side_multiplier + offset
    return min(max(round(Fraction(total, 1 << shift)) + zero_point, low), high)


def near_codes(rng, count, side_multiplier=0):
    """Operands whose sums are scattered over the codes and beyond; every other one a tie."""
    operands = []
    for index in range(count):
        shift = int(rng.integers(0, 56))
        multiplier = int(rng.integers(0, 1 << 24))
        acc = int(rng.integers(-1 << 31, 1 << 31)) >> int(rng.integers(0, 32))
        side = int(rng.integers(-128, 128))
        wanted = int(rng.integers(-140, 140)) << shift
        rest = (1 << shift >> 1) if index % 2 else int(rng.integers(0, 1 << shift))
        operands.append((acc, side, multiplier, wanted + rest - acc * multiplier - side * side_multiplier, shift))
    return operands


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("settings", [
    {}, {"zero_point": -128}, {"zero_point": 127}, {"low": 0, "zero_point": 5}, {"low": -7, "high": 9},
    {"side_multiplier": (1 << 24) - 1, "zero_point": -3}])
def test_matches_fractions(seed, settings):
    operands = near_codes(np.random.default_rng(seed), 300, settings.get("side_multiplier", 0))
    codes = run(operands, **settings)
    assert codes == [exact(operand, **settings) for operand in operands]
    assert len(set(codes)) > 5


def test_ties_go_to_even_on_both_sides_of_zero():
    halves = range(-9, 10, 2)
    assert run([(half, 0, 1, 0, 1) for half in halves]) == [-4, -4, -2, -2, 0, 0, 2, 2, 4, 4]
    assert run([(half, 0, 1, 0, 1) for half in halves], zero_point=1) == [-3, -3, -1, -1, 1, 1, 3, 3, 5, 5]


@pytest.mark.parametrize("shift", [1, 2, 31, 32, 33, 61])
@pytest.mark.parametrize("code", [-3, -2, -1, 0, 1, 2])
def test_neighbours_of_a_tie(shift, code):
    tie = (code << shift) + (1 << shift >> 1)
    operands = [(0, 0, 0, tie + delta, shift) for delta in (-1, 0, 1)]
    assert run(operands) == [code, code + code % 2, code + 1]


@pytest.mark.parametrize("shift", [0, 63])
def test_extreme_shifts(shift):
    offsets = [-1 << 62, (1 << 62) - 1, 1 << 62, (1 << 62) + 1, -(1 << 62) - 1, 0, 1, -1, 127, 128, -128, -129]
    operands = [(0, 0, 0, offset, shift) for offset in offsets]
    assert run(operands) == [exact(operand) for operand in operands]


def test_extremes_of_every_operand():
    operands = [(acc, side, multiplier, offset, shift)
                for acc in (-1 << 31, (1 << 31) - 1, 0) for side in (-128, 127)
                for multiplier in (0, 1, (1 << 24) - 1) for offset in (-1 << 62, 0, (1 << 62) - 1)
                for shift in (0, 1, 47, 55, 62, 63)]
    settings = {"side_multiplier": (1 << 24) - 1}
    assert run(operands, **settings) == [exact(operand, **settings) for operand in operands]


def test_sums_beyond_the_codes_saturate():
    # The low byte of each is harmless: a comparison in 8 bits would let it through.
    operands = [(acc, 0, 1, 0, 0) for acc in (300, -300, 6000, -6000, 1 << 30, -1 << 30, 256, -256)]
    assert run(operands) == [127, -128] * 4
    assert run(operands, low=-100, high=100) == [100, -100] * 4


@pytest.mark.parametrize("acc", [-1 << 31, (1 << 31) - 1, -1, 0, 0x12345678, -0x12345678, 0x00FF8001])
def test_raw_bytes_are_those_of_the_accumulator(acc):
    codes = run([(acc, 55, 1, 0, shift) for shift in (0, 8, 16, 24)], raw=1, low=0, high=0, zero_point=9)
    assert np.array(codes, np.int8).tobytes() == acc.to_bytes(4, "little", signed=True)


def test_rounding_in_numpy_is_the_same():
    operands = [(0, 0, 0, int(total), int(shift)) for total, shift in zip(
        np.random.default_rng(0).integers(-1 << 62, 1 << 62, 2000) >> np.tile(np.arange(0, 60, 3), 100),
        np.random.default_rng(1).integers(0, 64, 2000), strict=True)]
    totals, shifts = np.array([operand[3:] for operand in operands]).T
    codes = saturate(shift_half_even(totals, shifts), -128, 127)
    assert codes.tolist() == [exact(operand) for operand in operands]
