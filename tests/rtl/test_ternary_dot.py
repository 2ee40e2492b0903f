# amaranth: UnusedElaboratable=no

import itertools

import numpy as np
import pytest
from amaranth import Shape

from almac.hdl.dot.code import decode, encode
from almac.hdl.dot.ternary import TernaryDot
from almac.sim.bench import simulate

LANES = [1, 2, 3, 4, 9, 16, 64]


def run(dut, acts, bits):
    """Signed sum of every row of operands, one row per cycle."""
    sums = []

    async def bench(ctx):
        for cycle in range(len(acts) + dut.LATENCY - 1):
            if cycle < len(acts):
                ctx.set(dut.act, acts[cycle].tolist())
                ctx.set(dut.code, int.from_bytes(np.packbits(bits[cycle], bitorder="little").tobytes(), "little"))
            await ctx.tick()
            if cycle >= dut.LATENCY - 1:
                total = ctx.get(dut.o)
                sums.append(-total if ctx.get(dut.negative) else total)

    simulate(dut, bench)
    return sums


def check(lanes, acts, trits):
    """Compare with the plain dot product."""
    acts, trits = np.asarray(acts), np.asarray(trits)
    bits, excess = encode(trits)
    expected = (acts * trits).sum(axis=-1) + excess
    assert run(TernaryDot(lanes=lanes), acts, bits) == expected.tolist()


@pytest.mark.parametrize("lanes", LANES)
def test_corners(lanes):
    rng = np.random.default_rng(lanes)
    trits = np.concatenate([np.full((1, lanes), value) for value in (-1, 0, 1)]
                           + [np.eye(1, lanes, lane) * sign for lane in range(lanes) for sign in (-1, 1)]
                           + [rng.integers(0, 2, (20, lanes)) * 2 - 1]).astype(int)
    # The same extreme in all lanes, the greatest and the least sum.
    acts = [np.full_like(trits, value) for value in (-128, 127)]
    acts += [np.where(trits > 0, 127, -128), np.where(trits > 0, -128, 127)]
    check(lanes, np.concatenate(acts), np.tile(trits, (4, 1)))


@pytest.mark.parametrize("lanes", LANES)
def test_random(lanes):
    rng = np.random.default_rng(lanes)
    check(lanes, rng.integers(-128, 128, (200, lanes)), rng.integers(-1, 2, (200, lanes)))


@pytest.mark.parametrize(("lanes", "codes"), [(1, range(-128, 128)), (2, (-128, -127, -1, 0, 1, 126, 127)),
                                              (3, (-128, 0, 127))])
def test_every_vector_of_trits(lanes, codes):
    pairs = itertools.product(itertools.product(codes, repeat=lanes), itertools.product((-1, 0, 1), repeat=lanes))
    check(lanes, *zip(*pairs, strict=True))


@pytest.mark.parametrize("lanes", [2, 5, 8])
def test_any_bits_are_what_they_decode_to(lanes):
    rng = np.random.default_rng(lanes)
    bits = rng.integers(0, 2, (100, 2 * lanes)).astype(np.uint8)
    acts = rng.integers(-128, 128, (100, lanes))
    sums = run(TernaryDot(lanes=lanes), np.concatenate([acts, 0 * acts]), np.concatenate([bits, bits]))
    weighed = np.array(sums[:100]) - np.array(sums[100:])
    assert weighed.tolist() == (acts * decode(bits)).sum(axis=-1).tolist()


@pytest.mark.parametrize("lanes", LANES)
def test_sum_is_no_wider_than_it_must_be(lanes):
    dut = TernaryDot(lanes=lanes)
    assert len(dut.code) == 2 * lanes
    least = Shape.cast(range(-128 * lanes, 128 * lanes)).width
    assert dut.sum_shape.signed
    assert dut.sum_shape.width == least


@pytest.mark.parametrize("lanes", [0, -1, "4", 1.0])
def test_wrong_lanes_are_refused(lanes):
    with pytest.raises(TypeError, match=r"^Lane count must be a positive integer, not "):
        TernaryDot(lanes=lanes)
