"""What host and device say to each other: the only definition of the frames.

A frame is a header, a payload and the CRC-32 (IEEE 802.3) of both, little endian, between SLIP delimiters
(RFC 1055). A frame that is too short, longer than the device's queue or has the wrong CRC is no frame at all;
nothing takes effect before the CRC of all of it has been checked.

Every request is answered by one response with its sequence number:

- IDENTIFY is always executed; the request with the next number is expected after it.
- The request that is expected is executed and counted, whether it is refused or not.
- An older one (by up to 128) is a repetition, since its answer was lost. READ and STATUS are executed again. WRITE
  and RUN are not: they are answered OK, and the latest request as it was before.
- A newer one is answered :attr:`Status.SEQUENCE` and not looked at, since one before it was lost. So is every one
  after a reset, until there is an IDENTIFY.

So the host may have several frames under way, and repeats from the one that was not answered.
"""

from amaranth.lib import data, enum

from almac.hdl.command import ADDRESS, Space

__all__ = [
    "CRC_BYTES", "END", "ESC", "ESC_END", "ESC_ESC", "IDENTITY", "MAGIC", "MAX_PAYLOAD",
    "PROTOCOL_VERSION", "READ_WORD", "REQUEST", "RESPONSE", "STATUS", "WRITE_BYTE", "Request", "Status",
]

#: SLIP: end of frame, and how it and the escape itself are written inside of one.
END, ESC, ESC_END, ESC_ESC = 0xC0, 0xDB, 0xDC, 0xDD

CRC_BYTES = 4

#: Bytes of payload of a WRITE or a READ.
MAX_PAYLOAD = 1024

PROTOCOL_VERSION = 1

#: First bytes of an identity, as a number: "almc".
MAGIC = int.from_bytes(b"almc", "little")


class Request(enum.Enum, shape=8):
    """What the host wants."""

    #: Who are you? Also the first request of a session: its sequence number is always taken.
    IDENTIFY = 1
    #: Payload into a memory: ``count`` words of ``width`` bytes, from ``address`` on; the rest of each word
    #: becomes zero.
    WRITE = 2
    #: The first ``width`` bytes of each of ``count`` words.
    READ = 3
    #: Start at the command word ``address``.
    RUN = 4
    STATUS = 5


class Status(enum.Enum, shape=8):
    """What became of a request."""

    OK = 0
    #: A frame before this one was lost, or the device was reset; this one was not looked at.
    SEQUENCE = 1
    #: No such request, memory or word; or a payload of another length than announced, whose words are written.
    BAD = 2
    #: Not while a run is going on.
    BUSY = 3


REQUEST = data.StructLayout({
    "kind": 8, "sequence": 8, "space": 8, "column": 8, "address": ADDRESS, "count": 16, "width": 16,
})

#: ``kind`` is that of the request plus 128; ``expected`` the sequence number that comes next.
RESPONSE = data.StructLayout({"kind": 8, "sequence": 8, "status": 8, "expected": 8})

IDENTITY = data.StructLayout({
    "magic": 32, "version": 8, "digest": 64, "lanes": 8, "rows": 8, "columns": 8, "post_lanes": 8,
})

#: ``done``: commands finished in this run; ``runs``: runs started since reset; ``cycles`` of this run so far or
#: of the latest one; ``stalls``: those of them in which the device waited for the host.
STATUS = data.StructLayout({"busy": 8, "done": 16, "runs": 16, "cycles": 32, "stalls": 32})

#: A byte of a word on its way into a memory, the lowest first.
WRITE_BYTE = data.StructLayout({
    "space": Space, "column": 8, "address": ADDRESS, "data": 8, "first": 1, "last": 1,
})

#: A word wanted from a memory.
READ_WORD = data.StructLayout({"space": Space, "column": 8, "address": ADDRESS})
