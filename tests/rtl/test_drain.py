import numpy as np
import pytest

from almac.hdl.drain import Drain, DrainControl
from almac.sim.bench import simulate


@pytest.mark.parametrize(("size", "post_lanes"), [(1, 1), (4, 1), (8, 2), (6, 3), (4, 4)])
def test_results_leave_in_order(size, post_lanes):
    rng = np.random.default_rng(size)
    accs = rng.integers(-1 << 31, 1 << 31, (5, size))
    sides = rng.integers(-128, 128, (5, size))
    dut = Drain(size=size, post_lanes=post_lanes)
    got = []

    async def bench(ctx):
        for acc, side in zip(accs, sides, strict=True):
            ctx.set(dut.load, 1)
            ctx.set(dut.acc, acc.tolist())
            ctx.set(dut.side, side.tolist())
            await ctx.tick()
            ctx.set(dut.load, 0)
            # What the accumulators do meanwhile is of no interest.
            ctx.set(dut.acc, [0] * size)
            ctx.set(dut.side, [0] * size)
            for chunk in range(size // post_lanes):
                got.append((list(ctx.get(dut.chunk_acc)), list(ctx.get(dut.chunk_side))))
                if chunk < size // post_lanes - 1:
                    await ctx.tick()

    simulate(dut, bench)
    assert got == [(acc[k:k + post_lanes].tolist(), side[k:k + post_lanes].tolist())
                   for acc, side in zip(accs, sides, strict=True) for k in range(0, size, post_lanes)]


def chunks_of(command, parts, outputs):
    """Chunks of all outputs: param, out, part, final."""
    for output in range(outputs):
        for chunk in range(command["drain"]):
            word, part = divmod(command["part"] + chunk, parts)
            yield (command["param"] + chunk * command["param_step"],
                   command["out"] + output * command["out_step"] + word, part,
                   int(output == outputs - 1 and chunk == command["drain"] - 1))


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("space", [0, 1, 5])
def test_chunks_follow_their_output(parts, space):
    """Outputs that come ``drain`` cycles apart leave without a gap, others with that gap."""
    rng = np.random.default_rng(parts)
    dut = DrainControl(parts=parts)
    got, expected = [], []

    async def bench(ctx):
        for _ in range(12):
            command = {
                "param": int(rng.integers(0, 100)), "param_step": int(rng.integers(0, 2)),
                "out": int(rng.integers(0, 1000)), "out_step": int(rng.integers(1, 5)),
                "part": int(rng.integers(0, parts)), "drain": int(rng.integers(1, 8))}
            outputs = int(rng.integers(1, 5))
            expected.extend(chunks_of(command, parts, outputs))
            ctx.set(dut.command, command)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for output in range(outputs):
                ctx.set(dut.load, 1)
                ctx.set(dut.final, output == outputs - 1)
                for cycle in range(command["drain"] + space):
                    await ctx.tick()
                    ctx.set(dut.load, 0)
                    ctx.set(dut.final, 0)
                    chunk = ctx.get(dut.chunk)
                    assert chunk.valid == (cycle < command["drain"])
                    if chunk.valid:
                        got.append((chunk.param, chunk.out, chunk.part, chunk.final))
            await ctx.tick()
            assert not ctx.get(dut.chunk.valid)

    simulate(dut, bench)
    assert got == expected
