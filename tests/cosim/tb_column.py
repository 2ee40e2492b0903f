"""cocotb bench of `almac.hdl.column.Column`, run by `test_array.py`: from words of the host to codes.

The bench is the array's control: it drives each signal in the cycle that the timing of
`almac.hdl.control.Control` gives, from a table of what happens when.
"""

import json
import os
from collections import defaultdict

import cocotb
import numpy as np
from amaranth.lib import data
from checker import Checker, start
from cocotb.triggers import RisingEdge

from almac.hdl.command import COMMAND, PARAM, Opcode, Space, scale_layout
from almac.hdl.config import ArrayConfig
from almac.hdl.dot.code import encode, latency
from almac.hdl.drain import CHUNK
from almac.hdl.memory import WordLayout
from almac.hdl.timing import ARRAY_EXTRA, POST_LATENCY, READ_LATENCY, VECTOR_LATENCY
from almac.sim.rounding import saturate, shift_half_even

CONFIG = ArrayConfig(**json.loads(os.environ["CONFIG"]))
COLUMN = int(os.environ["COLUMN"])
LANES, ROWS, POST = CONFIG.lanes, CONFIG.rows, CONFIG.post_lanes
PARTS = LANES // POST
WORD = WordLayout(CONFIG)
PARAMS = data.ArrayLayout(PARAM, POST)
OUT = 40

INPUTS = ("command", "address", "code", "alpha", "param", "chunk", "write__payload")
STROBES = ("write__valid", "inside", "vector_enable", "vector_first", "array_enable", "array_first",
           "load")


class Schedule:
    """What to drive in which cycle, and what to look at."""

    def __init__(self):
        self.drive = defaultdict(dict)
        self.reads = {}
        self.end = 0

    def set(self, cycle, **values):
        """Drive ports in a cycle; strobes fall again after it."""
        self.drive[cycle].update(values)
        self.end = max(self.end, cycle + 1)

    def read(self, cycle, address):
        """Read a word: addressed now, there in the next cycle."""
        self.set(cycle, address=address)
        self.reads[cycle + 1] = address

    async def run(self, dut):
        """Words read, in order: int8[reads, lanes]."""
        words = []
        for cycle in range(self.end + 2):
            for name in STROBES:
                getattr(dut, name).value = 0
            dut.chunk.value = 0
            for name, value in self.drive[cycle].items():
                getattr(dut, name).value = value
            await RisingEdge(dut.clk)
            if cycle in self.reads:
                words.append(dut.word.value.to_unsigned().to_bytes(LANES, "little"))
        return np.frombuffer(b"".join(words), np.int8).reshape(-1, LANES)


async def write(dut, space, column, words):
    """Write words of bytes, from word 0 on."""
    schedule = Schedule()
    for address, word in enumerate(words):
        payload = WORD.const({
            "space": space, "column": column, "address": address,
            "data": int.from_bytes(np.asarray(word).astype(np.uint8).tobytes(), "little")})
        schedule.set(address, write__valid=1, write__payload=payload.as_bits())
    await schedule.run(dut)


def random_params(rng, count):
    shift = rng.integers(24, 30, count)
    return {"multiplier": rng.integers(1 << 20, 1 << 24, count), "shift": shift,
            "offset": rng.integers(-1 << 30, 1 << 30, count)}


def codes_of(acc, side, params, command, table):
    """Codes as NUMERICS.md section 4 says."""
    total = acc * params["multiplier"] + side * command["side_multiplier"] + params["offset"]
    codes = saturate(shift_half_even(total, params["shift"]) + command["zero_point"],
                     command["low"], command["high"])
    return table[codes.astype(int) + 128] if command["use_table"] else codes


