"""Loop nests to beats: addresses and the place in the nest, one beat per cycle."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.command import ADDRESS, COMMAND, COUNT, LEVELS, OUTER

__all__ = ["BEAT", "Issue"]

#: What follows from one iteration of the loops.
BEAT = data.StructLayout({
    # Word of activation memory, and whether it is inside the image.
    "address": ADDRESS,
    "inside": 1,
    # Words of weight and group scale memory.
    "weight": ADDRESS,
    "scale": ADDRESS,
    # First and last beat of an output, last beat of the command.
    "first": 1,
    "last": 1,
    "final": 1,
})


class Issue(wiring.Component):
    """Runs the loops of one command after the other.

    Timing
    ------
    One beat per cycle; the first one in the cycle after the command is accepted. The last beat of an
    output waits until ``drain`` cycles have passed since the last beat of the output before it, which is
    all that ever holds a beat back. A command is accepted when no other one is running.

    Members
    -------
    commands : In(stream.Signature(COMMAND))
        Commands to run.
    command : Out(COMMAND)
        The command that is running, until the next one is accepted.
    beat : Out(BEAT)
    valid : Out(1)
        ``beat`` is a beat; nobody can refuse it.
    running : Out(1)
        A beat of ``command`` is still to come.
    """

    commands: In(stream.Signature(COMMAND))
    command: Out(COMMAND)
    beat: Out(BEAT)
    valid: Out(1)
    running: Out(1)

    def elaborate(self, platform):
        m = Module()

        command = self.command
        index = [Signal(COUNT, name=f"index_{level}") for level in LEVELS]
        address = Signal(ADDRESS)
        y = Signal.like(command.y)
        x = Signal.like(command.x)
        weight = Signal(ADDRESS)
        scale = Signal(ADDRESS)
        scale_left = Signal(COUNT)
        cooldown = Signal.like(command.drain)

        at_first = [count == 0 for count in index]
        at_last = [Signal(name=f"last_{level}") for level in LEVELS]
        m.d.comb += [last.eq(count == end)
                     for last, count, end in zip(at_last, index, command.count, strict=True)]

        m.d.comb += [
            self.commands.ready.eq(~self.running),
            self.beat.address.eq(address),
            self.beat.inside.eq((y >= 0) & (y < command.height) & (x >= 0) & (x < command.width)),
            self.beat.weight.eq(weight),
            self.beat.scale.eq(scale),
            self.beat.first.eq(Cat(at_first[OUTER:]).all()),
            self.beat.last.eq(Cat(at_last[OUTER:]).all()),
            self.beat.final.eq(Cat(at_last).all()),
            self.valid.eq(self.running & ~(self.beat.last & (cooldown != 0))),
        ]

        with m.If(cooldown != 0):
            m.d.sync += cooldown.eq(cooldown - 1)
        with m.If(self.valid):
            # The innermost loop that is not at its end advances; those inside it start again.
            for level in range(len(LEVELS)):
                with m.If(Cat(at_last[level + 1:]).all()):
                    m.d.sync += index[level].eq(Mux(at_last[level], 0, index[level] + 1))
            for level in reversed(range(len(LEVELS))):
                inner_done = Cat(at_last[level + 1:]).all()
                with m.If(inner_done & ~at_last[level]):
                    m.d.sync += [
                        address.eq(address + command.address_step[level]),
                        y.eq(y + command.y_step[level]),
                        x.eq(x + command.x_step[level]),
                    ]
            with m.If(self.beat.last):
                m.d.sync += [
                    weight.eq(command.weight),
                    scale.eq(command.scale),
                    scale_left.eq(command.scale_beats),
                    cooldown.eq(command.drain - 1),
                ]
            with m.Else():
                m.d.sync += weight.eq(weight + 1)
                with m.If(scale_left == 1):
                    m.d.sync += [scale.eq(scale + 1), scale_left.eq(command.scale_beats)]
                with m.Else():
                    m.d.sync += scale_left.eq(scale_left - 1)
            with m.If(self.beat.final):
                m.d.sync += self.running.eq(0)

        offered = self.commands.payload
        with m.If(self.commands.valid & self.commands.ready):
            m.d.sync += [
                self.running.eq(1),
                command.eq(offered),
                address.eq(offered.address),
                y.eq(offered.y),
                x.eq(offered.x),
                weight.eq(offered.weight),
                scale.eq(offered.scale),
                scale_left.eq(offered.scale_beats),
                cooldown.eq(0),
            ]
            m.d.sync += [count.eq(0) for count in index]

        return m
