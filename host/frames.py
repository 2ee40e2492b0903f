"""Frames as bytes: what :mod:`almac.hdl.frame` defines, for the host."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from almac.hdl.frame import CRC_BYTES, END, ESC, ESC_END, ESC_ESC, REQUEST, RESPONSE, Request, Status

__all__ = ["Deframer", "Response", "frame", "request", "response"]

_ESCAPES = {END: bytes([ESC, ESC_END]), ESC: bytes([ESC, ESC_ESC])}


@dataclass(frozen=True, kw_only=True)
class Response:
    """A device's answer."""

    kind: int
    sequence: int
    status: Status
    expected: int
    payload: bytes


def frame(content: bytes) -> bytes:
    """Content and its CRC between delimiters; the first one ends whatever noise was before it."""
    body = content + zlib.crc32(content).to_bytes(CRC_BYTES, "little")
    body = body.replace(bytes([ESC]), _ESCAPES[ESC]).replace(bytes([END]), _ESCAPES[END])
    return bytes([END]) + body + bytes([END])


def request(kind: Request, sequence: int, payload: bytes = b"", *, space: int = 0, column: int = 0,
            address: int = 0, count: int = 0, width: int = 0) -> bytes:
    """Bytes of a request."""
    header = REQUEST.const({
        "kind": kind.value, "sequence": sequence, "space": space, "column": column,
        "address": address, "count": count, "width": width}).as_bits()
    return frame(header.to_bytes(REQUEST.size // 8, "little") + payload)


def response(content: bytes) -> Response | None:
    """A response from the content of a frame; None if it is not one."""
    size = RESPONSE.size // 8
    if len(content) < size:
        return None
    header = RESPONSE.from_bits(int.from_bytes(content[:size], "little"))
    if header.status not in {status.value for status in Status}:
        return None
    return Response(kind=header.kind, sequence=header.sequence, status=Status(header.status),
                    expected=header.expected, payload=content[size:])


class Deframer:
    """Finds frames in a stream of bytes; drops what is damaged.

    Attributes
    ----------
    dropped : int
        Frames whose CRC was wrong.
    pending : int
        Bytes of a frame whose end has not come yet.
    """

    def __init__(self) -> None:
        self._pending = b""
        self.dropped = 0

    @property
    def pending(self) -> int:
        return len(self._pending)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Contents, without CRC, of the frames that ``data`` completes."""
        *frames, self._pending = (self._pending + data).split(bytes([END]))
        for line in frames:
            body = line.replace(_ESCAPES[END], bytes([END])).replace(_ESCAPES[ESC], bytes([ESC]))
            content, crc = body[:-CRC_BYTES], body[-CRC_BYTES:]
            if content and zlib.crc32(content).to_bytes(CRC_BYTES, "little") == crc:
                yield content
            elif line:
                self.dropped += 1