def drain(schedule, load, results, params):
    """Load an output at a cycle, and take its chunks on to the memory."""
    schedule.set(load, load=1)
    chunks = results // POST
    for chunk in range(chunks):
        span = range(chunk * POST, (chunk + 1) * POST)
        word = PARAMS.const([{name: int(values[k]) for name, values in params.items()} for k in span])
        schedule.set(load + 2 + chunk, param=word.as_bits())
        schedule.set(load + POST_LATENCY + chunk, chunk=CHUNK.const({
            "valid": 1, "out": OUT + chunk // PARTS, "part": chunk % PARTS}).as_bits())
    return load + POST_LATENCY + chunks


@cocotb.test()
@cocotb.parametrize(use_table=[0, 1])
async def convolution(dut, use_table):
    rng = np.random.default_rng(use_table)
    words = rng.integers(-128, 128, (OUT, LANES))
    table = rng.integers(-128, 128, 256)
    command = {"opcode": Opcode.CONV, "pad": -77, "zero_point": 3, "low": -120, "high": 125,
               "side_multiplier": 0, "use_table": use_table, "table": 1}
    # Nine beats from anywhere; some of them outside of the image.
    address = rng.integers(0, OUT, 9)
    inside = rng.integers(0, 3, 9) > 0
    trits = rng.integers(-1, 2, (9, ROWS, LANES))
    alpha = rng.integers(-255, 256, (9, ROWS))
    bits, excess = encode(trits)
    acts = np.where(inside[:, None], words[address], command["pad"])
    acc = (alpha * ((trits * acts[:, None]).sum(axis=-1) + excess)).sum(axis=0)
    params = random_params(rng, ROWS)

    schedule = Schedule()
    schedule.set(0, command=COMMAND.const(command).as_bits())
    for beat in range(9):
        schedule.set(beat, address=int(address[beat]))
        code = data.ArrayLayout(1, bits[beat].size).const(bits[beat].reshape(-1).tolist())
        schedule.set(beat + 1, inside=int(inside[beat]), code=code.as_bits())
        schedule.set(
            beat + READ_LATENCY + latency(LANES), array_enable=1, array_first=int(beat == 0),
            alpha=scale_layout(CONFIG).const(alpha[beat].tolist()).as_bits())
    complete = 8 + READ_LATENCY + latency(LANES) + ARRAY_EXTRA
    done = drain(schedule, complete, ROWS, params)
    out_words = -(-ROWS // LANES)
    for k in range(out_words):
        schedule.read(done + k, OUT + k)

    await start(dut, *INPUTS, *STROBES)
    await write(dut, Space.ACTIVATION, COLUMN, words)
    await write(dut, Space.ACTIVATION, COLUMN + 1, np.full((OUT, LANES), 55))
    await write(dut, Space.TABLE, 0, [[0]] * 256 + [[code] for code in table])
    got = (await schedule.run(dut)).reshape(-1)[:ROWS]
    expected = codes_of(acc, 0, params, command, table)
    with Checker() as check:
        check.equal_lists(got.tolist(), expected.tolist(), "code")
        # A bench whose codes all saturate would see nothing.
        assert len(set(expected.tolist())) > 1 or ROWS == 1


@cocotb.test()
@cocotb.parametrize(opcode=[Opcode.MAX, Opcode.SUM, Opcode.ADD])
async def vector(dut, opcode):
    rng = np.random.default_rng(10 + opcode.value)
    words = rng.integers(-128, 128, (OUT, LANES))
    command = {"opcode": opcode, "left": 3 if opcode is Opcode.ADD else 0, "zero_point": -1,
               "low": -128, "high": 127, "use_table": 0,
               "side_multiplier": 7654321 if opcode is Opcode.ADD else 0}
    address = rng.integers(0, OUT, 2 if opcode is Opcode.ADD else 7)
    window = words[address]
    side = np.zeros(LANES, int)
    match opcode:
        case Opcode.MAX:
            acc = window.max(axis=0)
        case Opcode.SUM:
            acc = window.sum(axis=0)
        case Opcode.ADD:
            acc, side = window[0] << command["left"], window[1]
    params = random_params(rng, LANES)
    params["multiplier"] = np.full(LANES, (1 << 24) - 12345)

    schedule = Schedule()
    schedule.set(0, command=COMMAND.const(command).as_bits())
    for beat, word in enumerate(address):
        schedule.set(beat, address=int(word))
        schedule.set(beat + 1, inside=1)
        schedule.set(beat + READ_LATENCY, vector_enable=1, vector_first=int(beat == 0))
    done = drain(schedule, len(address) - 1 + READ_LATENCY + VECTOR_LATENCY, LANES, params)
    schedule.read(done, OUT)

    await start(dut, *INPUTS, *STROBES)
    await write(dut, Space.ACTIVATION, COLUMN, words)
    got = (await schedule.run(dut))[0]
    with Checker() as check:
        check.equal_lists(
            got.tolist(), codes_of(acc, side, params, command, None).tolist(), "code")


@cocotb.test()
async def words_come_back(dut):
    rng = np.random.default_rng(20)
    words = rng.integers(-128, 128, (64, LANES))
    await start(dut, *INPUTS, *STROBES)
    await write(dut, Space.ACTIVATION, COLUMN, words)
    schedule = Schedule()
    for address in range(64):
        schedule.read(address, address)
    with Checker() as check:
        check.equal_lists((await schedule.run(dut)).tolist(), words.tolist(), "word")
