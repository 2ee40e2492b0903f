"""cocotb bench of `almac.hdl.vector.VectorUnit`, run by `test_blocks.py`."""

import os

import cocotb
import numpy as np
from amaranth.lib import data
from checker import Checker, start
from cocotb.triggers import RisingEdge

from almac.hdl.command import Opcode
from almac.hdl.shapes import ACC, INT8
from almac.hdl.vector import VectorUnit

LANES = int(os.environ["LANES"])
WORD = data.ArrayLayout(INT8, LANES)


def lanes(handle, shape):
    """Lanes of a flat vector."""
    word = data.ArrayLayout(shape, LANES).from_bits(handle.value.to_unsigned())
    return [word[lane] for lane in range(LANES)]


@cocotb.test()
@cocotb.parametrize(opcode=[Opcode.MAX, Opcode.SUM, Opcode.ADD])
async def matches_numpy(dut, opcode):
    rng = np.random.default_rng(opcode.value)
    await start(dut, "opcode", "word", "first", "enable")
    dut.opcode.value = opcode.value
    with Checker() as check:
        for _ in range(15):
            size = 2 if opcode is Opcode.ADD else int(rng.integers(1, 10))
            window = rng.integers(-128, 128, (size, LANES))
            for index, word in enumerate(window):
                await RisingEdge(dut.clk)
                dut.word.value = WORD.const(word.tolist()).as_bits()
                dut.first.value = int(index == 0)
                dut.enable.value = 1
                # Words that are none leave no trace.
                for _ in range(int(rng.integers(0, 3))):
                    await RisingEdge(dut.clk)
                    dut.enable.value = 0
                    dut.word.value = WORD.const([99] * LANES).as_bits()
            await RisingEdge(dut.clk)
            dut.enable.value = 0
            for _ in range(VectorUnit.LATENCY):
                await RisingEdge(dut.clk)
            match opcode:
                case Opcode.MAX:
                    check.equal(lanes(dut.acc, ACC), window.max(axis=0).tolist(), "greatest")
                case Opcode.SUM:
                    check.equal(lanes(dut.acc, ACC), window.sum(axis=0).tolist(), "sum")
                case Opcode.ADD:
                    check.equal(lanes(dut.acc, ACC), window[0].tolist(), "first")
                    check.equal(lanes(dut.side, INT8), window[1].tolist(), "second")
