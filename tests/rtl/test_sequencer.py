import numpy as np
import pytest

from almac.hdl.command import COMMAND, COMMAND_WORDS
from almac.hdl.config import ArrayConfig
from almac.hdl.sequencer import Sequencer
from almac.hdl.timing import FETCH_CYCLES, FIRST_FETCH_CYCLES
from almac.sim.bench import simulate
from almac.sim.streams import send, take, watch_contract

CONFIG = ArrayConfig.parse("2x2x1", command_depth=256)
MASK = (1 << 32) - 1


def random_program(rng, grants):
    """Commands of random bits, but with these grants, and ``last`` in the last one only."""
    commands = []
    for index, grant in enumerate(grants):
        bits = int.from_bytes(rng.bytes(-(-COMMAND.size // 8)), "little") % (1 << COMMAND.size)
        fields = {"grant": grant, "last": index == len(grants) - 1, "opcode": index % 4}
        for name, value in fields.items():
            field = COMMAND[name]
            bits &= ~(((1 << field.width) - 1) << field.offset)
            bits |= int(value) << field.offset
        commands.append(bits)
    return commands


def expect(grants, durations, granted_at):
    """Cycle in which each command is accepted and in which it is finished, and the stalls."""
    accepted, finished, stalls = [], [], 0
    for grant, duration in zip(grants, durations, strict=True):
        ready = FIRST_FETCH_CYCLES
        if accepted:
            ready = max(accepted[-1] + FETCH_CYCLES, finished[-1] + 1)
        start = max(ready, granted_at[grant])
        stalls += start - ready
        accepted.append(start)
        finished.append(start + duration)
    return accepted, finished, stalls


class Bench:
    """A command memory, an array that takes its time for every command, and a host that grants."""

    def __init__(self):
        self.dut = Sequencer(CONFIG)
        self.memory = [0] * CONFIG.command_depth
        self.taken, self.accepted, self.traces, self.statuses = [], [], [], []

    def load(self, address, commands):
        words = [bits >> 32 * word & MASK for bits in commands for word in range(COMMAND_WORDS)]
        assert not any(self.memory[address:address + len(words)])
        self.memory[address:address + len(words)] = words

    async def serve(self, ctx):
        """Answer reads a cycle later."""
        while True:
            _, _, address = await ctx.tick().sample(self.dut.addr)
            ctx.set(self.dut.data, self.memory[address % len(self.memory)])

    async def watch(self, ctx):
        await watch_contract(ctx, self.dut.commands)

    async def clock(self, ctx):
        """Record the cycle of the run in which each command is accepted."""
        commands = self.dut.commands
        while True:
            _, _, accepted, cycle = await ctx.tick().sample(
                commands.valid & commands.ready, self.dut.status.cycles)
            if accepted:
                self.accepted.append(cycle)

    async def execute(self, ctx, durations):
        """Take commands, each finished ``durations`` cycles after it has been accepted."""
        dut = self.dut
        for duration in durations:
            self.taken += await take(ctx, dut.commands, 1)
            for _ in range(duration - 1):
                await ctx.tick()
            ctx.set(dut.finished, 1)
            await ctx.tick()
            ctx.set(dut.finished, 0)

    async def grant(self, ctx, granted_at):
        """Grant in the given cycles of the run, ascending."""
        while not ctx.get(self.dut.status.busy):
            await ctx.tick()
        for count, cycle in sorted(granted_at.items()):
            while ctx.get(self.dut.status.cycles) < cycle:
                await ctx.tick()
            ctx.set(self.dut.granted, count)
        while ctx.get(self.dut.status.busy):
            await ctx.tick()
        ctx.set(self.dut.granted, 0)

    async def account(self, ctx, count):
        """Wait for the end of the run, then read status and trace."""
        dut = self.dut
        while ctx.get(dut.status.busy):
            assert not ctx.get(dut.run.ready)
            await ctx.tick()
        # Nothing counts any more.
        for _ in range(5):
            await ctx.tick()
        status = ctx.get(dut.status)
        self.statuses.append(tuple(int(status[name])
                                   for name in ("busy", "done", "runs", "cycles", "stalls")))
        for index in range(count):
            ctx.set(dut.trace_addr, index)
            await ctx.tick()
            self.traces.append(ctx.get(dut.trace_data))


def check(runs):
    """Do the ``runs``, (address, grants, durations, granted_at) each, and compare all of them."""
    rng = np.random.default_rng(len(runs))
    bench = Bench()
    programs = []
    for address, grants, _, _ in runs:
        programs.append(random_program(rng, grants))
        bench.load(address, programs[-1])

    started = []

    async def host(ctx):
        for address, grants, _, _ in runs:
            await send(ctx, bench.dut.run, [address])
            started.append(address)
            await bench.account(ctx, len(grants))

    async def array(ctx):
        for number, (_, _, durations, _) in enumerate(runs):
            while len(started) <= number:
                await ctx.tick()
            await bench.execute(ctx, durations)

    async def grants(ctx):
        for number, (_, _, _, granted_at) in enumerate(runs):
            while len(bench.statuses) < number:
                await ctx.tick()
            await bench.grant(ctx, granted_at)

    simulate(bench.dut, host, array, grants, background=[bench.serve, bench.watch, bench.clock])

    accepted, traces, statuses = [], [], []
    for number, (_, needed, durations, granted_at) in enumerate(runs):
        starts, ends, stalls = expect(needed, durations, {0: 0, **granted_at})
        accepted += starts
        traces += [end + 1 for end in ends]
        statuses.append((0, len(needed), number + 1, ends[-1] + 1, stalls))
    commands = [command for program in programs for command in program]
    assert [command.as_bits() for command in bench.taken] == commands
    assert bench.accepted == accepted
    assert bench.traces == traces
    assert bench.statuses == statuses


@pytest.mark.parametrize(
    "duration", [1, FETCH_CYCLES - 2, FETCH_CYCLES - 1, FETCH_CYCLES, 3 * FETCH_CYCLES])
def test_commands_follow_when_read_and_free(duration):
    check([(0, [0] * 4, [duration] * 4, {})])


def test_a_run_of_one_command():
    check([(7, [0], [5], {})])


@pytest.mark.parametrize("late", [0, 1, 2, 50])
def test_waiting_for_a_grant_is_counted(late):
    # The second command could start in this cycle, were it granted.
    ready = FIRST_FETCH_CYCLES + FETCH_CYCLES
    check([(0, [0, 1, 1], [3, 4, 5], {1: ready + late})])


def test_grant_during_a_command_stalls_nothing():
    check([(0, [0, 1], [4 * FETCH_CYCLES, 2], {1: 2 * FETCH_CYCLES})])


def test_grant_for_the_first_command():
    check([(0, [1, 1], [2, 2], {1: FIRST_FETCH_CYCLES + 9})])


def test_fewer_grants_than_asked_for_do_not_start():
    check([(0, [2, 3], [2, 2], {1: 40, 2: 60, 3: 140})])


def test_runs_start_their_account_anew():
    check([
        (0, [0, 1], [9, 30], {1: 100}),
        (64, [0, 0, 0], [1, 40, 2], {}),
        (201, [1], [6], {1: 77}),
    ])
