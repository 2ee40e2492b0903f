import numpy as np
import pytest

from almac.hdl.dot.code import encode
from almac.hdl.pe import Pe
from almac.sim.bench import simulate


def run(dut, acts, trits, alphas, firsts, enables):
    """Accumulator after every beat that counts; a beat enters in every cycle."""
    bits, _ = encode(trits)
    sums = []

    async def bench(ctx):
        for cycle in range(len(acts) + dut.LATENCY - 1):
            if cycle < len(acts):
                ctx.set(dut.act, acts[cycle].tolist())
                code = np.packbits(bits[cycle], bitorder="little").tobytes()
                ctx.set(dut.code, int.from_bytes(code, "little"))
            late = cycle - dut.ALPHA_DELAY
            there = 0 <= late < len(acts)
            ctx.set(dut.alpha, int(alphas[late]) if there else 77)
            ctx.set(dut.first, int(firsts[late]) if there else 1)
            ctx.set(dut.enable, int(there and enables[late]))
            await ctx.tick()
            done = cycle - (dut.LATENCY - 1)
            if done >= 0 and enables[done]:
                sums.append(ctx.get(dut.acc))

    simulate(dut, bench)
    return sums


def accumulated(acts, trits, alphas, firsts, enables):
    """The same in plain integers."""
    _, excess = encode(trits)
    products = alphas * ((acts * trits).sum(axis=-1) + excess)
    acc, sums = 0, []
    for product, first, enable in zip(products, firsts, enables, strict=True):
        if enable:
            acc = int(product) + (0 if first else acc)
            sums.append(acc)
    return sums


@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
@pytest.mark.parametrize("pace", ["full", "gappy"])
def test_sums_of_scaled_dot_products(lanes, pace):
    rng = np.random.default_rng(lanes)
    size = 200
    beats = (rng.integers(-128, 128, (size, lanes)), rng.integers(-1, 2, (size, lanes)),
             rng.integers(-255, 256, size), rng.integers(0, 5, size) == 0,
             np.ones(size, bool) if pace == "full" else rng.integers(0, 3, size) > 0)
    beats[3][np.argmax(beats[4])] = True
    assert run(Pe(lanes=lanes), *beats) == accumulated(*beats)


@pytest.mark.parametrize("alpha", [-255, -1, 0, 1, 255])
@pytest.mark.parametrize("trit", [-1, 1])
@pytest.mark.parametrize("code", [-128, 127])
def test_extremes(alpha, trit, code):
    lanes, size = 16, 12
    beats = (np.full((size, lanes), code), np.full((size, lanes), trit), np.full(size, alpha),
             np.arange(size) == 0, np.ones(size, bool))
    sums = run(Pe(lanes=lanes), *beats)
    assert sums == accumulated(*beats)
    # Trits of one sign have no excess: nothing in the tree is complemented.
    assert sums == [(beat + 1) * lanes * code * trit * alpha for beat in range(size)]


def test_accumulator_holds_31_bits():
    # 16 * 128 * 255 * 4112 is just below 2**31.
    lanes, size = 16, 4112
    beats = (np.full((size, lanes), -128), np.full((size, lanes), 1), np.full(size, 255),
             np.arange(size) == 0, np.ones(size, bool))
    assert run(Pe(lanes=lanes), *beats)[-1] == -128 * 16 * 255 * size
