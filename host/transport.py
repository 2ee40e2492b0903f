"""Byte streams to devices: the only thing that differs between a board and the simulated board."""

import contextlib
import socket
import time
from typing import Protocol

import serial

from almac.host.errors import TransportError

__all__ = ["SerialTransport", "TcpTransport", "Transport", "open_transport"]

_BAUDRATE = 1_000_000

#: Seconds after which a line that takes no more bytes has failed.
_WRITE_SECONDS = 10.0


class Transport(Protocol):
    """A byte stream in both directions, without any structure of its own."""

    def write(self, data: bytes) -> None:
        """Send all of ``data``."""

    def read(self, limit: int, timeout: float) -> bytes:
        """What has come, at most ``limit`` bytes; waits up to ``timeout`` seconds for the first one.

        No bytes mean that none came in time, not that the stream has ended.
        """

    def pause(self, seconds: float) -> None:
        """Let the device work for ``seconds`` of its own time."""

    def close(self) -> None:
        """Release the stream."""


class SerialTransport:
    """A serial port: 8 data bits, no parity, one stop bit."""

    def __init__(self, port: str, baudrate: int = _BAUDRATE) -> None:
        try:
            self._port = serial.serial_for_url(port, do_not_open=True, baudrate=baudrate, timeout=0,
                                               write_timeout=_WRITE_SECONDS)
            # DTR tells USB bridges that somebody listens; RTS alone resets the chip beside it on some boards.
            self._port.dtr, self._port.rts = True, False
            self._port.open()
        except (serial.SerialException, ValueError) as error:
            raise TransportError(f"cannot open {port} ({error}); is the board connected, and may you use "
                                 "the port (group dialout)?", phase="open") from None

    def write(self, data: bytes) -> None:
        """Send all of ``data``."""
        try:
            self._port.write(data)
        except serial.SerialException as error:
            raise TransportError(f"the serial port failed while writing ({error})") from None

    def read(self, limit: int, timeout: float) -> bytes:
        """What has come within ``timeout``."""
        try:
            self._port.timeout = timeout
            first = bytes(self._port.read(1))
            self._port.timeout = 0
            return first + bytes(self._port.read(limit - 1)) if first else first
        except serial.SerialException as error:
            raise TransportError(f"the serial port failed while reading ({error})") from None

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close the port."""
        self._port.close()


class TcpTransport:
    """A socket, for instance to a simulated board in a process of its own."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=5)
        except OSError as error:
            raise TransportError(f"cannot connect to {host}:{port} ({error})", phase="open") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, data: bytes) -> None:
        """Send all of ``data``."""
        try:
            self._socket.settimeout(_WRITE_SECONDS)
            self._socket.sendall(data)
        except OSError as error:
            raise TransportError(f"the connection failed while writing ({error})") from None

    def read(self, limit: int, timeout: float) -> bytes:
        """What has come within ``timeout``."""
        self._socket.settimeout(max(timeout, 1e-3))
        try:
            data = self._socket.recv(limit)
        except TimeoutError:
            return b""
        except OSError as error:
            raise TransportError(f"the connection failed while reading ({error})") from None
        if not data:
            raise TransportError("the device closed the connection")
        return data

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self._socket.close()


def open_transport(where: str) -> Transport:
    """Transport for ``serial:PORT`` or ``tcp:HOST:PORT``."""
    kind, _, rest = where.partition(":")
    if kind == "serial" and rest:
        return SerialTransport(rest)
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host and port.isdigit():
        return TcpTransport(host, int(port))
    raise TransportError(f"there is no device {where!r}; supported: sim, serial:PORT, tcp:HOST:PORT",
                         phase="open")
