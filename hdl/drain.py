"""Results of an output, all at once in, a few codes per cycle out."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.command import ADDRESS, COMMAND
from almac.hdl.shapes import ACC, INT8

__all__ = ["CHUNK", "Drain", "DrainControl"]

#: The codes of one drain cycle: where their parameters are, and where they go (which of the
#: ``lanes / post_lanes`` parts of which word).
CHUNK = data.StructLayout({
    "valid": 1,
    "param": ADDRESS,
    "out": ADDRESS,
    "part": COMMAND["part"].shape,
    # The last one of its command.
    "final": 1,
})


class DrainControl(wiring.Component):
    """Counts the drain cycles of every output; one for all columns.

    Timing
    ------
    The first chunk is valid in the cycle after ``load``, the others follow without a gap. Outputs may
    be loaded ``drain`` cycles apart and no closer.

    Parameters
    ----------
    parts : int
        Chunks in a word of activation memory.

    Members
    -------
    start : In(1)
        A command begins: take its addresses from ``command``.
    command : In(COMMAND)
    load : In(1)
        An output is complete.
    final : In(1)
        It is the last one of the command.
    chunk : Out(CHUNK)
    """

    def __init__(self, *, parts):
        self.parts = parts
        super().__init__({
            "start": In(1),
            "command": In(COMMAND),
            "load": In(1),
            "final": In(1),
            "chunk": Out(CHUNK),
        })

    def elaborate(self, platform):
        m = Module()

        command = self.command
        chunk = self.chunk
        left = Signal.like(command.drain)
        base = Signal(ADDRESS)
        final = Signal()

        m.d.comb += [
            chunk.valid.eq(left != 0),
            chunk.final.eq(final & (left == 1)),
        ]
        with m.If(left != 0):
            m.d.sync += [
                left.eq(left - 1),
                chunk.param.eq(chunk.param + command.param_step),
            ]
            with m.If(chunk.part == self.parts - 1):
                m.d.sync += [chunk.part.eq(0), chunk.out.eq(chunk.out + 1)]
            with m.Else():
                m.d.sync += chunk.part.eq(chunk.part + 1)
        with m.If(self.load):
            m.d.sync += [
                left.eq(command.drain),
                final.eq(self.final),
                chunk.param.eq(command.param),
                chunk.out.eq(base),
                chunk.part.eq(command.part),
                base.eq(base + command.out_step),
            ]
        with m.If(self.start):
            m.d.sync += base.eq(command.out)

        return m


class Drain(wiring.Component):
    """Shift register from the results of an output to chunks, one for each column.

    Timing
    ------
    As :class:`DrainControl`: the first codes follow ``load`` by one cycle, the next ones ``shift``.

    Parameters
    ----------
    size, post_lanes : int
        Results of an output, and of a chunk.

    Members
    -------
    load : In(1)
    acc : In(ArrayLayout(ACC, size))
    side : In(ArrayLayout(INT8, size))
    chunk_acc : Out(ArrayLayout(ACC, post_lanes))
    chunk_side : Out(ArrayLayout(INT8, post_lanes))
    """

    def __init__(self, *, size, post_lanes):
        self.size = size
        self.post_lanes = post_lanes
        super().__init__({
            "load": In(1),
            "acc": In(data.ArrayLayout(ACC, size)),
            "side": In(data.ArrayLayout(INT8, size)),
            "chunk_acc": Out(data.ArrayLayout(ACC, post_lanes)),
            "chunk_side": Out(data.ArrayLayout(INT8, post_lanes)),
        })

    def elaborate(self, platform):
        m = Module()

        for given, taken in ((self.acc, self.chunk_acc), (self.side, self.chunk_side)):
            given, taken = given.as_value(), taken.as_value()
            held = Signal.like(given)
            m.d.comb += taken.eq(held)
            with m.If(self.load):
                m.d.sync += held.eq(given)
            with m.Else():
                m.d.sync += held.eq(held >> len(taken))

        return m
