"""Requests that arrive exactly once, over a line that may lose, damage or repeat bytes."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from almac.hdl.command import Space
from almac.hdl.frame import (
    CRC_BYTES,
    IDENTITY,
    MAGIC,
    MAX_PAYLOAD,
    PROTOCOL_VERSION,
    RESPONSE,
    STATUS,
    Request,
    Status,
)
from almac.host.deadline import Deadline
from almac.host.errors import DeviceError, IdentityError, TransportError
from almac.host.frames import Deframer, Response, request, response
from almac.host.transport import Transport

__all__ = ["Client", "DeviceStatus", "Identity"]

#: Frames under way at once; together they fit into the device's queue.
_WINDOW = 3

#: Seconds without an answer after which a request is repeated, and how often that doubles.
_PATIENCE = 0.25
_DOUBLINGS = 3

_PHASES = {Space.ACTIVATION: "activations", Space.WEIGHT: "weights", Space.SCALE: "group scales",
           Space.PARAM: "parameters", Space.TABLE: "tables", Space.COMMAND: "commands",
           Space.TRACE: "trace", Space.GRANT: "grant"}


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who a device says it is."""

    digest: bytes
    size: str


@dataclass(frozen=True, kw_only=True)
class DeviceStatus:
    """What a device says of its latest run; see :data:`almac.hdl.frame.STATUS`."""

    busy: bool
    done: int
    runs: int
    cycles: int
    stalls: int


@dataclass(frozen=True, kw_only=True)
class _Request:
    kind: Request
    data: bytes
    sequence: int
    answer_bytes: int


