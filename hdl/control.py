"""When what happens to a beat: one delay line for all columns."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.command import ADDRESS, COMMAND, Opcode
from almac.hdl.dot.code import latency as dot_latency
from almac.hdl.drain import CHUNK, DrainControl
from almac.hdl.loops import BEAT
from almac.hdl.timing import POST_LATENCY, READ_LATENCY, VECTOR_LATENCY

__all__ = ["Control"]


class Control(wiring.Component):
    """Delays what was known when a beat was issued until its data are where they are needed.

    Timing
    ------
    Counted from the cycle in which the beat is issued and the memories are addressed: ``inside`` after 1,
    vector unit after 2, group scales addressed after 1 and used after 2 plus the latency of the dot
    product; ``load`` once the accumulators are complete. The first chunk of an output follows ``load`` by
    one cycle; its codes are written ``POST_LATENCY - 1`` cycles later.

    Parameters
    ----------
    config : ArrayConfig

    Members
    -------
    command : In(COMMAND)
    start : In(1)
        The command was accepted in the cycle before.
    beat, valid : In(BEAT), In(1)
    inside, vector_enable, vector_first, array_enable, array_first, load : Out(1)
        As :class:`almac.hdl.column.Column` wants them.
    scale : Out(ADDRESS)
        Word of group scales to read.
    param : Out(ADDRESS)
        Word of parameters to read.
    chunk : Out(CHUNK)
        The chunk that is written in this cycle.
    finished : Out(1)
        It is the last one of the command.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "command": In(COMMAND),
            "start": In(1),
            "beat": In(BEAT),
            "valid": In(1),
            "inside": Out(1),
            "vector_enable": Out(1),
            "vector_first": Out(1),
            "array_enable": Out(1),
            "array_first": Out(1),
            "load": Out(1),
            "scale": Out(ADDRESS),
            "param": Out(ADDRESS),
            "chunk": Out(CHUNK),
            "finished": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config

        array = READ_LATENCY + dot_latency(config.lanes)
        # A beat by its age in cycles; valid ones only.
        ages = [Cat(self.beat.as_value(), self.valid)]
        for age in range(1, array + 3):
            ages.append(_delayed(m, ages[-1], f"beat_{age}"))
        beats = [(BEAT(value[:-1]), value[-1]) for value in ages]

        is_array = self.command.opcode == Opcode.CONV
        loads = {
            True: beats[array + 2],
            False: beats[READ_LATENCY + VECTOR_LATENCY],
        }
        m.submodules.drain = drain = DrainControl(parts=config.lanes // config.post_lanes)
        m.d.comb += [
            self.inside.eq(beats[1][0].inside),
            self.vector_enable.eq(beats[READ_LATENCY][1] & ~is_array),
            self.vector_first.eq(beats[READ_LATENCY][0].first),
            self.scale.eq(beats[array - 1][0].scale),
            self.array_enable.eq(beats[array][1] & is_array),
            self.array_first.eq(beats[array][0].first),
            drain.start.eq(self.start),
            drain.command.eq(self.command),
            drain.load.eq(self.load),
        ]
        for conv, (beat, valid) in loads.items():
            with m.If(is_array == conv):
                m.d.comb += [
                    self.load.eq(valid & beat.last),
                    drain.final.eq(beat.final),
                ]

        chunk = drain.chunk.as_value()
        for age in range(1, POST_LATENCY):
            chunk = _delayed(m, chunk, f"chunk_{age}")
        m.d.comb += [
            self.param.eq(drain.chunk.param),
            self.chunk.eq(chunk),
            self.finished.eq(self.chunk.valid & self.chunk.final),
        ]
        return m


def _delayed(m, value, name):
    register = Signal.like(value, name=name)
    m.d.sync += register.eq(value)
    return register
