"""cocotb bench of `almac.hdl.engine.Engine`, run by `test_engine.py`: a program over streams that stall.

Bytes come and answers are taken at random; the activations of every column and the cycles of every command
must be those of the interpreter and of the prediction.
"""

import json
import os

import cocotb
import numpy as np
from checker import Checker, start
from cocotb.triggers import RisingEdge
from networks import interpret, mixed_network, random_codes

from almac.compiler.emit import emit
from almac.compiler.layout import to_words
from almac.compiler.schedule import schedule
from almac.hdl.command import Space
from almac.hdl.config import ArrayConfig
from almac.hdl.frame import READ_WORD, STATUS, WRITE_BYTE

CONFIG = ArrayConfig(**json.loads(os.environ["CONFIG"]))


class Host:
    """The engine's neighbour: idle before a transfer with the probability ``stall``."""

    def __init__(self, dut, rng, *, stall):
        self.dut, self.rng, self.stall = dut, rng, stall

    async def pause(self):
        """Let some cycles pass."""
        while self.rng.random() < self.stall:
            await RisingEdge(self.dut.clk)

    async def send(self, stream, payload):
        """Transfer a payload."""
        await self.pause()
        valid, ready = (getattr(self.dut, f"{stream}__{name}") for name in ("valid", "ready"))
        getattr(self.dut, f"{stream}__payload").value = payload
        valid.value = 1
        await RisingEdge(self.dut.clk)
        while ready.value != 1:
            await RisingEdge(self.dut.clk)
        valid.value = 0

    async def write(self, space, words, *, column=0, address=0):
        """Write words: uint8[count, bytes]."""
        for index, word in enumerate(words):
            for place, byte in enumerate(word):
                await self.send("write", WRITE_BYTE.const({
                    "space": space, "column": column, "address": address + index, "data": int(byte),
                    "first": place == 0, "last": place == len(word) - 1}).as_bits())

    async def read(self, space, count, *, column=0):
        """The first ``count`` words; an answer that waits must stay."""
        dut, words = self.dut, []
        for address in range(count):
            await self.send("read", READ_WORD.const(
                {"space": space, "column": column, "address": address}).as_bits())
            offered = None
            while True:
                ready = self.rng.random() >= self.stall
                dut.word__ready.value = int(ready)
                await RisingEdge(dut.clk)
                word = dut.word__payload.value.to_unsigned() if dut.word__valid.value == 1 else None
                assert offered in (None, word), "An answer was withdrawn"
                offered = word
                if ready and word is not None:
                    break
            dut.word__ready.value = 0
            words.append(word)
        return words

    def status(self):
        """Account of the run."""
        return STATUS.from_bits(self.dut.status.value.to_unsigned())


@cocotb.test()
async def program_matches_interpreter(dut):
    rng = np.random.default_rng(int(os.environ["SEED"]))
    graph = mixed_network(rng, shape=(3, 3, 4), count=5, kernel=(2, 2), pads=(1, 0, 0, 1))
    program = emit(schedule(graph, CONFIG), graph)
    assert not program.uploads
    place = program.placements["x"]
    images = [random_codes(rng, place.shape) for _ in range(CONFIG.columns)]

    host = Host(dut, rng, stall=0.3)
    await start(dut, "write__valid", "write__payload", "read__valid", "read__payload", "word__ready",
                "run__valid", "run__payload")
    with Checker() as check:
        for name, words in program.images.items():
            await host.write(Space[name], words)
        for column, image in enumerate(images):
            await host.write(Space.ACTIVATION, to_words(image, CONFIG.lanes).view(np.uint8), column=column,
                             address=place.address)
        # The last word is on its way for a cycle.
        await RisingEdge(dut.clk)
        await host.send("run", 0)
        await RisingEdge(dut.clk)
        while host.status().busy:
            await RisingEdge(dut.clk)
        check.equal(host.status().cycles, program.cycles, "cycles")
        check.equal(host.status().stalls, 0, "stalls")
        check.equal_lists(await host.read(Space.TRACE, len(program.ends)), list(program.ends), "end")
        used = max(place.address + place.size * place.parts for place in program.placements.values())
        for column, image in enumerate(images):
            words = interpret(program, image).activations[:used]
            expected = [int.from_bytes(word.tobytes(), "little") for word in words]
            check.equal_lists(await host.read(Space.ACTIVATION, used, column=column), expected,
                              f"column {column}, word ")
        dut._log.info("%d comparisons", check.count)
