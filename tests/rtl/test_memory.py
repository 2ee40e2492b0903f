import numpy as np
import pytest

from almac.hdl.command import Space, words_of
from almac.hdl.config import ArrayConfig
from almac.hdl.memory import HostMemory, WordAssembler, WordLayout
from almac.sim.bench import simulate
from almac.sim.streams import send, take, watch_contract

CONFIG = ArrayConfig(lanes=4, rows=4, act_depth=32, weight_depth=32, scale_depth=32, param_depth=32, tables=1,
                     command_depth=32)


def bytes_of(word):
    """Bytes of a word on their way, the lowest first."""
    return [{**{name: word[name] for name in ("space", "column", "address")}, "data": byte,
             "first": index == 0, "last": index == len(word["bytes"]) - 1}
            for index, byte in enumerate(word["bytes"])]


def assembled(words, *, gaps=(), stalls=()):
    dut = WordAssembler(CONFIG)
    got = []

    async def producer(ctx):
        await send(ctx, dut.i, [byte for word in words for byte in bytes_of(word)], gaps=gaps)

    async def consumer(ctx):
        got.extend(await take(ctx, dut.o, len(words), stalls=stalls))

    async def monitor(ctx):
        await watch_contract(ctx, dut.o)

    simulate(dut, producer, consumer, background=[monitor])
    return got


@pytest.mark.parametrize("pace", ["full", "gappy", "stalled", "both"])
def test_words(pace):
    rng = np.random.default_rng(0)
    most = WordLayout(CONFIG)["data"].width // 8
    words = [{"space": Space(int(rng.integers(0, len(Space)))), "column": int(rng.integers(0, 256)),
              "address": int(rng.integers(0, 1 << 16)),
              "bytes": rng.integers(0, 256, rng.integers(1, most + 1)).tolist()} for _ in range(60)]
    gaps = rng.integers(0, 4, 2000).tolist() if pace in ("gappy", "both") else ()
    stalls = rng.integers(0, 9, 200).tolist() if pace in ("stalled", "both") else ()
    got = assembled(words, gaps=gaps, stalls=stalls)
    # Bytes that were not given are zero, whatever the word before was.
    assert [(word.space, word.column, word.address, word.data) for word in got] == [
        (word["space"], word["column"], word["address"], int.from_bytes(bytes(word["bytes"]), "little"))
        for word in words]


def test_one_byte_per_cycle():
    dut = WordAssembler(CONFIG)
    words = [{"space": Space.SCALE, "column": 0, "address": k, "bytes": [k, k]} for k in range(10)]
    offered = []

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        for byte in [byte for word in words for byte in bytes_of(word)]:
            ctx.set(dut.i.payload, byte)
            assert ctx.get(dut.i.ready)
            await ctx.tick()
            offered.append(ctx.get(dut.o.valid))

    simulate(dut, bench)
    assert offered == [0, 1] * 10


def test_layout_holds_the_widest_word():
    width = WordLayout(CONFIG)["data"].width
    assert width % 8 == 0
    assert width >= max(words_of(space, CONFIG)[0] for space in Space) > width - 8


@pytest.mark.parametrize("space", [Space.WEIGHT, Space.SCALE, Space.PARAM, Space.TABLE, Space.COMMAND])
def test_memory_keeps_what_is_meant_for_it(space):
    rng = np.random.default_rng(0)
    dut = HostMemory(space, CONFIG)
    bits, depth = words_of(space, CONFIG)
    contents = [0] * depth
    got, expected = [], []

    async def bench(ctx):
        for _ in range(400):
            addr, read = (int(value) for value in rng.integers(0, depth, 2))
            word = int.from_bytes(rng.bytes(-(-bits // 8)), "little") % (1 << bits)
            target = space if rng.integers(0, 2) else Space.ACTIVATION
            valid = int(rng.integers(0, 2))
            # Half of the reads are of the very word that is written.
            read = addr if rng.integers(0, 2) else read
            ctx.set(dut.write.payload, {"space": target, "column": 0, "address": addr, "data": word})
            ctx.set(dut.write.valid, valid)
            ctx.set(dut.addr, read)
            expected.append(contents[read])
            if valid and target is space:
                contents[addr] = word
            await ctx.tick()
            got.append(ctx.get(dut.data))

    simulate(dut, bench)
    assert got == expected