class Client:
    """The host's end of the link.

    :meth:`identify` comes first, and again after any error: until then everything else is refused.

    Parameters
    ----------
    transport : Transport
    timeout : float
        Seconds that each operation may take in all, repetitions included.
    """

    def __init__(self, transport: Transport, *, timeout: float = 30.0) -> None:
        self._transport = transport
        self._timeout = timeout
        self._deframer = Deframer()
        self._sequence = 0
        # Whether the next number is the one that the device expects. Not after an error: then a request may be
        # under way or not, and by its number it may look like an old one.
        self._in_step = False

    @property
    def in_session(self) -> bool:
        """Whether a device has been identified, and nothing has failed since."""
        return self._in_step

    def deadline(self, phase: str) -> Deadline:
        """Deadline for an operation that starts now."""
        return Deadline(phase, self._timeout)

    def identify(self) -> Identity:
        """Ask who is there, and start counting requests anew.

        Raises
        ------
        IdentityError
            If what answers is no almac device, or speaks another version.
        """
        # Any number will do: the device takes it. Not the same one each time, so that no answer of an
        # earlier session is taken for one of this.
        self._sequence = time.monotonic_ns() & 0xFF
        self._in_step = True
        payload = self._call("identity", Request.IDENTIFY, answer_bytes=IDENTITY.size // 8)
        # Magic and version come first in any version; what follows them need not be as it is here.
        if int.from_bytes(payload[:4], "little") != MAGIC or len(payload) < 5:
            raise IdentityError("what answers is not an almac device; check port and bitstream")
        version = payload[4] >> 4
        if version != PROTOCOL_VERSION or len(payload) != IDENTITY.size // 8:
            raise IdentityError(f"the device speaks protocol version {version}, this host "
                                f"{PROTOCOL_VERSION}; build the bitstream with this version of almac")
        identity = IDENTITY.from_bits(int.from_bytes(payload, "little"))
        return Identity(digest=identity.digest.to_bytes(8, "little"),
                        size=f"{identity.lanes}x{identity.rows}x{identity.columns}")

    def status(self) -> DeviceStatus:
        """Ask for the state of the latest run."""
        payload = self._call("status", Request.STATUS, answer_bytes=STATUS.size // 8)
        status = STATUS.from_bits(int.from_bytes(payload, "little"))
        return DeviceStatus(busy=bool(status.busy), done=status.done, runs=status.runs,
                            cycles=status.cycles, stalls=status.stalls)

    def run(self, address: int) -> None:
        """Start the program at the command word ``address``."""
        self._call("run", Request.RUN, address=address)

    def write(self, space: Space, column: int, address: int, words: np.ndarray) -> None:
        """Write words from ``address`` on.

        Parameters
        ----------
        words : uint8[count, width]
            ``width`` bytes of each word; the rest of it becomes zero.
        """
        if words.dtype != np.uint8 or words.ndim != 2:
            raise TypeError(f"Words must be uint8[count, width], not {words.dtype}{list(words.shape)}")
        count, width = words.shape
        step = max(1, MAX_PAYLOAD // width)
        queue = []
        for first in range(0, count, step):
            part = words[first:first + step]
            queue.append(self._request(
                Request.WRITE, np.ascontiguousarray(part).tobytes(), space=space.value, column=column,
                address=address + first, count=len(part), width=width))
        self._exchange(_PHASES[space], queue)

    def read(self, space: Space, column: int, address: int, count: int, width: int) -> np.ndarray:
        """Read words: uint8[count, width]."""
        step = max(1, MAX_PAYLOAD // width)
        queue = [self._request(Request.READ, answer_bytes=min(step, count - first) * width,
                               space=space.value, column=column, address=address + first,
                               count=min(step, count - first), width=width)
                 for first in range(0, count, step)]
        phase = "result" if space is Space.ACTIVATION else _PHASES[space]
        payload = b"".join(self._exchange(phase, queue))
        return np.frombuffer(payload, np.uint8).reshape(count, width)

    def _call(self, phase: str, kind: Request, *, answer_bytes: int = 0, address: int = 0) -> bytes:
        return self._exchange(phase, [self._request(kind, answer_bytes=answer_bytes, address=address)])[0]

    def _request(self, kind: Request, payload: bytes = b"", *, answer_bytes: int = 0, **fields: int,
                 ) -> _Request:
        sequence = self._sequence
        self._sequence = (sequence + 1) & 0xFF
        return _Request(kind=kind, data=request(kind, sequence, payload, **fields), sequence=sequence,
                        answer_bytes=answer_bytes)

    def _exchange(self, phase: str, queue: list[_Request]) -> list[bytes]:
        """Send all requests, in order, until each has been answered; payloads of the answers."""
        if not self._in_step:
            raise TransportError(f"{phase}: the session has not begun, or has ended with an error; identify the "
                                 "device and load the program again", phase=phase)
        self._in_step = False
        try:
            answers = self._transfer(phase, queue)
        except TransportError as error:
            if error.phase:
                raise
            raise TransportError(f"{phase}: {error}", phase=phase) from error
        self._in_step = True
        return answers

    def _transfer(self, phase: str, queue: list[_Request]) -> list[bytes]:
        deadline = self.deadline(phase)
        answers: list[bytes] = []
        sent = 0
        repeats = 0
        while len(answers) < len(queue):
            while sent < min(len(queue), len(answers) + _WINDOW):
                self._transport.write(queue[sent].data)
                sent += 1
            patience = min(_PATIENCE * 2 ** min(repeats, _DOUBLINGS), max(deadline.left, 0.0))
            data = self._transport.read(4 * MAX_PAYLOAD, patience)
            # Silence, or word that a frame was lost: everything unanswered is sent again.
            again = not data
            for content in self._deframer.feed(data):
                item = response(content)
                if item is None or len(answers) == len(queue):
                    continue
                expected = queue[len(answers)]
                if _answers(item, expected, phase):
                    answers.append(item.payload)
                    repeats = 0
                elif item.status is Status.SEQUENCE and item.expected == expected.sequence:
                    again = True
            if len(answers) < len(queue):
                wanted = _frame_bytes(item.answer_bytes for item in queue)
                come = _frame_bytes(map(len, answers)) + self._deframer.pending
                deadline.check(f"{come} of {wanted} bytes received", expected=wanted, received=come)
            if again:
                sent = len(answers)
                repeats += 1
        return answers


def _answers(item: Response, expected: _Request, phase: str) -> bool:
    """Whether a response is the answer to a request; late answers to repetitions are not.

    Raises
    ------
    DeviceError
        If it is a refusal.
    """
    if item.sequence != expected.sequence or item.kind != expected.kind.value | 0x80:
        return False
    if item.status is Status.SEQUENCE:
        raise DeviceError(f"{phase}: the device was reset during the session; start again")
    if item.status is not Status.OK:
        raise DeviceError(f"{phase}: the device refused the request ({_REFUSALS[item.status]})")
    return len(item.payload) == expected.answer_bytes or expected.kind is Request.IDENTIFY


def _frame_bytes(payloads: Iterable[int]) -> int:
    """Bytes of responses with payloads of these sizes, unescaped, with their ends."""
    return sum(RESPONSE.size // 8 + size + CRC_BYTES + 1 for size in payloads)


_REFUSALS = {
    Status.BAD: "no such memory, word or request",
    Status.BUSY: "a run is going on",
}
