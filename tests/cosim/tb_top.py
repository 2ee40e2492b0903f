"""cocotb bench of `almac.hdl.top.Top`, run by `test_top.py`: a whole program over a line that stalls.

The line stops and goes at random in both directions; the answers, the activations of every column and
the cycles of every command must be those of the host's frames, the interpreter and the prediction.
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
from almac.hdl.frame import IDENTITY, STATUS, Request, Status
from almac.hdl.link.service import identity
from almac.host.frames import Deframer, request, response

CONFIG = ArrayConfig(**json.loads(os.environ["CONFIG"]))
LANES = CONFIG.lanes

#: Bytes of payload of a frame: small ones, to have many.
PAYLOAD = 48


class Line:
    """The host's end of the line."""

    def __init__(self, dut, rng, *, stall):
        self.dut, self.rng, self.stall = dut, rng, stall
        self.cycles = 0
        self.stalls = 0
        self._sequence = 0
        self._deframer = Deframer()
        self._waiting = []
        self._answers = []

    async def start(self):
        """Reset the device and connect the line."""
        await start(self.dut, "rx__valid", "rx__payload", "tx__ready")
        cocotb.start_soon(self._receive())
        cocotb.start_soon(self._send())

    async def exchange(self, requests):
        """Send requests one after the other without waiting; the responses to all."""
        first = len(self._answers)
        for kind, payload, fields in requests:
            self._waiting.append(request(kind, self._sequence, payload, **fields))
            self._sequence = (self._sequence + 1) & 0xFF
        last = self.cycles + 100_000
        while len(self._answers) < first + len(requests):
            await RisingEdge(self.dut.clk)
            assert self.cycles < last, "The device does not answer"
        return self._answers[first:]

    async def write(self, check, space, column, address, words):
        """Write words; the responses must say that it was done."""
        step = max(1, PAYLOAD // words.shape[1])
        parts = [(start, words[start:start + step]) for start in range(0, len(words), step)]
        answers = await self.exchange([
            (Request.WRITE, np.ascontiguousarray(part).tobytes(),
             {"space": space.value, "column": column, "address": address + start,
              "count": len(part), "width": words.shape[1]}) for start, part in parts])
        check.equal_lists([answer.status for answer in answers], [Status.OK] * len(parts), space.name)

    async def read(self, space, column, address, count, width):
        """Words: uint8[count, width]."""
        step = max(1, PAYLOAD // width)
        answers = await self.exchange([
            (Request.READ, b"",
             {"space": space.value, "column": column, "address": address + start,
              "count": min(step, count - start), "width": width}) for start in range(0, count, step)])
        payload = b"".join(answer.payload for answer in answers)
        return np.frombuffer(payload, np.uint8).reshape(count, width)

    async def _send(self):
        dut = self.dut
        while True:
            self.cycles += 1
            if not self._waiting:
                await RisingEdge(dut.clk)
                continue
            for byte in self._waiting.pop(0):
                while self.rng.random() < self.stall:
                    self.cycles += 1
                    await RisingEdge(dut.clk)
                dut.rx__valid.value = 1
                dut.rx__payload.value = byte
                await RisingEdge(dut.clk)
                self.cycles += 1
                while dut.rx__ready.value != 1:
                    await RisingEdge(dut.clk)
                    self.cycles += 1
                dut.rx__valid.value = 0

    async def _receive(self):
        dut = self.dut
        offered = None
        while True:
            ready = self.rng.random() >= self.stall
            dut.tx__ready.value = int(ready)
            await RisingEdge(dut.clk)
            byte = dut.tx__payload.value.to_unsigned() if dut.tx__valid.value == 1 else None
            assert offered is None or byte == offered, "A byte was withdrawn"
            offered = None if ready else byte
            self.stalls += offered is not None
            if ready and byte is not None:
                self._answers += [response(content) for content in self._deframer.feed(bytes([byte]))]


@cocotb.test()
async def program_matches_interpreter(dut):
    rng = np.random.default_rng(int(os.environ["SEED"]))
    graph = mixed_network(rng, shape=(5, 4, 3), count=6)
    program = emit(schedule(graph, CONFIG), graph)
    assert not program.uploads
    place = program.placements["x"]
    images = [random_codes(rng, place.shape) for _ in range(CONFIG.columns)]

    line = Line(dut, rng, stall=0.2)
    await line.start()
    with Checker() as check:
        [answer] = await line.exchange([(Request.IDENTIFY, b"", {})])
        check.equal(int.from_bytes(answer.payload, "little"), identity(CONFIG).as_bits(), "identity")
        check.equal(len(answer.payload), IDENTITY.size // 8, "bytes of the identity")

        for name, image in program.images.items():
            if len(image):
                await line.write(check, Space[name], 0, 0, image)
        for column, image in enumerate(images):
            await line.write(check, Space.ACTIVATION, column, place.address,
                             to_words(image, LANES).view(np.uint8))

        [answer] = await line.exchange([(Request.RUN, b"", {})])
        check.equal(answer.status, Status.OK, "answer to RUN")
        while True:
            [answer] = await line.exchange([(Request.STATUS, b"", {})])
            status = STATUS.from_bits(int.from_bytes(answer.payload, "little"))
            if not status.busy:
                break
        check.equal(status.cycles, program.cycles, "cycles")
        check.equal(status.done, len(program.ends), "commands")

        ends = await line.read(Space.TRACE, 0, 0, len(program.ends), 4)
        check.equal_lists(ends.copy().view("<u4")[:, 0].tolist(), list(program.ends), "end")
        used = max(place.address + place.size * place.parts for place in program.placements.values())
        for column, image in enumerate(images):
            words = await line.read(Space.ACTIVATION, column, 0, used, LANES)
            expected = interpret(program, image).activations[:used]
            check.equal_lists(words.view(np.int8).tolist(), expected.tolist(), f"column {column}, word ")
        assert line.stalls > 100
        check.equal(line._deframer.dropped, 0, "damaged frames")
        dut._log.info("%d comparisons in %d cycles", check.count, line.cycles)
