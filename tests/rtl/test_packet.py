# amaranth: UnusedElaboratable=no

import zlib

import numpy as np
import pytest

from almac.hdl.link.packet import PACKET_BYTE, CrcAppender, PacketQueue
from almac.hdl.link.slip import MARKED_BYTE
from almac.sim.bench import simulate
from almac.sim.streams import send, take, watch_contract

DEPTH = 64


def framed(content):
    """Bytes of a frame: content and CRC."""
    return content + zlib.crc32(content).to_bytes(4, "little")


def marked(frame):
    """Beats of a frame: its bytes, then its end."""
    return [*({"data": byte, "end": 0} for byte in frame), {"data": 0, "end": 1}]


def packet(content):
    """Beats of a packet."""
    return [PACKET_BYTE.const({"data": byte, "last": index == len(content) - 1})
            for index, byte in enumerate(content)]


def damaged(frame, rng):
    """The frame with one bit flipped, cut off, or lengthened."""
    kind, place = rng.integers(0, 3), rng.integers(0, len(frame))
    if kind == 0:
        return frame[:place] + bytes([frame[place] ^ 1 << rng.integers(0, 8)]) + frame[place + 1:]
    return frame[:place] if kind == 1 else frame + bytes([place])


def run(dut, beats, count, *, gaps=(), stalls=(), quiet=100):
    """Stream ``beats`` through ``dut``; its first ``count`` results, and no more may follow."""
    results = []

    async def producer(ctx):
        await send(ctx, dut.i, beats, gaps=gaps)

    async def consumer(ctx):
        results.extend(await take(ctx, dut.o, count, stalls=stalls))
        ctx.set(dut.o.ready, 1)
        for _ in range(quiet):
            await ctx.tick()
            assert not ctx.get(dut.o.valid), "more than the packets sent came out"
        ctx.set(dut.o.ready, 0)

    async def monitor(ctx):
        await watch_contract(ctx, dut.o)

    simulate(dut, producer, consumer, background=[monitor], cycles=50_000)
    return results


@pytest.mark.parametrize("pace", ["full", "gappy", "stalled"])
@pytest.mark.parametrize("seed", range(2))
def test_passes_whole_frames_only(seed, pace):
    rng = np.random.default_rng(seed)
    contents = [rng.bytes(rng.integers(1, DEPTH - 3)) for _ in range(30)]
    keep = rng.integers(0, 3, len(contents)) > 0
    frames = [framed(content) if good else damaged(framed(content), rng)
              for content, good in zip(contents, keep, strict=True)]
    beats = [beat for frame in frames for beat in marked(frame)]
    expected = [beat for content, good in zip(contents, keep, strict=True) if good
                for beat in packet(content)]
    gaps = rng.integers(0, 3, len(beats)).tolist() if pace == "gappy" else ()
    stalls = rng.integers(0, 4, len(beats)).tolist() if pace == "stalled" else ()
    got = run(PacketQueue(depth=DEPTH), beats, len(expected), gaps=gaps, stalls=stalls, quiet=4 * DEPTH)
    assert got == expected


def test_back_to_back_frames_keep_their_lengths():
    contents = [bytes(range(40)), bytes(range(50))]
    beats = [beat for content in contents for beat in marked(framed(content))]
    assert run(PacketQueue(depth=128), beats, 90) == [
        beat for content in contents for beat in packet(content)]


@pytest.mark.parametrize("size", [DEPTH - 5, DEPTH - 4, DEPTH - 3, DEPTH, DEPTH + 1, 3 * DEPTH])
def test_frame_that_exceeds_the_queue_is_dropped(size):
    first, large, final = b"first", bytes(size), b"final"
    beats = [beat for content in (first, large, final) for beat in marked(framed(content))]
    kept = [first, large, final] if size + 4 <= DEPTH else [first, final]
    expected = [beat for content in kept for beat in packet(content)]
    assert run(PacketQueue(depth=DEPTH), beats, len(expected), stalls=[200]) == expected


def test_full_queue_stalls_until_packets_leave():
    dut = PacketQueue(depth=DEPTH)
    contents = [bytes([index] * 30) for index in range(5)]
    beats = [beat for content in contents for beat in marked(framed(content))]
    expected = [beat for content in contents for beat in packet(content)]
    stalled = []

    async def witness(ctx):
        while True:
            _, _, valid, ready = await ctx.tick().sample(dut.i.valid, dut.i.ready)
            stalled.append(valid and not ready)

    got = []

    async def producer(ctx):
        await send(ctx, dut.i, beats)

    async def consumer(ctx):
        for _ in range(300):
            await ctx.tick()
        got.extend(await take(ctx, dut.o, len(expected)))

    simulate(dut, producer, consumer, background=[witness])
    assert got == expected
    assert sum(stalled) > 150


def test_latency_and_rate():
    dut = PacketQueue(depth=DEPTH)
    contents = [bytes(range(20))] * 4
    beats = [beat for content in contents for beat in marked(framed(content))]
    ends = [index for index, beat in enumerate(beats) if beat["end"]]
    offered = []

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.i.valid, 1)
        for cycle, beat in enumerate(beats + beats[:30]):
            ctx.set(dut.i.payload, beat)
            assert ctx.get(dut.i.ready)
            if ctx.get(dut.o.valid):
                offered.append(cycle)
            await ctx.tick()

    simulate(dut, bench)
    assert offered[:80] == [end + dut.LATENCY + byte for end in ends for byte in range(20)]


def test_many_short_packets_wait():
    contents = [bytes([index]) for index in range(50)]
    beats = [beat for content in contents for beat in marked(framed(content))]
    expected = [beat for content in contents for beat in packet(content)]
    assert run(PacketQueue(depth=1024), beats, len(expected), stalls=[1000]) == expected


def test_too_short_is_dropped():
    beats = [*marked(b""), *marked(framed(b"")), *marked(b"\x01"), *marked(framed(b"x"))]
    assert run(PacketQueue(depth=DEPTH), beats, 1) == packet(b"x")


@pytest.mark.parametrize("pace", ["full", "stalled"])
def test_appender_adds_crc_and_end(pace):
    rng = np.random.default_rng(7)
    contents = [rng.bytes(size) for size in (1, 2, 40, 7)]
    beats = [beat for content in contents for beat in packet(content)]
    lines = [[(byte, 0) for byte in framed(content)] + [(None, 1)] for content in contents]
    expected = [item for line in lines for item in line]
    stalls = rng.integers(0, 4, len(expected)).tolist() if pace == "stalled" else ()
    got = run(CrcAppender(), beats, len(expected), stalls=stalls)
    assert [(None if beat.end else beat.data, beat.end) for beat in got] == expected
    assert got[0].shape() == MARKED_BYTE


@pytest.mark.parametrize("depth", [0, 3, 100])
def test_depth_wrong(depth):
    with pytest.raises(ValueError, match=rf"^Depth must be a power of two, not {depth}$"):
        PacketQueue(depth=depth)
