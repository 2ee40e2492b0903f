"""What becomes of a request, from its header alone."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.command import Space, words_of
from almac.hdl.frame import REQUEST, Request, Status

__all__ = ["Verdict"]


class Verdict(wiring.Component):
    """Judges a request as :mod:`almac.hdl.frame` says.

    A repeated WRITE or RUN gets the answer that it got before: one that was refused is refused again, so
    that a lost refusal never turns into a consent.

    Timing
    ------
    Combinational.

    Parameters
    ----------
    config : ArrayConfig

    Members
    -------
    request : In(REQUEST)
    expected : In(8)
        Sequence number that comes next.
    identified : In(1)
        There has been an IDENTIFY since reset.
    latest : In(Status)
        What became of the request before that one.
    busy : In(1)
        A run is going on.
    status : Out(Status)
    repeated : Out(1)
        The request is an older one; if it writes or starts something, it must not do so again.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "request": In(REQUEST),
            "expected": In(8),
            "identified": In(1),
            "latest": In(Status),
            "busy": In(1),
            "status": Out(Status),
            "repeated": Out(1),
        })

    def elaborate(self, platform):
        m = Module()

        request = self.request
        identifying = Signal()
        ahead = Signal(signed(8))
        exists = Signal()
        m.d.comb += [
            identifying.eq(request.kind == Request.IDENTIFY),
            ahead.eq(request.sequence - self.expected),
            self.repeated.eq((ahead < 0) & ~identifying),
            exists.eq(self._exists(m)),
        ]

        changes = Signal()
        with m.Switch(request.kind):
            with m.Case(Request.IDENTIFY, Request.STATUS):
                m.d.comb += self.status.eq(Status.OK)
            with m.Case(Request.WRITE):
                writable = exists & (request.space != Space.TRACE)
                m.d.comb += [self.status.eq(Mux(writable, Status.OK, Status.BAD)), changes.eq(1)]
            with m.Case(Request.READ):
                readable = exists & ((request.space == Space.ACTIVATION)
                                     | (request.space == Space.TRACE))
                m.d.comb += self.status.eq(Mux(readable, Status.OK, Status.BAD))
                with m.If(self.busy):
                    m.d.comb += self.status.eq(Status.BUSY)
            with m.Case(Request.RUN):
                inside = request.address < self.config.command_depth
                m.d.comb += [self.status.eq(Mux(inside, Status.OK, Status.BAD)), changes.eq(1)]
                with m.If(self.busy & ~self.repeated):
                    m.d.comb += self.status.eq(Status.BUSY)
            with m.Default():
                m.d.comb += self.status.eq(Status.BAD)

        with m.If(changes & (ahead == -1)):
            m.d.comb += self.status.eq(self.latest)
        with m.If((~self.identified | (ahead > 0)) & ~identifying):
            m.d.comb += self.status.eq(Status.SEQUENCE)

        return m

    def _exists(self, m):
        """Whether the memory has the words that the request names."""
        request = self.request
        depth = Signal(17)
        width = Signal(16)
        with m.Switch(request.space):
            for space in Space:
                bits, words = words_of(space, self.config)
                with m.Case(space):
                    m.d.comb += [depth.eq(words), width.eq(-(-bits // 8))]
        return ((request.count != 0) & (request.address + request.count <= depth)
                & (request.width != 0) & (request.width <= width)
                & (request.column < self.config.columns))
