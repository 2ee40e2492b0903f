"""The device's end of the link."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from almac.hdl.frame import READ_WORD, STATUS, WRITE_BYTE
from almac.hdl.link.packet import CrcAppender, PacketQueue
from almac.hdl.link.service import Service
from almac.hdl.link.slip import SlipDecoder, SlipEncoder
from almac.hdl.readback import word_bits

__all__ = ["Link"]


class Link(wiring.Component):
    """Bytes of the line to memory accesses and runs, and back.

    Parameters
    ----------
    config : ArrayConfig
    queue_bytes : int
        Bytes of requests that may wait, a power of two; also the longest frame that is taken.

    Members
    -------
    rx : In(stream.Signature(8))
    tx : Out(stream.Signature(8))
    write : Out(stream.Signature(WRITE_BYTE))
    read : Out(stream.Signature(READ_WORD))
    word : In(stream.Signature(word_bits(config)))
    run : Out(stream.Signature(16))
    status : In(STATUS)
        As in :class:`almac.hdl.engine.Engine`, from the other side.
    """

    def __init__(self, config, *, queue_bytes=4096):
        self.config = config
        self.queue_bytes = queue_bytes
        super().__init__({
            "rx": In(stream.Signature(8)),
            "tx": Out(stream.Signature(8)),
            "write": Out(stream.Signature(WRITE_BYTE)),
            "read": Out(stream.Signature(READ_WORD)),
            "word": In(stream.Signature(word_bits(config))),
            "run": Out(stream.Signature(16)),
            "status": In(STATUS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = decoder = SlipDecoder()
        m.submodules.queue = queue = PacketQueue(depth=self.queue_bytes)
        m.submodules.service = service = Service(self.config)
        m.submodules.appender = appender = CrcAppender()
        m.submodules.encoder = encoder = SlipEncoder()

        connect(m, flipped(self.rx), decoder.i)
        connect(m, decoder.o, queue.i)
        connect(m, queue.o, service.i)
        connect(m, service.o, appender.i)
        connect(m, appender.o, encoder.i)
        connect(m, encoder.o, flipped(self.tx))

        connect(m, service.write, flipped(self.write))
        connect(m, service.read, flipped(self.read))
        connect(m, flipped(self.word), service.word)
        connect(m, service.run, flipped(self.run))
        m.d.comb += service.status.eq(self.status)
        return m
