"""SLIP (RFC 1055): frames in a stream of bytes, and out of it."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.frame import END, ESC, ESC_END, ESC_ESC

__all__ = ["MARKED_BYTE", "SlipDecoder", "SlipEncoder"]

#: A byte of a frame, or the end of the frame after its last byte.
MARKED_BYTE = data.StructLayout({"data": 8, "end": 1})


class SlipDecoder(wiring.Component):
    """Bytes of the line to bytes of frames. A wrong escape passes as it is: the CRC finds it.

    Timing
    ------
    Combinational: a byte per cycle, no latency.

    Members
    -------
    i : In(stream.Signature(8))
    o : Out(stream.Signature(MARKED_BYTE))
    """

    i: In(stream.Signature(8))
    o: Out(stream.Signature(MARKED_BYTE))

    def elaborate(self, platform):
        m = Module()

        escaped = Signal()
        escape = Signal()
        m.d.comb += [
            escape.eq(~escaped & (self.i.payload == ESC)),
            self.o.valid.eq(self.i.valid & ~escape),
            self.i.ready.eq(self.o.ready | escape),
            self.o.p.end.eq(self.i.payload == END),
            self.o.p.data.eq(self.i.payload),
        ]
        with m.If(escaped):
            with m.Switch(self.i.payload):
                with m.Case(ESC_END):
                    m.d.comb += self.o.p.data.eq(END)
                with m.Case(ESC_ESC):
                    m.d.comb += self.o.p.data.eq(ESC)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += escaped.eq(escape)

        return m


class SlipEncoder(wiring.Component):
    """Bytes of frames to bytes of the line.

    Timing
    ------
    Combinational: a byte per cycle, two for one that is escaped.

    Members
    -------
    i : In(stream.Signature(MARKED_BYTE))
    o : Out(stream.Signature(8))
    """

    i: In(stream.Signature(MARKED_BYTE))
    o: Out(stream.Signature(8))

    def elaborate(self, platform):
        m = Module()

        escaped = Signal()
        special = Signal()
        m.d.comb += [
            special.eq(~self.i.p.end & ((self.i.p.data == END) | (self.i.p.data == ESC))),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready & (escaped | ~special)),
            self.o.payload.eq(self.i.p.data),
        ]
        with m.If(self.i.p.end):
            m.d.comb += self.o.payload.eq(END)
        with m.Elif(special & ~escaped):
            m.d.comb += self.o.payload.eq(ESC)
        with m.Elif(special):
            m.d.comb += self.o.payload.eq(Mux(self.i.p.data == END, ESC_END, ESC_ESC))
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += escaped.eq(special & ~escaped)

        return m
