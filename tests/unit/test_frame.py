import re
import zlib
from pathlib import Path

import pytest
from amaranth.lib.crc.catalog import CRC32_ETHERNET

from almac.hdl import frame
from almac.hdl.command import Space
from almac.hdl.frame import END, ESC, IDENTITY, REQUEST, RESPONSE, STATUS, Request, Status
from almac.host.frames import Deframer, request, response
from almac.host.frames import frame as framed


def test_header_is_little_endian_without_holes():
    content = next(Deframer().feed(request(
        Request.WRITE, 2, b"\xaa\xbb", space=Space.SCALE.value, column=4, address=0x0605, count=0x0807,
        width=0x0A09)))
    assert content == bytes([2, 2, 2, 4, 5, 6, 7, 8, 9, 10, 0xAA, 0xBB])


@pytest.mark.parametrize(("layout", "size"), [(REQUEST, 10), (RESPONSE, 4), (IDENTITY, 17), (STATUS, 13)])
def test_layouts_are_whole_bytes(layout, size):
    assert layout.size == 8 * size


def test_checksum_is_that_of_zlib():
    data = bytes(range(256)) * 3
    assert CRC32_ETHERNET().compute(data) == zlib.crc32(data)


def test_codes_are_fixed():
    assert [kind.value for kind in Request] == [1, 2, 3, 4, 5]
    assert [status.value for status in Status] == [0, 1, 2, 3]
    assert frame.MAGIC.to_bytes(4, "little") == b"almc"


@pytest.mark.parametrize("content", [
    b"\x00", bytes([END]), bytes([ESC]), bytes([ESC, END, ESC, 0xDC, 0xDD]), bytes(range(256)) * 4])
def test_frame_comes_back(content):
    line = framed(content)
    assert line.count(END) == 2
    assert list(Deframer().feed(line)) == [content]


def test_deframer_takes_any_pieces():
    contents = [bytes([END, ESC, index]) for index in range(20)]
    line = b"noise" + b"".join(framed(content) for content in contents)
    for size in (1, 2, 3, 7):
        deframer = Deframer()
        pieces = [line[first:first + size] for first in range(0, len(line), size)]
        assert [content for piece in pieces for content in deframer.feed(piece)] == contents
        assert (deframer.dropped, deframer.pending) == (1, 0)


def test_any_flipped_bit_is_found():
    line = framed(b"\xc0\xdb\x01\x02")
    for place in range(1, len(line) - 1):
        for bit in range(8):
            damaged = line[:place] + bytes([line[place] ^ 1 << bit]) + line[place + 1:]
            assert list(Deframer().feed(damaged)) == [], (place, bit)


@pytest.mark.parametrize("content", [b"", b"\x81\x00\x00", b"\x81\x00\x04\x00"])
def test_what_is_no_response(content):
    assert response(content) is None


def test_formats_are_defined_once():
    """Numbers of the frame format occur in hdl/frame.py only."""
    root = Path(frame.__file__).parents[1]
    sources = [path for folder in ("hdl", "host", "sim") for path in (root / folder).rglob("*.py")
               if path.name != "frame.py"]
    assert len(sources) > 20
    pattern = re.compile(r"0x(C0|DB|DC|DD)\b|crc32\w*poly", re.IGNORECASE)
    assert [path.name for path in sources if pattern.search(path.read_text())] == []
