import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
from amaranth.back import verilog

from almac.hdl.command import Space, words_of
from almac.hdl.config import ArrayConfig
from almac.hdl.frame import MAX_PAYLOAD, Request
from almac.hdl.link.link import Link
from almac.host.frames import request
from almac.sim.bench import simulate
from almac.sim.device_model import DeviceModel
from almac.sim.streams import send, take, watch_contract

WAIVERS = Path(__file__).parents[2] / "sim" / "amaranth.vlt"

IDLE = {"busy": 0, "done": 0x1234, "runs": 0xC0DB, "cycles": 0x89ABCDEF, "stalls": 77}


def small(lanes):
    return ArrayConfig(lanes=lanes, rows=2, columns=2, act_depth=64, weight_depth=32, scale_depth=16,
                       param_depth=16, tables=1, command_depth=64)


class Surroundings:
    """What is around a Link: the line, and memories that keep what it writes and answer what it reads.

    Parameters
    ----------
    config : ArrayConfig
    status : dict[str, int]
    rng : Generator, optional
        Draws the cycles that each side waits; without it nobody ever waits.
    """

    def __init__(self, config, *, status=IDLE, rng=None, queue_bytes=4096):
        self.dut = Link(config, queue_bytes=queue_bytes)
        self.memories = DeviceModel(config).memories
        self.runs, self.answers, self.write_cycles = [], [], []
        self._status = status
        self._rng = rng

    def run(self, line, count, *, hold=0):
        """Send ``line``, take ``count`` bytes of answers after ``hold`` cycles; no more may follow."""
        dut = self.dut

        async def host(ctx):
            ctx.set(dut.status, self._status)
            await send(ctx, dut.rx, line, gaps=self._waits(4))

        async def listener(ctx):
            for _ in range(hold):
                await ctx.tick()
            self.answers.extend(await take(ctx, dut.tx, count, stalls=self._waits(4)))
            for _ in range(200):
                await ctx.tick()
                assert not ctx.get(dut.tx.valid), "more than the answers came out"

        watches = [self._watch(stream) for stream in (dut.tx, dut.write, dut.read, dut.run)]
        simulate(dut, host, listener, background=[self._store, self._fetch, self._start, *watches],
                 cycles=100_000)
        return bytes(self.answers)

    def _waits(self, most):
        while self._rng is not None:
            yield int(self._rng.integers(0, most) * self._rng.integers(0, 2))

    def _word(self, where):
        """Bytes of a word in memory; only activations have columns."""
        memory = self.memories[where.space]
        return memory[where.column if len(memory) > 1 else 0, where.address]

    async def _store(self, ctx):
        waits, dut, word, cycle = self._waits(4), self.dut, bytearray(), 0
        while True:
            wait = next(waits, 0)
            ctx.set(dut.write.ready, wait == 0)
            for _ in range(wait or 1):
                _, _, taken, byte = await ctx.tick().sample(
                    dut.write.valid & dut.write.ready, dut.write.payload)
                cycle += 1
            if not taken:
                continue
            self.write_cycles.append(cycle)
            if byte.first:
                word = bytearray()
            word.append(byte.data)
            if byte.last:
                place = self._word(byte)
                place[:] = list(word.ljust(len(place), b"\0"))

    async def _fetch(self, ctx):
        waits, dut = self._waits(6), self.dut
        while True:
            wanted, = await take(ctx, dut.read, 1, stalls=[next(waits, 0)])
            await send(ctx, dut.word, [int.from_bytes(self._word(wanted).tobytes(), "little")],
                       gaps=[next(waits, 0)])

    async def _start(self, ctx):
        while True:
            self.runs.extend(await take(ctx, self.dut.run, 1, stalls=self._waits(6)))

    @staticmethod
    def _watch(stream):
        async def monitor(ctx):
            await watch_contract(ctx, stream)
        return monitor


