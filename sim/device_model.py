"""The device's end of the link in Python: what the RTL is compared with, and a board for tests of the host."""

import zlib

import numpy as np

from almac.hdl.command import Space, words_of
from almac.hdl.config import FORMAT_VERSION
from almac.hdl.frame import (
    CRC_BYTES,
    END,
    ESC,
    ESC_END,
    ESC_ESC,
    IDENTITY,
    MAGIC,
    PROTOCOL_VERSION,
    REQUEST,
    RESPONSE,
    STATUS,
    Request,
    Status,
)

__all__ = ["DeviceModel"]

_HEADER_BYTES = REQUEST.size // 8


class DeviceModel:
    """A device without an array: answers requests as :mod:`almac.hdl.frame` says, and keeps memories.

    It is a :class:`almac.host.transport.Transport` that never waits. It does not follow the hardware in how
    it gets at its answers, only in what they are.

    Parameters
    ----------
    config : ArrayConfig
    on_run : Callable[[DeviceModel, int], None]
        Called with the address of each run that starts; may change memories and status.
    queue_bytes : int
        Longest frame that is taken, with its CRC.

    Attributes
    ----------
    memories : dict[Space, uint8[columns, depth, bytes]]
        Only activations have more than one column.
    status : dict[str, int]
        Fields of :data:`almac.hdl.frame.STATUS`.
    runs : list[int]
        Addresses of the runs started.
    """

    def __init__(self, config, *, on_run=lambda device, address: None, queue_bytes=4096):
        self.config = config
        self.memories = {space: _memory(space, config) for space in Space}
        self.status = dict.fromkeys(("busy", "done", "runs", "cycles", "stalls"), 0)
        self.runs = []
        self._on_run = on_run
        self._queue_bytes = queue_bytes
        self._expected = 0
        self._identified = False
        self._latest = Status.OK
        self._frame = bytearray()
        self._escaped = False
        self._answers = bytearray()

    def write(self, data):
        """Take bytes of the line; every frame that they complete is executed and answered."""
        for byte in data:
            if byte == END:
                frame, self._frame, self._escaped = bytes(self._frame), bytearray(), False
                self._receive(frame)
            elif byte == ESC and not self._escaped:
                self._escaped = True
            else:
                unescaped = {ESC_END: END, ESC_ESC: ESC}.get(byte, byte)
                self._frame.append(unescaped if self._escaped else byte)
                self._escaped = False

    def read(self, limit, timeout=0.0):
        """Bytes of the answers, at most ``limit``."""
        data = bytes(self._answers[:limit])
        del self._answers[:limit]
        return data

    def pause(self, seconds):
        """Nothing happens by itself."""

    def close(self):
        """Nothing to release."""

    def _receive(self, frame):
        content, crc = frame[:-CRC_BYTES], frame[-CRC_BYTES:]
        if (_HEADER_BYTES <= len(content) and len(frame) <= self._queue_bytes
                and zlib.crc32(content).to_bytes(CRC_BYTES, "little") == crc):
            request = REQUEST.from_bits(int.from_bytes(content[:_HEADER_BYTES], "little"))
            self._answer(request, *self._serve(request, content[_HEADER_BYTES:]))

    def _serve(self, request, payload):
        """Status and payload of the answer to a request; counts and executes it if it is the expected one."""
        ahead = (request.sequence - self._expected) % 256
        if request.kind == Request.IDENTIFY.value:
            self._identified, ahead = True, 0
        if not self._identified or 0 < ahead < 128:
            return Status.SEQUENCE, b""
        if ahead == 0:
            self._expected = (request.sequence + 1) % 256
            self._latest, answer = self._execute(request, payload)
            return self._latest, answer
        if request.kind in (Request.READ.value, Request.STATUS.value):
            return self._execute(request, payload)
        if ahead == 255 and request.kind in (Request.WRITE.value, Request.RUN.value):
            return self._latest, b""
        return self._permits(request), b""

    def _execute(self, request, payload):
        status = self._permits(request)
        if request.kind in (Request.READ.value, Request.RUN.value) and self.status["busy"]:
            status = Status.BUSY
        if status is not Status.OK:
            return status, b""
        match Request(request.kind):
            case Request.IDENTIFY:
                return status, _pack(IDENTITY, self._identity())
            case Request.STATUS:
                return status, _pack(STATUS, self.status)
            case Request.READ:
                return status, self._words(request)[:, :request.width].tobytes()
            case Request.RUN:
                self.runs.append(request.address)
                self._on_run(self, request.address)
                return status, b""
            case Request.WRITE:
                words = self._words(request)
                given = min(len(payload) // request.width, request.count)
                words[:given] = 0
                words[:given, :request.width] = np.frombuffer(
                    payload[:given * request.width], np.uint8).reshape(given, request.width)
                complete = len(payload) == request.count * request.width
                return Status.OK if complete else Status.BAD, b""

    def _permits(self, request):
        """Whether a request makes sense: OK or BAD."""
        match request.kind:
            case Request.IDENTIFY.value | Request.STATUS.value:
                return Status.OK
            case Request.RUN.value:
                return _ok(request.address < self.config.command_depth)
            case Request.WRITE.value:
                return _ok(request.space != Space.TRACE.value and self._holds(request))
            case Request.READ.value:
                return _ok(request.space in (Space.ACTIVATION.value, Space.TRACE.value)
                           and self._holds(request))
        return Status.BAD

    def _holds(self, request):
        """Whether the words of a request exist."""
        if request.space not in {space.value for space in Space}:
            return False
        bits, depth = words_of(Space(request.space), self.config)
        return (request.column < self.config.columns and 0 < request.width <= -(-bits // 8)
                and 0 < request.count <= depth - request.address)

    def _words(self, request):
        memory = self.memories[Space(request.space)]
        column = request.column if len(memory) > 1 else 0
        return memory[column, request.address:request.address + request.count]

    def _identity(self):
        config = self.config
        return {
            "magic": MAGIC,
            "version": PROTOCOL_VERSION << 4 | FORMAT_VERSION,
            "digest": int.from_bytes(config.digest, "little"),
            "lanes": config.lanes, "rows": config.rows, "columns": config.columns,
            "post_lanes": config.post_lanes,
        }

    def _answer(self, request, status, payload):
        header = _pack(RESPONSE, {
            "kind": request.kind | 0x80, "sequence": request.sequence, "status": status.value,
            "expected": self._expected})
        content = header + payload
        escapes = {END: (ESC, ESC_END), ESC: (ESC, ESC_ESC)}
        for byte in content + zlib.crc32(content).to_bytes(CRC_BYTES, "little"):
            self._answers.extend(escapes.get(byte, (byte,)))
        self._answers.append(END)


def _memory(space, config):
    bits, depth = words_of(space, config)
    columns = config.columns if space is Space.ACTIVATION else 1
    return np.zeros((columns, depth, -(-bits // 8)), np.uint8)


def _ok(permitted):
    return Status.OK if permitted else Status.BAD


def _pack(layout, fields):
    return layout.const(fields).as_bits().to_bytes(layout.size // 8, "little")
