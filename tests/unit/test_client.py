import time

import numpy as np
import pytest

from almac.hdl.command import Space
from almac.hdl.config import ArrayConfig
from almac.hdl.frame import END, RESPONSE, Request, Status
from almac.host.client import Client
from almac.host.errors import DeviceError, IdentityError, TransportError
from almac.host.frames import Deframer, frame
from almac.sim.device_model import DeviceModel

CONFIG = ArrayConfig(lanes=9, rows=4, columns=2, act_depth=2048, weight_depth=1024)


class FaultyLine:
    """A transport to a device that damages what passes, frame by frame, and cuts it at any place.

    Parameters
    ----------
    device : Transport
    seed : int
    rate : float
        Part of the frames that something happens to, in each direction.
    """

    def __init__(self, device, *, seed, rate):
        self._device = device
        self._rng = np.random.default_rng(seed)
        self._rate = rate
        self._answers = bytearray()
        self.faults = 0

    def write(self, data):
        self._device.write(self._damage(data))

    def read(self, limit, timeout):
        self._answers += self._damage(self._device.read(1 << 20, 0))
        size = min(limit, int(self._rng.integers(1, 200)))
        data = bytes(self._answers[:size])
        del self._answers[:size]
        return data

    def pause(self, seconds):
        pass

    def close(self):
        pass

    def _damage(self, data):
        frames = [part + bytes([END]) for part in data.split(bytes([END])) if part]
        return b"".join(self._fate(line) for line in frames)

    def _fate(self, line):
        rng = self._rng
        if rng.random() >= self._rate:
            return bytes([END]) + line
        self.faults += 1
        place = int(rng.integers(0, len(line)))
        match rng.integers(0, 7):
            case 0:
                return b""
            case 1:
                return line + line
            case 2:
                return line[:place]
            case 3:
                return line[:place] + rng.bytes(3) + line[place:]
            case 4:
                return line[:place] + bytes([line[place] ^ 1 << rng.integers(0, 8)]) + line[place + 1:]
            case 5:
                return line[:place] + line[place + 1:]
            case _:
                return rng.bytes(20) + bytes([END]) + line


class Silent:
    """A transport that nothing comes back from."""

    def __init__(self):
        self.sent = bytearray()

    def write(self, data):
        self.sent += data

    def read(self, limit, timeout):
        return b""

    def pause(self, seconds):
        pass

    def close(self):
        pass


class Edited:
    """A transport that edits the answers of a device, content by content."""

    def __init__(self, device, edit):
        self.device = device
        self._edit = edit

    def write(self, data):
        self.device.write(data)

    def read(self, limit, timeout):
        data = self.device.read(1 << 20)
        return b"".join(self._edit(content) for content in Deframer().feed(data))

    def pause(self, seconds):
        pass

    def close(self):
        pass


def words(rng, count, width):
    return rng.integers(0, 256, (count, width), dtype=np.uint8)


def session(transport, *, timeout=5.0):
    client = Client(transport, timeout=timeout)
    client.identify()
    return client


def test_identity():
    identity = Client(DeviceModel(CONFIG)).identify()
    assert identity.digest == CONFIG.digest
    assert identity.size == "9x4x2"


@pytest.mark.parametrize("width", [1, 5, 9])
def test_words_come_back(width):
    device = DeviceModel(CONFIG)
    client = session(device)
    sent = words(np.random.default_rng(width), 700, width)
    client.write(Space.ACTIVATION, 1, 100, sent)
    assert np.array_equal(client.read(Space.ACTIVATION, 1, 100, 700, width), sent)
    memory = device.memories[Space.ACTIVATION]
    assert np.array_equal(memory[1, 100:800, :width], sent)
    assert not memory[1, 100:800, width:].any()
    assert not memory[0].any()
    assert not memory[1, :100].any()
    assert not memory[1, 800:].any()


