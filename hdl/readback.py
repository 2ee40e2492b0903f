"""Words back to the host."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.command import ADDRESS, Space, words_of
from almac.hdl.frame import READ_WORD

__all__ = ["Readback", "word_bits"]


def word_bits(config):
    """Bits of the widest word that the host reads."""
    return max(words_of(space, config)[0] for space in (Space.ACTIVATION, Space.TRACE))


class Readback(wiring.Component):
    """Reads a word of a column's activations, or of the trace.

    Timing
    ------
    A word every three cycles: the memory is addressed, answers, and the answer is kept until taken.
    Only while no loop runs; the host asks at no other time.

    Parameters
    ----------
    config : ArrayConfig

    Members
    -------
    read : In(stream.Signature(READ_WORD))
    word : Out(stream.Signature(word_bits(config)))
    address : Out(ADDRESS)
        To the memories.
    words : In(ArrayLayout(8 * lanes, columns))
    trace : In(32)
        From them, one cycle later.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "read": In(stream.Signature(READ_WORD)),
            "word": Out(stream.Signature(word_bits(config))),
            "address": Out(ADDRESS),
            "words": In(data.ArrayLayout(8 * config.lanes, config.columns)),
            "trace": In(32),
        })

    def elaborate(self, platform):
        m = Module()

        request = Signal(READ_WORD)
        m.d.comb += self.address.eq(request.address)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.read.ready.eq(1)
                with m.If(self.read.valid):
                    m.d.sync += request.eq(self.read.payload)
                    m.next = "READING"
            with m.State("READING"):
                m.next = "ANSWERING"
            with m.State("ANSWERING"):
                m.d.sync += self.word.valid.eq(1)
                with m.If(request.space == Space.TRACE):
                    m.d.sync += self.word.payload.eq(self.trace)
                with m.Else():
                    m.d.sync += self.word.payload.eq(self.words[request.column])
                m.next = "OFFERED"
            with m.State("OFFERED"):
                with m.If(self.word.ready):
                    m.d.sync += self.word.valid.eq(0)
                    m.next = "IDLE"

        return m
