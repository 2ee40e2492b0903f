"""cocotb bench of `almac.hdl.dot.ternary.TernaryDot`, run by `test_blocks.py`."""

import os

import cocotb
import numpy as np
from amaranth.lib import data
from checker import Checker, start
from cocotb.triggers import RisingEdge

from almac.hdl.dot.code import encode, latency
from almac.hdl.shapes import INT8

LANES = int(os.environ["LANES"])
ACT = data.ArrayLayout(INT8, LANES)
CODE = data.ArrayLayout(1, 2 * LANES)


@cocotb.test()
async def matches_numpy(dut):
    rng = np.random.default_rng(1)
    act = rng.integers(-128, 128, (80, LANES))
    trits = rng.integers(-1, 2, (80, LANES))
    # Extremes, and nothing at all.
    act[:3] = -128
    trits[0], trits[1], trits[2] = 1, -1, 0
    bits, excess = encode(trits)
    expected = (act * trits).sum(axis=-1) + excess

    await start(dut, "act", "code")
    sums = []
    with Checker() as check:
        for cycle in range(len(act) + latency(LANES) + 1):
            await RisingEdge(dut.clk)
            # What is set now enters at the next edge.
            if cycle < len(act):
                dut.act.value = ACT.const(act[cycle].tolist()).as_bits()
                dut.code.value = CODE.const(bits[cycle].tolist()).as_bits()
            if cycle > latency(LANES):
                total = dut.o.value.to_signed()
                sums.append(-total if dut.negative.value == 1 else total)
        check.equal_lists(sums, expected.tolist(), "sum")