def test_narrow_words_clear_the_rest():
    device = DeviceModel(CONFIG)
    client = session(device)
    client.write(Space.ACTIVATION, 0, 0, np.full((2, 9), 255, np.uint8))
    client.write(Space.ACTIVATION, 0, 0, np.full((1, 3), 1, np.uint8))
    assert device.memories[Space.ACTIVATION][0, :2].tolist() == [[1] * 3 + [0] * 6, [255] * 9]


@pytest.mark.parametrize("space", [space for space in Space if space is not Space.TRACE])
def test_every_memory_is_written(space):
    device = DeviceModel(CONFIG)
    depth, width = device.memories[space].shape[1:]
    sent = words(np.random.default_rng(1), depth, width)
    session(device).write(space, 0, 0, sent)
    assert np.array_equal(device.memories[space][0], sent)


def test_run_and_status():
    def count(device, address):
        device.status.update(runs=device.status["runs"] + 1, done=3, cycles=99, stalls=2)

    device = DeviceModel(CONFIG, on_run=count)
    client = session(device)
    client.run(28)
    status = client.status()
    assert device.runs == [28]
    assert (status.busy, status.runs, status.done, status.cycles, status.stalls) == (False, 1, 3, 99, 2)


@pytest.mark.parametrize("rate", [0.05, 0.3])
@pytest.mark.parametrize("seed", range(15))
def test_faults_are_recovered(seed, rate):
    rng = np.random.default_rng(seed)
    device = DeviceModel(CONFIG)
    line = FaultyLine(device, seed=seed, rate=rate)
    client = session(line, timeout=20)
    expected = {space: memory.copy() for space, memory in device.memories.items()}
    for index in range(12):
        space = Space(rng.choice([Space.ACTIVATION.value, Space.WEIGHT.value, Space.TABLE.value]))
        depth, most = expected[space].shape[1:]
        column = int(rng.integers(0, len(expected[space])))
        count, width = int(rng.integers(1, depth)), int(rng.integers(1, most + 1))
        address = int(rng.integers(0, depth - count + 1))
        sent = words(rng, count, width)
        client.write(space, column, address, sent)
        expected[space][column, address:address + count] = 0
        expected[space][column, address:address + count, :width] = sent
        client.run(index)
        if space is Space.ACTIVATION:
            assert np.array_equal(client.read(space, column, address, count, width), sent)
    assert device.runs == list(range(12))
    for space, memory in expected.items():
        assert np.array_equal(device.memories[space], memory), space
    assert line.faults > 0


def test_sequence_numbers_wrap():
    device = DeviceModel(CONFIG)
    client = session(device)
    for index in range(600):
        client.run(index)
    assert device.runs == list(range(600))


def test_device_that_never_answers():
    start = time.monotonic()
    with pytest.raises(TransportError, match=r"^the device did not answer within 0\.2 s "
                       r"\(identity: 0 of 26 bytes received\); check that ") as caught:
        Client(Silent(), timeout=0.2).identify()
    assert 0.2 <= time.monotonic() - start < 1
    assert (caught.value.phase, caught.value.expected, caught.value.received) == ("identity", 26, 0)


class Muted(DeviceModel):
    """A device whose answers end after some bytes."""

    left = 1 << 30

    def read(self, limit, timeout=0.0):
        data = super().read(min(limit, self.left))
        self.left -= len(data)
        return data


@pytest.mark.parametrize(("phase", "operation"), [
    ("weights", lambda client: client.write(Space.WEIGHT, 0, 0, np.zeros((8, 9), np.uint8))),
    ("activations", lambda client: client.write(Space.ACTIVATION, 0, 0, np.zeros((8, 9), np.uint8))),
    ("result", lambda client: client.read(Space.ACTIVATION, 0, 0, 8, 9)),
    ("run", lambda client: client.run(0)),
    ("status", lambda client: client.status()),
])
def test_half_an_answer_then_silence(phase, operation):
    device = Muted(CONFIG)
    client = session(device, timeout=0.2)
    device.left = 6
    with pytest.raises(TransportError, match=rf"\({phase}: 6 of \d+ bytes received\)") as caught:
        operation(client)
    assert caught.value.phase == phase
    assert caught.value.received == 6 < caught.value.expected


