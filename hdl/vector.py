"""Lane-wise reduction of words: pooling, and the operands of a residual sum."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.command import Opcode
from almac.hdl.shapes import ACC, INT8
from almac.hdl.timing import VECTOR_LATENCY

__all__ = ["VectorUnit"]


class VectorUnit(wiring.Component):
    """Reduces the words of a window, each lane by itself.

    Over the words from the one with ``first`` on, ``acc`` is per lane

    - for ``MAX`` the greatest code,
    - for ``SUM`` the sum of the codes,
    - for ``ADD`` the first code, and ``side`` the one after it.

    Timing
    ------
    Accepts a word in every cycle; ``acc`` and ``side`` contain it after ``LATENCY`` cycles.

    Parameters
    ----------
    lanes : int
        Codes in a word.

    Members
    -------
    opcode : In(Opcode)
        Changes only at rest.
    word : In(ArrayLayout(INT8, lanes))
    first : In(1)
    enable : In(1)
    acc : Out(ArrayLayout(ACC, lanes))
    side : Out(ArrayLayout(INT8, lanes))
    """

    LATENCY = VECTOR_LATENCY

    def __init__(self, *, lanes):
        self.lanes = lanes
        super().__init__({
            "opcode": In(Opcode),
            "word": In(data.ArrayLayout(INT8, lanes)),
            "first": In(1),
            "enable": In(1),
            "acc": Out(data.ArrayLayout(ACC, lanes)),
            "side": Out(data.ArrayLayout(INT8, lanes)),
        })

    def elaborate(self, platform):
        m = Module()

        for acc, side, code in zip(self.acc, self.side, self.word, strict=True):
            with m.If(self.enable):
                with m.If(self.first):
                    m.d.sync += acc.eq(code)
                with m.Else():
                    with m.Switch(self.opcode):
                        with m.Case(Opcode.MAX):
                            with m.If(code > acc):
                                m.d.sync += acc.eq(code)
                        with m.Case(Opcode.SUM):
                            m.d.sync += acc.eq(acc + code)
                        with m.Default():
                            m.d.sync += side.eq(code)

        return m
