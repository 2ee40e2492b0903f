"""Whole programs: the RTL does what the interpreter says, in the cycles that were predicted."""

from itertools import repeat

import numpy as np
import pytest
from networks import conv_network, interpret, mixed_network, random_codes

from almac.compiler.emit import emit
from almac.compiler.layout import to_words
from almac.compiler.schedule import schedule
from almac.hdl.command import Space
from almac.hdl.config import ArrayConfig
from almac.hdl.engine import Engine
from almac.sim.bench import simulate
from almac.sim.streams import send, take, watch_contract

DEPTHS = {"act_depth": 192, "weight_depth": 256, "scale_depth": 64, "param_depth": 128, "tables": 1,
          "command_depth": 1024}

MIXED = [
    ("1x1x1", {"shape": (2, 3, 3), "count": 2, "kernel": (2, 2), "pads": (1, 1, 0, 0)}),
    ("3x5x1", {"shape": (4, 4, 4), "count": 6, "kernel": (1, 1), "pads": (0, 0, 0, 0), "planes": 1}),
    ("4x4x1", {"shape": (3, 4, 5), "count": 5}),
    ("4x8x2", {"shape": (5, 4, 3), "count": 9, "dilations": (2, 1), "pads": (2, 1, 2, 0), "planes": 1}),
    ("8x4x2", {"shape": (9, 5, 4), "count": 10, "kernel": (3, 2), "strides": (2, 2), "planes": 1}),
    ("64x1x1", {"shape": (5, 3, 3), "count": 2, "planes": 1}),
    ("64x4x1", {"shape": (66, 3, 2), "count": 5, "planes": 1}),
]

CONVS = [
    ("4x64x1", {"shape": (3, 2, 2), "count": 66, "kernel": (1, 1)}),
    ("4x4x1", {"shape": (3, 3, 3), "count": 9, "raw": True}),
    ("4x4x1", {"shape": (6, 4, 4), "count": 6, "groups": 6, "kernel": (3, 3), "pads": (1, 1, 1, 1)}),
    ("8x4x1", {"shape": (8, 3, 3), "count": 5, "scale_groups": 4, "planes": 2, "kernel": (2, 2)}),
    ("2x2x1", {"shape": (8, 3, 3), "scale_groups": 2, "strides": (2, 2), "pads": (0, 1, 2, 3)}),
]


class Host:
    """What the link does, and what the host does with it.

    Parameters
    ----------
    idle : iterator of int
        Cycles to be idle before each transfer, in both directions.
    """

    def __init__(self, ctx, engine, idle=None):
        self.ctx, self.engine = ctx, engine
        self.idle = repeat(0) if idle is None else idle

    async def write(self, space, words, *, column=0, address=0):
        """Write words: uint8[count, bytes]."""
        await send(self.ctx, self.engine.write, [
            {"space": space, "column": column, "address": address + index, "data": int(byte),
             "first": place == 0, "last": place == len(word) - 1}
            for index, word in enumerate(words) for place, byte in enumerate(word)], gaps=self.idle)

    async def load(self, program, images):
        """Write everything that a run needs but what it streams in."""
        streamed = {upload.space for upload in program.uploads}
        for name, words in program.images.items():
            if name not in streamed:
                await self.write(Space[name], words)
        await self.give(program, images)
        await self.write(Space.GRANT, [(0, 0)])

    async def give(self, program, images):
        """Write an image for every column."""
        for column, image in enumerate(images):
            await self.write(Space.ACTIVATION, words_of(program, image), column=column,
                             address=program.placements["x"].address)

    async def start(self):
        """Start a run."""
        # The last word is on its way for a cycle.
        await self.ctx.tick()
        await send(self.ctx, self.engine.run, [0])

    async def finish(self):
        """Wait for the end of the run."""
        while self.ctx.get(self.engine.status.busy):
            await self.ctx.tick()

    async def stream(self, program, *, pause=0):
        """Write weights when there is room for them, ``pause`` cycles late."""
        ctx, status = self.ctx, self.engine.status
        for grant in sorted({upload.grant for upload in program.uploads}):
            uploads = [upload for upload in program.uploads if upload.grant == grant]
            while ctx.get(status.done) < uploads[0].after:
                await ctx.tick()
            for _ in range(pause):
                await ctx.tick()
            for upload in uploads:
                words = program.images[upload.space][upload.first:upload.first + upload.count]
                await self.write(Space[upload.space], words, address=upload.address)
            await self.write(Space.GRANT, [grant.to_bytes(2, "little")])

    async def read(self, space, count, *, column=0):
        """The first ``count`` words."""
        words = []
        for address in range(count):
            await send(self.ctx, self.engine.read, [{"space": space, "column": column, "address": address}],
                       gaps=self.idle)
            words += await take(self.ctx, self.engine.word, 1, stalls=self.idle)
        return words


def words_of(program, image):
    return to_words(image, program.config.lanes).view(np.uint8)


