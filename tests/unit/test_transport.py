import os
import socket
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from almac.hdl.command import Space
from almac.hdl.config import ArrayConfig
from almac.host.client import Client
from almac.host.errors import TransportError
from almac.host.transport import SerialTransport, TcpTransport, open_transport
from almac.sim.device_model import DeviceModel

pty = pytest.importorskip("pty")
tty = pytest.importorskip("tty")

CONFIG = ArrayConfig(lanes=9, rows=4, act_depth=64)


class Port:
    """A serial port and the device's end of it.

    Attributes
    ----------
    name : str
    device : int
        File descriptor of the device's end.
    """

    def __init__(self):
        self.device, self._host = pty.openpty()
        tty.setraw(self._host)
        self.name = os.ttyname(self._host)
        self._threads = []

    def serve(self, model, *, gaps=()):
        """Answer for the device until the port is closed.

        Parameters
        ----------
        gaps : list of (int, float)
            Bytes of an answer after which so many seconds pass. Identities pass at once.
        """
        def run():
            while True:
                try:
                    model.write(os.read(self.device, 4096))
                except OSError:
                    return
                answer, start = model.read(1 << 20), 0
                for end, seconds in gaps if len(answer) > 50 else ():
                    os.write(self.device, answer[start:end])
                    time.sleep(seconds)
                    start = end
                os.write(self.device, answer[start:])

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def close(self):
        os.close(self._host)
        for thread in self._threads:
            thread.join(5)
        os.close(self.device)


@pytest.fixture
def port():
    with closing(Port()) as opened:
        yield opened


@pytest.mark.parametrize("gaps", [[], [(60, 0.5)], [(1, 0.02), (3, 0.02), (53, 0.3)]])
def test_serial_port_with_gaps(port, gaps):
    model = DeviceModel(CONFIG)
    sent = np.random.default_rng(4).integers(0, 256, (20, 9), dtype=np.uint8)
    model.memories[Space.ACTIVATION][0, :20] = sent
    port.serve(model, gaps=gaps)
    with closing(SerialTransport(port.name)) as transport:
        client = Client(transport, timeout=4)
        client.identify()
        assert np.array_equal(client.read(Space.ACTIVATION, 0, 0, 20, 9), sent)


def test_serial_port_that_stops_within_an_answer(port):
    model = DeviceModel(CONFIG)
    port.serve(model)
    with closing(SerialTransport(port.name)) as transport:
        client = Client(transport, timeout=1)
        client.identify()
        answers = iter([bytes(60)])
        model.read = lambda limit: next(answers, b"")
        start = time.monotonic()
        with pytest.raises(TransportError, match=r"\(result: 60 of 189 bytes received\)"):
            client.read(Space.ACTIVATION, 0, 0, 20, 9)
        assert time.monotonic() - start < 2


def test_serial_port_with_a_stray_byte(port):
    """It spoils the first answer; the second one is whole."""
    with closing(SerialTransport(port.name)) as transport:
        os.write(port.device, b"\xff")
        port.serve(DeviceModel(CONFIG))
        assert Client(transport, timeout=2).identify().digest == CONFIG.digest


def test_serial_port_that_takes_nothing(port, monkeypatch):
    monkeypatch.setattr("almac.host.transport._WRITE_SECONDS", 0.2)
    with (closing(SerialTransport(port.name)) as transport,
          pytest.raises(TransportError, match=r"^the serial port failed while writing")):
        transport.write(bytes(1 << 20))


def test_serial_port_that_is_not_there():
    with pytest.raises(TransportError, match=r"^cannot open /nowhere .*is the board connected"):
        SerialTransport("/nowhere")


@pytest.fixture
def server():
    """A listening socket, and the transport to open to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener, f"tcp:127.0.0.1:{listener.getsockname()[1]}"


def test_tcp(server):
    listener, where = server
    with closing(open_transport(where)) as transport:
        peer, _ = listener.accept()
        with peer:
            transport.write(b"question")
            assert peer.recv(100) == b"question"
            assert transport.read(100, 0.01) == b""
            peer.sendall(b"answer")
            assert transport.read(3, 1) + transport.read(100, 1) == b"answer"


def test_tcp_that_is_closed(server):
    listener, where = server
    with closing(open_transport(where)) as transport:
        listener.accept()[0].close()
        with pytest.raises(TransportError, match=r"^the device closed the connection$"):
            transport.read(100, 1)


def test_tcp_that_takes_nothing(server, monkeypatch):
    monkeypatch.setattr("almac.host.transport._WRITE_SECONDS", 0.2)
    listener, where = server
    with closing(open_transport(where)) as transport:
        peer, _ = listener.accept()
        with peer, pytest.raises(TransportError, match=r"^the connection failed while writing"):
            transport.write(bytes(1 << 26))


def test_error_of_the_line_names_the_phase(server):
    listener, where = server
    with closing(open_transport(where)) as transport:
        listener.accept()[0].close()
        with pytest.raises(TransportError, match=r"^identity: the ") as caught:
            Client(transport, timeout=1).identify()
        assert caught.value.phase == "identity"


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TransportError, match=r"^cannot connect to 127\.0\.0\.1:"):
        TcpTransport("127.0.0.1", port)


@pytest.mark.parametrize("where", ["usb", "serial:", "tcp:host", "tcp:host:port", "sim:1"])
def test_where_wrong(where):
    with pytest.raises(TransportError, match=rf"^there is no device '{where}'; supported: sim, serial:"):
        open_transport(where)
