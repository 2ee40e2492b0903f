"""Accumulators to codes, as NUMERICS.md section 4 says, and on through a table."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.command import PARAM
from almac.hdl.shapes import ACC, INT8, MULTIPLIER

__all__ = ["Requantize", "RequantizeSettings"]


class RequantizeSettings(data.StructLayout):
    """What all accumulators of a command have in common."""

    def __init__(self):
        super().__init__({
            "side_multiplier": MULTIPLIER,
            "raw": 1,
            "zero_point": INT8,
            "low": INT8,
            "high": INT8,
        })


class Requantize(wiring.Component):
    """Scales, rounds once, shifts by the zero point and saturates.

    ``o = clip(round_half_even((acc * multiplier + side * side_multiplier + offset) / 2**shift)
    + zero_point, low, high)``; exact up to the rounding: the sum is kept in 64 bits.

    With ``raw``, ``o`` is instead the low byte of ``sum >> shift``: four passes with the shifts 0, 8, 16
    and 24 take an accumulator out whole.

    Timing
    ------
    Accepts an accumulator in every cycle and never stalls; ``o`` follows after ``LATENCY`` cycles.

    Members
    -------
    acc : In(ACC)
    side : In(INT8)
    param : In(PARAM)
    settings : In(RequantizeSettings())
        Changes only at rest.
    o : Out(INT8)
    """

    #: Product, sum, shift, round.
    LATENCY = 4

    acc: In(ACC)
    side: In(INT8)
    param: In(PARAM)
    settings: In(RequantizeSettings())
    o: Out(INT8)

    def elaborate(self, platform):
        m = Module()
        settings = self.settings

        s1_product = Signal(signed(ACC.width + MULTIPLIER.width + 1))
        s1_side = Signal(signed(INT8.width + MULTIPLIER.width + 1))
        s1_param = Signal(PARAM)
        m.d.sync += [
            s1_product.eq(self.acc * self.param.multiplier),
            s1_side.eq(self.side * settings.side_multiplier),
            s1_param.eq(self.param),
        ]

        s2_sum = Signal(signed(64))
        s2_shift = Signal.like(self.param.shift)
        m.d.sync += [
            s2_sum.eq(s1_product + s1_side + s1_param.offset),
            s2_shift.eq(s1_param.shift),
        ]

        # Half to even: up if the bit below the result is set, and one below it or the result's own.
        # What is shifted out, at the top of 64 bits; the second shift is 63 less the first one.
        below = Signal(64)
        s3_floor = Signal(signed(64))
        s3_half = Signal()
        s3_rest = Signal()
        m.d.comb += below.eq((s2_sum << 1)[:64] << ~s2_shift)
        m.d.sync += [
            s3_floor.eq(s2_sum >> s2_shift),
            s3_half.eq(below[63]),
            s3_rest.eq(below[:63].any()),
        ]

        rounded = Signal(signed(66))
        m.d.comb += rounded.eq(
            s3_floor + (s3_half & (s3_rest | s3_floor[0])) + settings.zero_point)
        with m.If(settings.raw):
            m.d.sync += self.o.eq(s3_floor)
        with m.Elif(rounded < settings.low):
            m.d.sync += self.o.eq(settings.low)
        with m.Elif(rounded > settings.high):
            m.d.sync += self.o.eq(settings.high)
        with m.Else():
            m.d.sync += self.o.eq(rounded)

        return m