def test_after_an_error_only_identify_is_left():
    """After a long transfer that failed, new numbers look like old ones, and old ones are not executed."""
    config = ArrayConfig(lanes=64, rows=64, weight_depth=200)
    device = Muted(config)
    client = session(device, timeout=1)
    device.left = 0
    sent = words(np.random.default_rng(2), 200, 1024)
    with pytest.raises(TransportError):
        client.write(Space.WEIGHT, 0, 0, sent)
    device.left = 1 << 30
    with pytest.raises(TransportError, match=r"^weights: the session has not begun, or has ended"):
        client.write(Space.WEIGHT, 0, 0, sent)
    client.identify()
    client.write(Space.WEIGHT, 0, 0, sent[:20])
    assert np.array_equal(device.memories[Space.WEIGHT][0][:20], sent[:20])


def test_nothing_before_identify():
    device = Silent()
    with pytest.raises(TransportError, match=r"^run: the session has not begun"):
        Client(device).run(0)
    assert not device.sent


@pytest.mark.parametrize("runs", [0, 1, 50, 100, 150, 200, 250])
def test_reset_during_a_session_is_reported(runs):
    """Whatever the number is that the session has come to: half of them look old to a new device."""
    line = Edited(DeviceModel(CONFIG), frame)
    client = session(line)
    for index in range(runs):
        client.run(index)
    line.device = DeviceModel(CONFIG)
    with pytest.raises(DeviceError, match=r"^run: the device was reset during the session"):
        client.run(0)
    assert line.device.runs == []


def _with_payload(edit):
    """Edit of a response: its header stays, its payload changes."""
    return lambda content: frame(content[:RESPONSE.size // 8] + edit(content[RESPONSE.size // 8:]))


@pytest.mark.parametrize(("payload", "message"), [
    (lambda old: b"blub" + old[4:], "what answers is not an almac device; check port and bitstream"),
    (lambda old: b"", "what answers is not an almac device; check port and bitstream"),
    (lambda old: old[:4] + b"\x72" + old[5:], "the device speaks protocol version 7, this host 1; "),
    (lambda old: old[:4] + b"\x22", "the device speaks protocol version 2, this host 1; "),
])
def test_other_identity_is_refused(payload, message):
    with pytest.raises(IdentityError, match=f"^{message}"):
        Client(Edited(DeviceModel(CONFIG), _with_payload(payload)), timeout=1).identify()


def test_refusals_are_decoded():
    device = DeviceModel(CONFIG)
    with pytest.raises(DeviceError, match=r"^weights: the device refused the request \(no such memory"):
        session(device).write(Space.WEIGHT, 0, CONFIG.weight_depth, np.zeros((1, 1), np.uint8))
    device.status["busy"] = 1
    with pytest.raises(DeviceError, match=r"^run: the device refused the request \(a run is going on\)$"):
        session(device).run(0)
    assert device.runs == []


def test_lost_refusal_stays_a_refusal():
    """A RUN that was refused as BUSY, whose answer is lost, is repeated: it has not started anything."""
    device = DeviceModel(CONFIG)
    device.status["busy"] = 1
    lost = []

    def lose_first_refusal(content):
        header = RESPONSE.from_bits(int.from_bytes(content[:4], "little"))
        if header.kind == Request.RUN.value | 0x80 and not lost:
            lost.append(header.status)
            device.status["busy"] = 0
            return b""
        return frame(content)

    with pytest.raises(DeviceError, match=r"a run is going on"):
        session(Edited(device, lose_first_refusal)).run(0)
    assert lost == [Status.BUSY.value]
    assert device.runs == []


@pytest.mark.parametrize("bad", [np.zeros((2, 2), np.int16), np.zeros(4, np.uint8)])
def test_words_wrong(bad):
    with pytest.raises(TypeError, match=r"^Words must be uint8\[count, width\], not "):
        session(DeviceModel(CONFIG)).write(Space.WEIGHT, 0, 0, bad)
