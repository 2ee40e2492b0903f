import numpy as np
import pytest

from almac.hdl.command import Opcode
from almac.hdl.vector import VectorUnit
from almac.sim.bench import simulate


def run(opcode, windows, gaps):
    """``acc`` and ``side`` after every window."""
    dut = VectorUnit(lanes=windows[0].shape[1])
    results = []

    async def bench(ctx):
        ctx.set(dut.opcode, opcode)
        pauses = iter(gaps)
        for window in windows:
            for index, word in enumerate(window):
                # Words that are none leave no trace, whatever they say.
                for _ in range(next(pauses, 0)):
                    ctx.set(dut.enable, 0)
                    ctx.set(dut.first, 1)
                    ctx.set(dut.word, [99] * dut.lanes)
                    await ctx.tick()
                ctx.set(dut.word, word.tolist())
                ctx.set(dut.first, index == 0)
                ctx.set(dut.enable, 1)
                await ctx.tick()
            assert dut.LATENCY == 1
            results.append((list(ctx.get(dut.acc)), list(ctx.get(dut.side))))

    simulate(dut, bench)
    return results


@pytest.mark.parametrize("lanes", [1, 4, 5])
@pytest.mark.parametrize("pace", ["full", "gappy"])
@pytest.mark.parametrize(("opcode", "reduced"), [(Opcode.MAX, np.max), (Opcode.SUM, np.sum)])
def test_reductions(lanes, pace, opcode, reduced):
    rng = np.random.default_rng(lanes)
    windows = [rng.integers(-128, 128, (rng.integers(1, 12), lanes)) for _ in range(40)]
    gaps = rng.integers(0, 3, 500).tolist() if pace == "gappy" else ()
    assert [acc for acc, _ in run(opcode, windows, gaps)] == [reduced(w, axis=0).tolist() for w in windows]


@pytest.mark.parametrize("pace", ["full", "gappy"])
def test_operands_of_a_sum(pace):
    rng = np.random.default_rng(0)
    windows = rng.integers(-128, 128, (40, 2, 4))
    gaps = rng.integers(0, 3, 100).tolist() if pace == "gappy" else ()
    assert run(Opcode.ADD, windows, gaps) == [(first.tolist(), second.tolist()) for first, second in windows]


@pytest.mark.parametrize("code", [-128, 127])
def test_extremes(code):
    window = np.full((300, 3), code)
    assert run(Opcode.SUM, [window], ())[0][0] == [300 * code] * 3
    assert run(Opcode.MAX, [window], ())[0][0] == [code] * 3


def test_greatest_of_negative_codes():
    windows = [np.array([[-128], [-3], [-128]]), np.array([[-128]])]
    assert [acc for acc, _ in run(Opcode.MAX, windows, ())] == [[-3], [-128]]
