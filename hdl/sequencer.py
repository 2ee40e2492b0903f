"""Commands out of memory, one after the other, and the account of a run."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from almac.hdl.command import ADDRESS, COMMAND, COMMAND_WORDS, Space, words_of
from almac.hdl.frame import STATUS

__all__ = ["Sequencer"]


class Sequencer(wiring.Component):
    """Reads commands, hands them out, counts what passes.

    Timing
    ------
    A command is read in ``COMMAND_WORDS + 2`` cycles, while the one before it runs. It is offered
    when it has been read, the one before it is finished, and the host has granted often enough. Cycles
    are counted from the one after a run is accepted.

    Parameters
    ----------
    config : ArrayConfig

    Members
    -------
    run : In(stream.Signature(16))
        Address of the first command; accepted while nothing runs.
    addr, data : Out(ADDRESS), In(32)
        Read port of the command memory.
    commands : Out(stream.Signature(COMMAND))
    finished : In(1)
        The last result of the running command is being written.
    granted : In(16)
        How often the host has granted.
    status : Out(STATUS)
    trace_addr, trace_data : In(ADDRESS), Out(32)
        Read port of the trace: cycle count at the end of each command.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "run": In(stream.Signature(16)),
            "addr": Out(ADDRESS),
            "data": In(32),
            "commands": Out(stream.Signature(COMMAND)),
            "finished": In(1),
            "granted": In(16),
            "status": Out(STATUS),
            "trace_addr": In(ADDRESS),
            "trace_data": Out(32),
        })

    def elaborate(self, platform):
        m = Module()

        status = self.status
        word = Signal(32 * COMMAND_WORDS)
        command = Signal(COMMAND)
        unread = Signal(range(COMMAND_WORDS + 1))
        arriving = Signal()
        complete = Signal()
        executing = Signal()
        last = Signal()
        waiting = Signal()

        m.d.comb += [
            command.eq(word),
            self.run.ready.eq(~status.busy),
            self.commands.payload.eq(command),
            waiting.eq(complete & ~executing & (self.granted < command.grant)),
            self.commands.valid.eq(complete & ~executing & ~waiting),
        ]

        # Read: a word is asked for, arrives a cycle later, and pushes the others down.
        m.d.sync += arriving.eq(unread != 0)
        with m.If(unread != 0):
            m.d.sync += [self.addr.eq(self.addr + 1), unread.eq(unread - 1)]
        with m.If(arriving):
            m.d.sync += [
                word.eq(Cat(word[32:], self.data)),
                complete.eq(unread == 0),
            ]

        m.d.sync += status.cycles.eq(status.cycles + status.busy)
        m.d.sync += status.stalls.eq(status.stalls + waiting)
        with m.If(self.commands.valid & self.commands.ready):
            m.d.sync += [
                complete.eq(0),
                executing.eq(1),
                last.eq(command.last),
                unread.eq(Mux(command.last, 0, COMMAND_WORDS)),
            ]
        with m.If(self.finished):
            m.d.sync += [
                executing.eq(0),
                status.done.eq(status.done + 1),
                status.busy.eq(~last),
            ]
        with m.If(self.run.valid & self.run.ready):
            m.d.sync += [
                self.addr.eq(self.run.payload),
                unread.eq(COMMAND_WORDS),
                status.busy.eq(1),
                status.done.eq(0),
                status.runs.eq(status.runs + 1),
                status.cycles.eq(0),
                status.stalls.eq(0),
            ]

        bits, depth = words_of(Space.TRACE, self.config)
        m.submodules.trace = trace = memory.Memory(shape=bits, depth=depth, init=())
        w_port = trace.write_port()
        r_port = trace.read_port()
        m.d.comb += [
            w_port.addr.eq(status.done),
            w_port.data.eq(status.cycles + 1),
            w_port.en.eq(self.finished),
            r_port.addr.eq(self.trace_addr),
            r_port.en.eq(1),
            self.trace_data.eq(r_port.data),
        ]

        return m
