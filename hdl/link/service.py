"""Requests to memory accesses and runs, and the answers."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.config import FORMAT_VERSION
from almac.hdl.frame import (
    IDENTITY,
    MAGIC,
    PROTOCOL_VERSION,
    READ_WORD,
    REQUEST,
    RESPONSE,
    STATUS,
    WRITE_BYTE,
    Request,
    Status,
)
from almac.hdl.link.packet import PACKET_BYTE
from almac.hdl.link.verdict import Verdict
from almac.hdl.readback import word_bits

__all__ = ["Service", "identity"]


def identity(config):
    """Return what a device with this configuration says it is: an :data:`IDENTITY`."""
    return IDENTITY.const({
        "magic": MAGIC,
        "version": PROTOCOL_VERSION << 4 | FORMAT_VERSION,
        "digest": int.from_bytes(config.digest, "little"),
        "lanes": config.lanes,
        "rows": config.rows,
        "columns": config.columns,
        "post_lanes": config.post_lanes,
    })


class Service(wiring.Component):
    """Executes one request after the other and answers each (:mod:`almac.hdl.frame` says how).

    Timing
    ------
    Payload of a WRITE passes at a byte per cycle; a word of a READ takes four cycles and one for each
    of its bytes.

    Parameters
    ----------
    config : ArrayConfig

    Members
    -------
    i : In(stream.Signature(PACKET_BYTE))
        Checked requests.
    o : Out(stream.Signature(PACKET_BYTE))
        Responses.
    write, read, word, run, status
        As in :class:`almac.hdl.engine.Engine`, from the other side.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(PACKET_BYTE)),
            "o": Out(stream.Signature(PACKET_BYTE)),
            "write": Out(stream.Signature(WRITE_BYTE)),
            "read": Out(stream.Signature(READ_WORD)),
            "word": In(stream.Signature(word_bits(config))),
            "run": Out(stream.Signature(16)),
            "status": In(STATUS),
        })

    def elaborate(self, platform):
        m = Module()

        request = Signal(REQUEST)
        index = Signal(range(REQUEST.size // 8 + 1))
        expected = Signal(8)
        identified = Signal()
        latest = Signal(Status)
        outcome = Signal(Status)
        ended = Signal()
        words_left = Signal(16)
        bytes_left = Signal(16)
        m.submodules.verdict = verdict = Verdict(self.config)
        m.d.comb += [
            verdict.request.eq(request),
            verdict.expected.eq(expected),
            verdict.identified.eq(identified),
            verdict.latest.eq(latest),
            verdict.busy.eq(self.status.busy[0]),
        ]

        answer_bits = max(RESPONSE.size + IDENTITY.size, RESPONSE.size + STATUS.size,
                          len(self.word.payload))
        answer = Signal(answer_bits)
        answer_left = Signal(range(max(answer_bits // 8, 16) + 1))
        counted = Signal()
        next_expected = Mux(counted, request.sequence + 1, expected)
        header = Signal(RESPONSE)
        m.d.comb += [
            counted.eq(~verdict.repeated & (outcome != Status.SEQUENCE)),
            header.kind.eq(request.kind | 0x80),
            header.sequence.eq(request.sequence),
            header.status.eq(outcome),
            header.expected.eq(next_expected),
        ]

        m.d.comb += [
            self.write.p.space.eq(request.space),
            self.write.p.column.eq(request.column),
            self.write.p.address.eq(request.address),
            self.write.p.data.eq(self.i.p.data),
            self.write.p.first.eq(bytes_left == request.width),
            self.write.p.last.eq(bytes_left == 1),
            self.read.p.space.eq(request.space),
            self.read.p.column.eq(request.column),
            self.read.p.address.eq(request.address),
            self.run.payload.eq(request.address),
            self.o.p.data.eq(answer[:8]),
        ]

        with m.FSM():
            with m.State("HEADER"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.sync += [
                        Value.cast(request).word_select(index, 8).eq(self.i.p.data),
                        index.eq(index + 1),
                        ended.eq(self.i.p.last),
                    ]
                    with m.If(index == REQUEST.size // 8 - 1):
                        m.next = "JUDGING"
                    with m.Elif(self.i.p.last):
                        # Right, but not a request: the host is of another kind.
                        m.d.sync += index.eq(0)

            with m.State("JUDGING"):
                m.d.sync += [
                    index.eq(0),
                    outcome.eq(verdict.status),
                    words_left.eq(request.count),
                    bytes_left.eq(request.width),
                ]
                m.next = "SKIPPING"
                with m.If((verdict.status == Status.OK) & ~verdict.repeated):
                    with m.Switch(request.kind):
                        with m.Case(Request.WRITE):
                            m.next = "WRITING"
                        with m.Case(Request.RUN):
                            m.next = "STARTING"

            with m.State("WRITING"):
                with m.If(ended):
                    m.d.sync += outcome.eq(Status.BAD)
                    m.next = "SKIPPING"
                with m.Else():
                    m.d.comb += [
                        self.write.valid.eq(self.i.valid),
                        self.i.ready.eq(self.write.ready),
                    ]
                    with m.If(self.i.valid & self.i.ready):
                        m.d.sync += [ended.eq(self.i.p.last), bytes_left.eq(bytes_left - 1)]
                        with m.If(self.write.p.last):
                            m.d.sync += [
                                bytes_left.eq(request.width),
                                request.address.eq(request.address + 1),
                                words_left.eq(words_left - 1),
                            ]
                            with m.If(words_left == 1):
                                with m.If(~self.i.p.last):
                                    m.d.sync += outcome.eq(Status.BAD)
                                m.next = "SKIPPING"

            with m.State("STARTING"):
                m.d.comb += self.run.valid.eq(1)
                with m.If(self.run.ready):
                    m.next = "SKIPPING"

            with m.State("SKIPPING"):
                with m.If(ended):
                    m.d.sync += [
                        answer.eq(header),
                        answer_left.eq(RESPONSE.size // 8),
                        expected.eq(next_expected),
                        latest.eq(Mux(counted, outcome, latest)),
                    ]
                    with m.If(outcome == Status.OK):
                        with m.Switch(request.kind):
                            with m.Case(Request.IDENTIFY):
                                m.d.sync += [
                                    identified.eq(1),
                                    answer.eq(Cat(header, identity(self.config))),
                                    answer_left.eq((RESPONSE.size + IDENTITY.size) // 8),
                                ]
                            with m.Case(Request.STATUS):
                                m.d.sync += [
                                    answer.eq(Cat(header, self.status)),
                                    answer_left.eq((RESPONSE.size + STATUS.size) // 8),
                                ]
                    m.next = "ANSWERING"
                with m.Else():
                    m.d.comb += self.i.ready.eq(1)
                    m.d.sync += ended.eq(self.i.valid & self.i.p.last)

            with m.State("ANSWERING"):
                reading = (outcome == Status.OK) & (request.kind == Request.READ) & (words_left != 0)
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.p.last.eq((answer_left == 1) & ~reading),
                ]
                with m.If(self.o.ready):
                    m.d.sync += [answer.eq(answer >> 8), answer_left.eq(answer_left - 1)]
                    with m.If(answer_left == 1):
                        m.next = "HEADER"
                        with m.If(reading):
                            m.next = "READING"

            with m.State("READING"):
                m.d.comb += self.read.valid.eq(1)
                with m.If(self.read.ready):
                    m.next = "FETCHING"

            with m.State("FETCHING"):
                m.d.comb += self.word.ready.eq(1)
                with m.If(self.word.valid):
                    m.d.sync += [
                        answer.eq(self.word.payload),
                        answer_left.eq(request.width),
                        request.address.eq(request.address + 1),
                        words_left.eq(words_left - 1),
                    ]
                    m.next = "ANSWERING"

        return m
