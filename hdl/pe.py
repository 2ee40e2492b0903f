"""One processing element: dot product, group scale, accumulator."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.dot.ternary import TernaryDot
from almac.hdl.shapes import ACC, ALPHA, INT8

__all__ = ["Pe"]


class Pe(wiring.Component):
    """Sum of scaled dot products.

    ``acc`` is the sum of ``alpha * dot(act, trits)`` over the beats from the one with ``first`` on, plus
    ``alpha * excess`` of the trits' controls (:mod:`almac.hdl.dot.code`), which the bias takes back.

    Timing
    ------
    Accepts a beat in every cycle. ``alpha`` and ``first`` belong to the dot product that entered
    ``ALPHA_DELAY`` cycles earlier: group scales are read that much later than weights, which saves the
    registers to carry them. ``acc`` contains a beat ``LATENCY`` cycles after its operands.

    Parameters
    ----------
    lanes : int
        Number of codes and trits of a beat.

    Members
    -------
    act : In(ArrayLayout(INT8, lanes))
    code : In(2 * lanes)
    alpha : In(ALPHA)
    first : In(1)
        The accumulator starts again with this beat.
    enable : In(1)
        There is a beat; belongs to the same beat as ``alpha``.
    acc : Out(ACC)
    """

    def __init__(self, *, lanes):
        self._dot = TernaryDot(lanes=lanes)
        self.lanes = lanes
        super().__init__({
            "act": In(data.ArrayLayout(INT8, lanes)),
            "code": In(2 * lanes),
            "alpha": In(ALPHA),
            "first": In(1),
            "enable": In(1),
            "acc": Out(ACC),
        })

    @property
    def ALPHA_DELAY(self):
        """Cycles from operands to their group scale."""
        return self._dot.LATENCY

    @property
    def LATENCY(self):
        """Cycles from operands to accumulator."""
        return self._dot.LATENCY + 2

    def elaborate(self, platform):
        m = Module()
        m.submodules.dot = dot = self._dot

        product = Signal(signed(len(dot.o) + ALPHA.width))
        product_first = Signal()
        product_enable = Signal()
        # The deferred sign of the dot product goes into its scale.
        alpha = Signal(ALPHA)

        m.d.comb += [
            dot.act.eq(self.act),
            dot.code.eq(self.code),
            alpha.eq(Mux(dot.negative, -self.alpha, self.alpha)),
        ]
        m.d.sync += [
            product.eq(dot.o * alpha),
            product_first.eq(self.first),
            product_enable.eq(self.enable),
        ]
        with m.If(product_enable):
            m.d.sync += self.acc.eq(Mux(product_first, 0, self.acc) + product)

        return m
