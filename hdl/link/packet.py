"""Whole frames only: a queue that forgets what was not transmitted right, and the check that it wants."""

from amaranth import *
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import In, Out

from almac.hdl.frame import CRC_BYTES
from almac.hdl.link.slip import MARKED_BYTE

__all__ = ["PACKET_BYTE", "CrcAppender", "PacketQueue"]

#: A byte of a packet; ``last`` is set on its last one.
PACKET_BYTE = data.StructLayout({"data": 8, "last": 1})

#: Packets that may wait; more stall the line.
_PACKETS = 32


class PacketQueue(wiring.Component):
    """Queue of frames whose CRC is right, without it.

    Bytes are written as they come; the end of the frame commits them or takes them back. A frame that does
    not fit waits for those before it to leave; one that does not fit even alone is dropped.

    Timing
    ------
    A byte per cycle in and out. The first byte of a packet is offered ``LATENCY`` cycles after the end of its
    frame was taken, if no other packet is before it. A read never meets a write of the same byte.

    Parameters
    ----------
    depth : int
        Bytes; a power of two.

    Members
    -------
    i : In(stream.Signature(MARKED_BYTE))
    o : Out(stream.Signature(PACKET_BYTE))
    """

    LATENCY = 4

    def __init__(self, *, depth=4096):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"Depth must be a power of two, not {depth!r}")
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(MARKED_BYTE)),
            "o": Out(stream.Signature(PACKET_BYTE)),
        })

    def elaborate(self, platform):
        m = Module()

        m.submodules.bytes = storage = memory.Memory(shape=8, depth=self.depth, init=())
        m.submodules.checksum = crc = CRC32_ETHERNET().create()
        m.submodules.lengths = lengths = fifo.SyncFIFOBuffered(
            width=range(self.depth + 1).stop.bit_length(), depth=_PACKETS)
        w_port = storage.write_port()
        r_port = storage.read_port()

        # One bit more than an address: equal pointers are an empty queue, never a full one.
        pointer = range(2 * self.depth)
        written = Signal(pointer)
        committed = Signal(pointer)
        read = Signal(pointer)
        length = Signal(range(self.depth + 1))
        too_long = Signal()

        full = Signal()
        alone = Signal()
        good = Signal()
        taken = Signal()
        m.d.comb += [
            full.eq((written - read)[:len(read)] == self.depth),
            alone.eq(committed == read),
            good.eq(crc.match_detected & (length > CRC_BYTES) & ~too_long),
            self.i.ready.eq(Mux(self.i.p.end, lengths.w_rdy, ~full | alone | too_long)),
            taken.eq(self.i.valid & self.i.ready),
            w_port.addr.eq(written),
            w_port.data.eq(self.i.p.data),
            w_port.en.eq(taken & ~self.i.p.end & ~full),
            crc.data.eq(self.i.p.data),
            crc.valid.eq(taken & ~self.i.p.end),
            crc.start.eq(taken & self.i.p.end),
            lengths.w_data.eq(length - CRC_BYTES),
            lengths.w_en.eq(taken & self.i.p.end & good),
        ]
        with m.If(w_port.en):
            m.d.sync += [written.eq(written + 1), length.eq(length + 1)]
        with m.If(taken & ~self.i.p.end & full):
            m.d.sync += too_long.eq(1)
        with m.If(taken & self.i.p.end):
            m.d.sync += [length.eq(0), too_long.eq(0)]
            with m.If(good):
                m.d.sync += [
                    written.eq(written - CRC_BYTES),
                    committed.eq(written - CRC_BYTES),
                ]
            with m.Else():
                m.d.sync += written.eq(committed)

        # The read port is enabled with the transfer, so it holds a byte that was not taken yet.
        left = Signal.like(length)
        advance = Signal()
        m.d.comb += [
            advance.eq((left != 0) & (~self.o.valid | self.o.ready)),
            r_port.addr.eq(read),
            r_port.en.eq(advance),
            self.o.p.data.eq(r_port.data),
            lengths.r_en.eq((left == 0) | ((left == 1) & advance)),
        ]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(advance):
            m.d.sync += [
                self.o.valid.eq(1),
                self.o.p.last.eq(left == 1),
                read.eq(read + 1),
                left.eq(left - 1),
            ]
        with m.If(lengths.r_en):
            m.d.sync += left.eq(Mux(lengths.r_rdy, lengths.r_data, 0))

        return m


class CrcAppender(wiring.Component):
    """Packets to frames: the CRC follows the last byte, and the end follows it.

    Timing
    ------
    A byte per cycle, and five cycles for CRC and end.

    Members
    -------
    i : In(stream.Signature(PACKET_BYTE))
    o : Out(stream.Signature(MARKED_BYTE))
    """

    i: In(stream.Signature(PACKET_BYTE))
    o: Out(stream.Signature(MARKED_BYTE))

    def elaborate(self, platform):
        m = Module()

        m.submodules.checksum = crc = CRC32_ETHERNET().create()
        # 0: bytes of the packet; 1 to 4: those of the CRC; 5: the end.
        place = Signal(range(CRC_BYTES + 2))
        sent = Signal()
        m.d.comb += sent.eq(self.o.valid & self.o.ready)

        with m.If(place == 0):
            m.d.comb += [
                self.o.valid.eq(self.i.valid),
                self.o.p.data.eq(self.i.p.data),
                self.i.ready.eq(self.o.ready),
                crc.data.eq(self.i.p.data),
                crc.valid.eq(sent),
            ]
            with m.If(sent & self.i.p.last):
                m.d.sync += place.eq(1)
        with m.Else():
            m.d.comb += [
                self.o.valid.eq(1),
                self.o.p.data.eq(crc.crc.word_select((place - 1)[:2], 8)),
                self.o.p.end.eq(place == CRC_BYTES + 1),
                crc.start.eq(sent & self.o.p.end),
            ]
            with m.If(sent):
                m.d.sync += place.eq(Mux(self.o.p.end, 0, place + 1))

        return m
