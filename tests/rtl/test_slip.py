import numpy as np
import pytest

from almac.hdl.frame import END, ESC, ESC_END, ESC_ESC
from almac.hdl.link.slip import MARKED_BYTE, SlipDecoder, SlipEncoder
from almac.sim.bench import simulate
from almac.sim.streams import send, take, watch_contract

#: Content of a frame, and how it looks on the line.
FRAMES = {
    "plain": (b"\x00\x01\xff", b"\x00\x01\xff\xc0"),
    "end": (bytes([END]), bytes([ESC, ESC_END, END])),
    "escape": (bytes([ESC]), bytes([ESC, ESC_ESC, END])),
    "both": (bytes([END, ESC, ESC, END]),
             bytes([ESC, ESC_END, ESC, ESC_ESC, ESC, ESC_ESC, ESC, ESC_END, END])),
    "codes_alone": (bytes([ESC_END, ESC_ESC]), bytes([ESC_END, ESC_ESC, END])),
    "empty": (b"", bytes([END])),
}


def marked(content):
    """Beats of a frame: its bytes, then its end."""
    beats = [{"data": byte, "end": 0} for byte in content]
    return [*beats, {"data": END, "end": 1}]


def run(dut, payloads, count, *, gaps=(), stalls=()):
    """Stream ``payloads`` through ``dut``; its first ``count`` results and the cycles they took."""
    results, cycles = [], [0]

    async def producer(ctx):
        await send(ctx, dut.i, payloads, gaps=gaps)

    async def consumer(ctx):
        results.extend(await take(ctx, dut.o, count, stalls=stalls))

    async def monitor(ctx):
        await watch_contract(ctx, dut.o)

    async def clock(ctx):
        while True:
            await ctx.tick()
            cycles[0] += 1

    simulate(dut, producer, consumer, background=[monitor, clock])
    return results, cycles[0]


def paces(pace):
    rng = np.random.default_rng(3)
    return {
        "full": {},
        "gappy": {"gaps": rng.integers(0, 3, 2000).tolist()},
        "stalled": {"stalls": rng.integers(0, 4, 2000).tolist()},
    }[pace]


@pytest.mark.parametrize("name", FRAMES)
def test_encoder(name):
    content, line = FRAMES[name]
    assert bytes(run(SlipEncoder(), marked(content), len(line))[0]) == line


@pytest.mark.parametrize("name", FRAMES)
def test_decoder(name):
    content, line = FRAMES[name]
    beats = marked(content)
    assert run(SlipDecoder(), line, len(beats))[0] == [MARKED_BYTE.const(beat) for beat in beats]


@pytest.mark.parametrize("pace", ["full", "gappy", "stalled"])
def test_decoder_inverts_encoder(pace):
    rng = np.random.default_rng(1)
    # Half of the bytes are those that matter.
    special = rng.choice([END, ESC, ESC_END, ESC_ESC], 200)
    content = np.where(rng.integers(0, 2, 200), special, rng.integers(0, 256, 200)).tolist()
    beats = [beat for first in range(0, 200, 20) for beat in marked(content[first:first + 20])]
    length = len(beats) + sum(byte in (END, ESC) for byte in content)
    line, _ = run(SlipEncoder(), beats, length, **paces(pace))
    assert line.count(END) == 10
    decoded, _ = run(SlipDecoder(), line, len(beats), **paces(pace))
    assert decoded == [MARKED_BYTE.const(beat) for beat in beats]


def test_end_after_escape_is_an_end():
    line = bytes([1, ESC, END, 2, END])
    beats = [*marked([1]), *marked([2])]
    assert run(SlipDecoder(), line, len(beats))[0] == [MARKED_BYTE.const(beat) for beat in beats]


def test_one_byte_per_cycle():
    _, decoding = run(SlipDecoder(), list(range(100)), 100)
    _, encoding = run(SlipEncoder(), marked(range(99)), 100)
    assert decoding <= 101
    assert encoding <= 101
