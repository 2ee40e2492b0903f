"""The ternary dot product in plain Amaranth: runs on any vendor's cells, and is what simulators run."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.dot.code import latency, leaves, levels
from almac.hdl.shapes import INT8

__all__ = ["TernaryDot"]


class TernaryDot(wiring.Component):
    """Dot product of codes with trits, given by the controls of :mod:`almac.hdl.dot.code`.

    With ``negative``, the result is ``-o``; both together are the dot product plus the excess that
    :func:`almac.hdl.dot.code.encode` returns.

    Timing
    ------
    Accepts operands in every cycle and never stalls; ``o`` and ``negative`` follow after ``LATENCY``
    cycles.

    Parameters
    ----------
    lanes : int
        Number of codes and trits.

    Members
    -------
    act : In(ArrayLayout(INT8, lanes))
        Codes.
    code : In(2 * lanes)
        Controls.
    o : Out(signed(8 + ...))
        Sum, up to its sign; one bit wider than a code for every level of the tree.
    negative : Out(1)
        Sign of the sum.
    """

    def __init__(self, *, lanes):
        if not isinstance(lanes, int) or lanes <= 0:
            raise TypeError(f"Lane count must be a positive integer, not {lanes!r}")
        self.lanes = lanes
        self.sum_shape = signed(8 + (lanes > 1) + len(levels(lanes)))
        super().__init__({
            "act": In(data.ArrayLayout(INT8, lanes)),
            "code": In(2 * lanes),
            "o": Out(self.sum_shape),
            "negative": Out(1),
        })

    @property
    def LATENCY(self):
        """Cycles from operands to sum."""
        return latency(self.lanes)

    def elaborate(self, platform):
        m = Module()

        # Controls of the levels above travel with the sums that they belong to.
        code = self.code
        sums = []
        for bit, lane, count in leaves(self.lanes):
            a = self.act[lane] & code[bit].replicate(8).as_signed()
            if count == 2:
                flipped = (self.act[lane + 1] ^ code[bit + 2].replicate(8).as_signed())
                b = flipped & code[bit + 1].replicate(8).as_signed()
                sums.append(_register(m, a + b, f"pair{lane // 2}"))
            else:
                sums.append(_register(m, a, "single"))

        used = leaves(self.lanes)[-1][0] + (3 if self.lanes % 2 == 0 else 1)
        for depth, (_bit, nodes, children) in enumerate(levels(self.lanes)):
            code = _register(m, code[used:], f"code{depth}")
            used = nodes
            joined = []
            for k in range(nodes):
                left, right = sums[2 * k], sums[2 * k + 1]
                subtract = code[k].replicate(len(right)).as_signed()
                joined.append(_register(m, left + (right ^ subtract), f"level{depth}_{k}"))
            if children % 2:
                joined.append(_register(m, sums[-1], f"level{depth}_{nodes}"))
            sums = joined

        m.d.sync += self.negative.eq(code[-1])
        m.d.comb += self.o.eq(sums[0])
        return m


def _register(m, value, name):
    register = Signal(value.shape(), name=name)
    m.d.sync += register.eq(value)
    return register
