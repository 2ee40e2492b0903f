"""cocotb bench with a wrong expectation, to test `run_bench`."""

import cocotb
from checker import Checker
from cocotb.triggers import Timer


@cocotb.test()
async def is_right(dut):
    with Checker() as check:
        dut.act.value = 0
        await Timer(1, unit="ns")
        check.equal(dut.act.value.to_signed(), 0, "act")


@cocotb.test()
async def is_wrong(dut):
    with Checker() as check:
        dut.act.value = 0
        await Timer(1, unit="ns")
        check.equal(dut.act.value.to_signed(), 1, "act")