def compare(config, line, *, status=IDLE, rng=None, queue_bytes=4096, hold=0, begun=True):
    """Send ``line`` to the RTL and to the model: same answers, same memories, same runs.

    Before it, a session in which number 0 comes next has ``begun``.
    """
    line = request(Request.IDENTIFY, 255) + line if begun else line
    model = DeviceModel(config, queue_bytes=queue_bytes)
    model.status.update(status)
    model.write(line)
    expected = model.read(1 << 20)
    real = Surroundings(config, status=status, rng=rng, queue_bytes=queue_bytes)
    assert real.run(line, len(expected), hold=hold) == expected
    assert real.runs == model.runs
    for space, memory in model.memories.items():
        assert np.array_equal(real.memories[space], memory), space
    return expected


def any_request(rng, config, sequence):
    """A request, mostly a sensible one."""
    kind = Request(rng.choice([1, 2, 2, 2, 2, 3, 3, 4, 5]))
    space = Space(rng.choice([space.value for space in Space]))
    if kind is Request.READ and rng.integers(0, 4):
        space = Space.ACTIVATION
    bits, depth = words_of(space, config)
    width = int(rng.integers(1, -(-bits // 8) + 1))
    count = int(rng.integers(1, min(4, depth) + 1))
    fields = {"space": space.value, "column": int(rng.integers(0, config.columns)), "count": count,
              "address": int(rng.integers(0, depth - count + 1)), "width": width}
    if rng.integers(0, 6) == 0:
        # Out of bounds by one, by far, or nothing at all.
        wrong = [("space", 8), ("space", 255), ("column", config.columns), ("count", 0),
                 ("count", 65535), ("address", depth - count + 1), ("address", 65535), ("width", 0),
                 ("width", -(-bits // 8) + 1)]
        name, value = wrong[rng.integers(0, len(wrong))]
        fields[name] = value
    if kind is not Request.WRITE:
        return request(kind, sequence, **fields)
    size = min(fields["count"], 8) * min(fields["width"], 64) + rng.choice([0, 0, 0, 0, -1, 1])
    return request(kind, sequence, rng.bytes(max(0, size)), **fields)


def any_line(rng, config, frames):
    """Bytes of many frames, some of them lost, repeated, damaged, cut off, or out of order."""
    line, sequence, history = b"", 0, [request(Request.STATUS, 0)]
    for _ in range(frames):
        frame = any_request(rng, config, sequence)
        history.append(frame)
        place = int(rng.integers(1, len(frame) - 1))
        match rng.integers(0, 12):
            case 0:
                continue
            case 1:
                line += frame[:place] + bytes([frame[place] ^ 1 << rng.integers(0, 8)]) + frame[place + 1:]
                continue
            case 2:
                line += frame[:place]
            case 3:
                line += frame + frame
            case 4:
                line += frame + history[rng.integers(0, len(history))]
            case 5:
                line += rng.bytes(5) + frame
            case 6:
                line += any_request(rng, config, int(rng.integers(0, 256)))
            case _:
                line += frame
        sequence = (sequence + 1) % 256
        if rng.integers(0, 3) == 0:
            line += request(Request.IDENTIFY, sequence)
            sequence = (sequence + 1) % 256
    return line


@pytest.mark.parametrize("lanes", [1, 9, 16])
@pytest.mark.parametrize("seed", range(2))
def test_equals_model(lanes, seed):
    rng = np.random.default_rng([lanes, seed])
    config = small(lanes)
    expected = compare(config, any_line(rng, config, 40), rng=rng, queue_bytes=256)
    assert len(expected) > 300


@pytest.mark.parametrize("lanes", [1, 9])
def test_writes_and_reads_back(lanes):
    config = small(lanes)
    rng = np.random.default_rng(lanes)
    words = rng.bytes(20 * lanes)
    where = {"space": Space.ACTIVATION.value, "column": 1, "address": 3, "count": 20, "width": lanes}
    line = request(Request.WRITE, 0, words, **where) + request(Request.READ, 1, **where)
    assert words[:1] in compare(config, line)


@pytest.mark.parametrize("busy", [0, 1])
def test_refuses_while_busy(busy):
    config = small(4)
    trace = {"space": Space.TRACE.value, "address": 1, "count": 2, "width": 4}
    line = b"".join([
        request(Request.RUN, 0, address=5), request(Request.RUN, 0, address=5),
        request(Request.READ, 1, **trace), request(Request.READ, 1, **trace),
        request(Request.WRITE, 2, b"abcd", space=Space.GRANT.value, count=1, width=2),
        request(Request.WRITE, 3, b"ab", space=Space.GRANT.value, count=1, width=2),
        request(Request.STATUS, 4),
        request(Request.RUN, 5, address=config.command_depth),
        request(Request.RUN, 6, address=config.command_depth - 1),
        request(Request.RUN, 5, address=5),
    ])
    compare(config, line, status=IDLE | {"busy": busy})


def test_repeats_change_nothing():
    config = small(4)
    where = {"space": Space.ACTIVATION.value, "count": 1, "width": 4}
    first = request(Request.WRITE, 0, b"1111", **where)
    second = request(Request.WRITE, 1, b"2222", **where)
    start = request(Request.RUN, 2, address=7)
    compare(config, first + second + first + start + second + start
            + request(Request.READ, 3, **where) + first)


def test_frames_after_a_gap_are_not_executed():
    config = small(4)
    where = {"space": Space.ACTIVATION.value, "count": 1, "width": 4}
    line = b"".join(request(Request.WRITE, sequence, bytes([sequence] * 4), **where)
                    for sequence in (0, 2, 127, 128, 1, 2))
    compare(config, line + request(Request.READ, 3, **where))


def test_nothing_is_executed_before_an_identify():
    config = small(4)
    where = {"space": Space.ACTIVATION.value, "count": 1, "width": 4}
    line = b"".join(request(Request.WRITE, sequence, b"word", **where) + request(Request.RUN, sequence)
                    + request(Request.READ, sequence, **where) for sequence in (0, 1, 200, 255))
    compare(config, line + request(Request.IDENTIFY, 3) + request(Request.STATUS, 4), begun=False)


def test_full_queue_loses_nothing():
    config = small(8)
    line = b"".join(request(Request.WRITE, index, bytes([index] * 48), address=6 * index,
                            space=Space.ACTIVATION.value, count=6, width=8) for index in range(8))
    compare(config, line, queue_bytes=128, hold=1000)


@pytest.mark.parametrize("payload", [113, 114, 115, 128, 300])
def test_frame_longer_than_the_queue_is_dropped(payload):
    config = small(1)
    line = (request(Request.WRITE, 0, bytes(payload), count=1, width=1, column=1)
            + request(Request.STATUS, 0))
    compare(config, line, queue_bytes=128)


def test_one_payload_byte_per_cycle():
    config = ArrayConfig(lanes=64, rows=2, act_depth=64)
    line = request(Request.IDENTIFY, 255) + b"".join(
        request(Request.WRITE, index, bytes(MAX_PAYLOAD), address=16 * index,
                space=Space.ACTIVATION.value, count=16, width=64) for index in range(2))
    model = DeviceModel(config)
    model.write(line)
    real = Surroundings(config)
    real.run(line, len(model.read(1 << 20)))
    cycles = np.array(real.write_cycles).reshape(2, MAX_PAYLOAD)
    assert (np.diff(cycles, axis=1) == 1).all()
    # Header, CRC and delimiters are what the line costs; requests are executed while it goes on.
    assert cycles[1, 0] - cycles[0, 0] <= MAX_PAYLOAD + 24


@pytest.mark.parametrize("lanes", [1, 9, 16])
def test_verilog_is_clean(lanes, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = verilog.convert(Link(small(lanes)), name="link", emit_src=False)
    (tmp_path / "link.v").write_text(text)
    done = subprocess.run(["verilator", "--lint-only", "-Wall", "--top-module", "link", str(WAIVERS),
                           "link.v"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
