"""The accelerator without its link."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from almac.hdl.column import Column
from almac.hdl.command import Space
from almac.hdl.control import Control
from almac.hdl.frame import READ_WORD, STATUS, WRITE_BYTE
from almac.hdl.loops import Issue
from almac.hdl.memory import HostMemory, WordAssembler
from almac.hdl.readback import Readback
from almac.hdl.sequencer import Sequencer

__all__ = ["Engine"]


class Engine(wiring.Component):
    """Executes programs: commands, weights and activations come from the host, results go back.

    Timing
    ------
    :mod:`almac.hdl.timing` gives the cycles of a run, exactly. The host may write at any time: words for
    the activations wait while results are being written. It reads between runs.

    Parameters
    ----------
    config : ArrayConfig

    Members
    -------
    write : In(stream.Signature(WRITE_BYTE))
    read : In(stream.Signature(READ_WORD))
    word : Out(stream.Signature(word_bits(config)))
        Answers to ``read``, in order.
    run : In(stream.Signature(16))
    status : Out(STATUS)
    """

    def __init__(self, config):
        self.config = config
        self._readback = Readback(config)
        super().__init__({
            "write": In(stream.Signature(WRITE_BYTE)),
            "read": In(stream.Signature(READ_WORD)),
            "word": Out(stream.Signature(len(self._readback.word.payload))),
            "run": In(stream.Signature(16)),
            "status": Out(STATUS),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config

        m.submodules.assembler = assembler = WordAssembler(config)
        m.submodules.weights = weights = HostMemory(Space.WEIGHT, config)
        m.submodules.scales = scales = HostMemory(Space.SCALE, config)
        m.submodules.params = params = HostMemory(Space.PARAM, config)
        m.submodules.program = program = HostMemory(Space.COMMAND, config)
        m.submodules.sequencer = sequencer = Sequencer(config)
        m.submodules.issue = issue = Issue()
        m.submodules.control = control = Control(config)
        m.submodules.readback = readback = self._readback
        columns = [Column(config, index=index) for index in range(config.columns)]
        for column in columns:
            m.submodules[f"column{column.index}"] = column

        # From the host into the memories. Results come first.
        connect(m, flipped(self.write), assembler.i)
        written = assembler.o
        m.d.comb += written.ready.eq(
            ~((written.p.space == Space.ACTIVATION) & control.chunk.valid))
        taken = written.valid & written.ready
        for part in (weights, scales, params, program, *columns):
            m.d.comb += [part.write.payload.eq(written.payload), part.write.valid.eq(taken)]
        with m.If(taken & (written.p.space == Space.GRANT)):
            m.d.sync += sequencer.granted.eq(written.p.data)

        # From the program to beats.
        connect(m, flipped(self.run), sequencer.run)
        connect(m, sequencer.commands, issue.commands)
        m.d.sync += control.start.eq(sequencer.commands.valid & sequencer.commands.ready)
        m.d.comb += [
            program.addr.eq(sequencer.addr),
            sequencer.data.eq(program.data),
            sequencer.finished.eq(control.finished),
            self.status.eq(sequencer.status),
            control.command.eq(issue.command),
            control.beat.eq(issue.beat),
            control.valid.eq(issue.valid),
        ]

        # From beats to the columns.
        m.d.comb += [
            weights.addr.eq(issue.beat.weight),
            scales.addr.eq(control.scale),
            params.addr.eq(control.param),
            readback.trace.eq(sequencer.trace_data),
            sequencer.trace_addr.eq(readback.address),
        ]
        for column in columns:
            m.d.comb += [
                column.command.eq(issue.command),
                column.address.eq(Mux(issue.running, issue.beat.address, readback.address)),
                readback.words[column.index].eq(column.word),
                column.inside.eq(control.inside),
                column.code.eq(weights.data),
                column.vector_enable.eq(control.vector_enable),
                column.vector_first.eq(control.vector_first),
                column.alpha.eq(scales.data),
                column.array_enable.eq(control.array_enable),
                column.array_first.eq(control.array_first),
                column.load.eq(control.load),
                column.param.eq(params.data),
                column.chunk.eq(control.chunk),
            ]

        # Back to the host.
        connect(m, flipped(self.read), readback.read)
        connect(m, readback.word, flipped(self.word))
        return m
