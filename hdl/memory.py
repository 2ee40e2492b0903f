"""Memories that the host writes and the engine reads."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.command import ADDRESS, Space, words_of
from almac.hdl.frame import WRITE_BYTE

__all__ = ["HostMemory", "WordAssembler", "WordLayout"]


class WordLayout(data.StructLayout):
    """A word on its way from the host to a memory.

    Parameters
    ----------
    config : ArrayConfig
        ``data`` is as wide as the widest word of any memory, in whole bytes.
    """

    def __init__(self, config):
        width = 8 * max(-(-words_of(space, config)[0] // 8) for space in Space)
        super().__init__({"space": Space, "column": 8, "address": ADDRESS, "data": width})


class WordAssembler(wiring.Component):
    """Gathers the bytes of a word.

    Timing
    ------
    Accepts a byte per cycle; a word is offered in the cycle after its last byte.

    Parameters
    ----------
    config : ArrayConfig

    Members
    -------
    i : In(stream.Signature(WRITE_BYTE))
        Bytes, the lowest of a word first.
    o : Out(stream.Signature(WordLayout(config)))
        Words; bytes that were not given are zero.
    """

    def __init__(self, config):
        super().__init__({
            "i": In(stream.Signature(WRITE_BYTE)),
            "o": Out(stream.Signature(WordLayout(config))),
        })

    def elaborate(self, platform):
        m = Module()

        byte = self.i.p
        index = Signal(range(len(self.o.p.data) // 8 + 1))
        place = Mux(byte.first, 0, index)

        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.i.valid & self.i.ready):
            with m.If(byte.first):
                m.d.sync += self.o.p.data.eq(0)
            m.d.sync += [
                self.o.p.space.eq(byte.space),
                self.o.p.column.eq(byte.column),
                self.o.p.address.eq(byte.address),
                self.o.p.data.word_select(place, 8).eq(byte.data),
                self.o.valid.eq(byte.last),
                index.eq(place + 1),
            ]

        return m


class HostMemory(wiring.Component):
    """Memory with a write port for the host and a read port for the engine.

    Timing
    ------
    ``data`` is the word at ``addr`` of the cycle before. A read concurrent with a write of the same word
    returns the old contents.

    Parameters
    ----------
    space : Space
        Which words it takes from the host.
    config : ArrayConfig

    Members
    -------
    write : In(stream.Signature(WordLayout(config), always_ready=True))
        Words of all spaces; those of others are ignored.
    addr : In(ADDRESS)
    data : Out(bits of a word)
    """

    def __init__(self, space, config):
        self.space = space
        self.bits, self.depth = words_of(space, config)
        super().__init__({
            "write": In(stream.Signature(WordLayout(config), always_ready=True)),
            "addr": In(ADDRESS),
            "data": Out(self.bits),
        })

    def elaborate(self, platform):
        m = Module()

        m.submodules.words = words = memory.Memory(shape=self.bits, depth=self.depth, init=())
        w_port = words.write_port()
        r_port = words.read_port()
        m.d.comb += [
            w_port.addr.eq(self.write.p.address),
            w_port.data.eq(self.write.p.data),
            w_port.en.eq(self.write.valid & (self.write.p.space == self.space)),
            r_port.addr.eq(self.addr),
            r_port.en.eq(1),
            self.data.eq(r_port.data),
        ]

        return m