def compiled(graph, size, **depths):
    return emit(schedule(graph, ArrayConfig.parse(size, **{**DEPTHS, **depths})), graph)


def random_images(rng, program):
    """An image for every column."""
    return [random_codes(rng, program.placements["x"].shape) for _ in range(program.config.columns)]


def simulate_engine(config, bench):
    """Run ``bench(ctx, engine)``, watching the stream of answers."""
    engine = Engine(config)

    async def testbench(ctx):
        await bench(ctx, engine)

    async def monitor(ctx):
        await watch_contract(ctx, engine.word)

    simulate(engine, testbench, background=[monitor], cycles=200_000)


async def check(host, program, images, *, stalls=0):
    """Compare the whole activation memory, word for word, and the cycles of every command."""
    status = host.ctx.get(host.engine.status)
    assert status.done == len(program.ends)
    assert status.stalls == stalls
    assert status.cycles == program.cycles + stalls
    if stalls == 0:
        assert await host.read(Space.TRACE, len(program.ends)) == list(program.ends)
    for column, image in enumerate(images):
        expected = [int.from_bytes(word.tobytes(), "little") for word in interpret(program, image).activations]
        assert await host.read(Space.ACTIVATION, program.config.act_depth, column=column) == expected


@pytest.mark.parametrize(("make", "size", "network"), [
    *((mixed_network, *case) for case in MIXED), *((conv_network, *case) for case in CONVS)])
def test_matches_interpreter_and_prediction(make, size, network):
    rng = np.random.default_rng(1)
    program = compiled(make(rng, **network), size)
    assert not program.uploads
    images = random_images(rng, program)

    async def bench(ctx, engine):
        host = Host(ctx, engine)
        await host.load(program, images)
        await host.start()
        await host.finish()
        await check(host, program, images)

    simulate_engine(program.config, bench)


@pytest.mark.parametrize("seed", [1, 2])
def test_stalls_on_every_stream(seed):
    rng = np.random.default_rng(seed)
    program = compiled(conv_network(rng, kernel=(2, 2), count=6), "4x4x2")
    images = random_images(rng, program)

    async def bench(ctx, engine):
        host = Host(ctx, engine, idle=iter(lambda: int(rng.integers(0, 4)), None))
        await host.load(program, images)
        await host.start()
        await host.finish()
        await check(host, program, images)

    simulate_engine(program.config, bench)


def test_runs_one_after_the_other():
    rng = np.random.default_rng(0)
    program = compiled(conv_network(rng, kernel=(2, 2)), "4x4x1")
    batches = [random_images(rng, program) for _ in range(3)]

    async def bench(ctx, engine):
        host = Host(ctx, engine)
        await host.load(program, batches[0])
        for number, images in enumerate(batches):
            await host.give(program, images)
            await host.start()
            await host.finish()
            assert ctx.get(engine.status.runs) == number + 1
            await check(host, program, images)

    simulate_engine(program.config, bench)


def test_words_written_during_a_run_wait_for_results():
    rng = np.random.default_rng(0)
    program = compiled(conv_network(rng, shape=(3, 5, 5), kernel=(2, 2), count=8, planes=2), "4x4x1")
    images = random_images(rng, program)
    # Where the program has nothing: at the end of the memory.
    count = 30
    late = rng.integers(0, 256, (count, 4)).astype(np.uint8)
    address = program.config.act_depth - count
    assert all(place.address + place.size <= address for place in program.placements.values())

    async def bench(ctx, engine):
        host = Host(ctx, engine)
        await host.load(program, images)
        await host.start()
        await host.write(Space.ACTIVATION, late, address=address)
        assert ctx.get(engine.status.busy)
        await host.finish()
        assert ctx.get(engine.status.cycles) == program.cycles
        expected = interpret(program, images[0]).activations
        expected[address:] = late.view(np.int8)
        got = await host.read(Space.ACTIVATION, program.config.act_depth)
        assert got == [int.from_bytes(word.tobytes(), "little") for word in expected]

    simulate_engine(program.config, bench)


@pytest.mark.parametrize("pause", [0, 100])
def test_run_that_waits_for_grants(pause):
    rng = np.random.default_rng(0)
    program = compiled(conv_network(rng, shape=(6, 3, 3), count=15, kernel=(2, 2), planes=2), "4x4x1",
                       weight_depth=32)
    assert {upload.grant for upload in program.uploads} == {1, 2, 3, 4}
    images = random_images(rng, program)

    async def bench(ctx, engine):
        host = Host(ctx, engine)
        await host.load(program, images)
        # A second run waits for its own grants.
        for _ in range(2):
            await host.write(Space.GRANT, [(0, 0)])
            await host.give(program, images)
            await host.start()
            await host.stream(program, pause=pause)
            await host.finish()
            stalls = ctx.get(engine.status.stalls)
            assert stalls > 4 * pause
            await check(host, program, images, stalls=stalls)

    simulate_engine(program.config, bench)
