"""Engine and link: what every board has behind its pins."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from almac.hdl.engine import Engine
from almac.hdl.link.link import Link

__all__ = ["Top"]


class Top(wiring.Component):
    """An accelerator that speaks frames over a byte stream.

    Parameters
    ----------
    config : ArrayConfig

    Members
    -------
    rx : In(stream.Signature(8))
        Bytes from the host.
    tx : Out(stream.Signature(8))
        Bytes to the host.
    busy : Out(1)
        A run is going on.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "rx": In(stream.Signature(8)),
            "tx": Out(stream.Signature(8)),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.link = link = Link(self.config)
        m.submodules.engine = engine = Engine(self.config)

        connect(m, flipped(self.rx), link.rx)
        connect(m, link.write, engine.write)
        connect(m, link.read, engine.read)
        connect(m, engine.word, link.word)
        connect(m, link.run, engine.run)
        connect(m, link.tx, flipped(self.tx))
        m.d.comb += [
            link.status.eq(engine.status),
            self.busy.eq(engine.status.busy),
        ]
        return m
