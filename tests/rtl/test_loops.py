import itertools
from math import prod

import numpy as np
import pytest

from almac.hdl.command import LEVELS, OUTER, steps
from almac.hdl.loops import Issue
from almac.sim.bench import simulate
from almac.sim.streams import send

FIELDS = ("address", "inside", "weight", "scale", "first", "last", "final")


def random_command(rng, **fields):
    """A command as the device gets it, and the strides that it is made from."""
    counts = rng.integers(1, 4, len(LEVELS)).tolist()
    strides = {name: rng.integers(-most, most + 1, len(LEVELS)).tolist()
               for name, most in (("address", 200), ("y", 2), ("x", 2))}
    command = {
        "count": [count - 1 for count in counts],
        **{f"{name}_step": steps(values, counts) for name, values in strides.items()},
        # Addresses wrap.
        "address": int(rng.integers(-300, 300)) % (1 << 16),
        "y": int(rng.integers(-3, 3)), "x": int(rng.integers(-3, 3)),
        "height": int(rng.integers(1, 6)), "width": int(rng.integers(1, 6)),
        "weight": int(rng.integers(0, 1000)), "scale": int(rng.integers(0, 1000)),
        "scale_beats": int(rng.integers(1, 6)), "drain": int(rng.integers(1, 65)),
        **fields,
    }
    return command, counts, strides


def beats_of(command, counts, strides, accepted):
    """Every beat with the cycle that it is issued in, by nested loops."""
    beats = prod(counts[OUTER:])
    cycle, drained = accepted, 0
    for number, index in enumerate(itertools.product(*(range(count) for count in counts))):
        beat = number % beats
        last = beat == beats - 1
        address, y, x = (command[name] + int(np.dot(index, values)) for name, values in strides.items())
        cycle += 1
        if last:
            cycle = max(cycle, drained)
            drained = cycle + command["drain"]
        yield cycle, (
            address % (1 << 16), int(0 <= y < command["height"] and 0 <= x < command["width"]),
            command["weight"] + beat, command["scale"] + beat // command["scale_beats"],
            int(beat == 0), int(last), int(number == prod(counts) - 1))


def run(commands, gaps=()):
    """Cycles in which commands were accepted, and beats with theirs."""
    dut = Issue()
    accepted, got = [], []

    async def producer(ctx):
        await send(ctx, dut.commands, [command for command, _, _ in commands], gaps=gaps)
        while ctx.get(dut.running):
            await ctx.tick()

    async def monitor(ctx):
        for cycle in itertools.count():
            _, _, taken, valid, beat = await ctx.tick().sample(
                dut.commands.valid & dut.commands.ready, dut.valid, dut.beat)
            if taken:
                accepted.append(cycle)
            if valid:
                got.append((cycle, tuple(int(beat[name]) for name in FIELDS)))

    simulate(dut, producer, background=[monitor], cycles=100_000)
    return accepted, got


@pytest.mark.parametrize("pace", ["full", "gappy"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_beats_are_those_of_nested_loops(seed, pace):
    rng = np.random.default_rng(seed)
    commands = [random_command(rng) for _ in range(6)]
    accepted, got = run(commands, rng.integers(0, 400, 6).tolist() if pace == "gappy" else ())
    assert got == [beat for start, command in zip(accepted, commands, strict=True)
                   for beat in beats_of(*command, start)]


@pytest.mark.parametrize("drain", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("beats", [1, 2, 3, 7])
def test_outputs_are_no_closer_than_their_drain(drain, beats):
    command = {"count": [3, 0, 0, 0, 0, 0, beats - 1], "scale_beats": 1, "drain": drain, "height": 1, "width": 1}
    _, got = run([(command, None, None)])
    ends = [cycle for cycle, beat in got if beat[FIELDS.index("last")]]
    assert ends == [beats + output * max(beats, drain) for output in range(4)]


def test_command_follows_the_final_beat():
    command = {"count": [0, 0, 0, 0, 0, 0, 4], "scale_beats": 1, "drain": 50}
    accepted, got = run([(command, None, None)] * 3)
    assert accepted == [0, 6, 12]
    assert [cycle for cycle, _ in got] == [*range(1, 6), *range(7, 12), *range(13, 18)]


def test_longest_loop():
    command = {"count": [0, 0, 0, 0, 0, 0, 1199], "address_step": [0] * 6 + [1], "scale_beats": 1200, "drain": 1,
               "address": 65000}
    _, got = run([(command, None, None)])
    assert [beat[0] for _, beat in got] == [(65000 + k) % 65536 for k in range(1200)]
    assert {beat[3] for _, beat in got} == {0}
