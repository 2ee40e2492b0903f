"""cocotb bench of `almac.hdl.requantize.Requantize`, run by `test_blocks.py`."""

import cocotb
import numpy as np
from checker import Checker, start
from cocotb.triggers import RisingEdge

from almac.hdl.command import PARAM
from almac.hdl.requantize import Requantize, RequantizeSettings
from almac.sim.rounding import saturate, shift_half_even

SETTINGS = RequantizeSettings()


async def requantize(dut, acc, side, multiplier, offset, shift, **settings):
    """Codes of all accumulators, one per cycle."""
    dut.settings.value = SETTINGS.const(settings).as_bits()
    codes = []
    for cycle in range(len(acc) + Requantize.LATENCY + 1):
        await RisingEdge(dut.clk)
        if cycle < len(acc):
            dut.acc.value = int(acc[cycle])
            dut.side.value = int(side[cycle])
            dut.param.value = PARAM.const({
                "multiplier": int(multiplier[cycle]), "offset": int(offset[cycle]),
                "shift": int(shift[cycle])}).as_bits()
        if cycle > Requantize.LATENCY:
            codes.append(dut.o.value.to_signed())
    return codes


def operands(rng, count):
    """Sums that are scattered over the range of a code, ties among them."""
    shift = rng.integers(1, 56, count)
    multiplier = rng.integers(0, 1 << 24, count)
    acc = rng.integers(-1 << 31, 1 << 31, count) >> rng.integers(0, 30, count)
    side = rng.integers(-128, 128, count)
    wanted = rng.integers(-200, 200, count) << shift
    # A third of all exactly between two codes.
    rest = np.where(rng.integers(0, 3, count) == 0, 1 << (shift - 1),
                    rng.integers(0, 1 << 62, count) & ((1 << shift) - 1))
    return acc, side, multiplier, wanted + rest, shift


@cocotb.test()
async def rounds_half_to_even(dut):
    rng = np.random.default_rng(2)
    await start(dut, "acc", "side", "param", "settings")
    with Checker() as check:
        for low, high, zero_point, side_multiplier in (
                (-128, 127, 0, 0), (-128, 127, -128, 9999999), (0, 127, 5, 1)):
            acc, side, multiplier, total, shift = operands(rng, 120)
            offset = total - acc * multiplier - side * side_multiplier
            expected = saturate(shift_half_even(total, shift) + zero_point, low, high)
            codes = await requantize(
                dut, acc, side, multiplier, offset, shift, raw=0, zero_point=zero_point, low=low,
                high=high, side_multiplier=side_multiplier)
            check.equal_lists(codes, expected.tolist(), "code")


@cocotb.test()
async def extremes_fit(dut):
    await start(dut, "acc", "side", "param", "settings")
    acc = np.array([-1 << 31, (1 << 31) - 1, -1 << 31, (1 << 31) - 1])
    multiplier = np.full(4, (1 << 24) - 1)
    offset = np.array([-1 << 61, 1 << 61, 0, 0])
    shift = np.array([63, 63, 0, 62])
    expected = saturate(shift_half_even(acc * multiplier + offset, shift), -128, 127)
    with Checker() as check:
        codes = await requantize(dut, acc, acc * 0, multiplier, offset, shift, raw=0, low=-128,
                                 high=127, zero_point=0, side_multiplier=0)
        check.equal_lists(codes, expected.tolist(), "code")


@cocotb.test()
async def raw_takes_an_accumulator_out(dut):
    rng = np.random.default_rng(3)
    await start(dut, "acc", "side", "param", "settings")
    acc = rng.integers(-1 << 31, 1 << 31, 20)
    one = np.ones_like(acc)
    with Checker() as check:
        parts = []
        for shift in (0, 8, 16, 24):
            parts.append(await requantize(
                dut, acc, one, one, 0 * one, shift * one, raw=1, low=0, high=0, zero_point=0,
                side_multiplier=0))
        got = np.array(parts).astype(np.int8).T.copy().view("<i4")[:, 0]
        check.equal_lists(got.tolist(), acc.tolist(), "accumulator")
