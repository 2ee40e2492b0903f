"""What benches share: a start without unknowns, and comparisons that are counted."""

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

__all__ = ["Checker", "start"]


async def start(dut, *inputs):
    """Drive inputs low, then start the clock and reset.

    In this order: the first edge must not find inputs that nobody drives yet.
    """
    dut.rst.value = 1
    for name in inputs:
        getattr(dut, name).value = 0
    await Timer(1, unit="ns")
    Clock(dut.clk, 10, unit="ns").start(start_high=False)
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


class Checker:
    """Context of a cocotb test; a bench that compares nothing fails at its end.

    Attributes
    ----------
    count : int
        Values compared so far.
    """

    def __init__(self):
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None and self.count == 0:
            raise AssertionError("The bench compared nothing")

    def equal(self, actual, expected, what):
        """Compare two values."""
        self.count += 1
        assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"

    def equal_lists(self, actual, expected, what):
        """Compare two lists, item by item and in length."""
        for index, (one, other) in enumerate(zip(actual, expected, strict=False)):
            self.equal(one, other, f"{what}[{index}]")
        assert len(actual) == len(expected), f"{what}: {len(actual)} items, not {len(expected)}"
