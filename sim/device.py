"""The simulated board: the whole RTL design behind the same transport as a board on a serial port."""

import ctypes
import time

from almac.sim.verilated import library

__all__ = ["CLOCK_HZ", "SimulatedBoard"]

#: What a second is to a host that waits for the simulated board.
CLOCK_HZ = 100_000_000

#: Cycles without anything to do after which the clock stops.
_IDLE_CYCLES = 400

#: Cycles after which no more bytes of an answer follow.
_GAP_CYCLES = 8

#: Cycles between two looks at the wall clock.
_BLOCK_CYCLES = 200_000


class SimulatedBoard:
    """A transport to the compiled design.

    The clock runs only while the host waits, so what happens does not depend on the speed of the host.

    Parameters
    ----------
    config : ArrayConfig
    progress : Callable[[str], None]
        Told what is built, if anything is.

    Attributes
    ----------
    seconds : float
        Wall time spent simulating.
    """

    def __init__(self, config, *, progress=lambda message: None):
        self.config = config
        self.seconds = 0.0
        self._busy = False
        self._library = _load(library(config, progress=progress))
        self._board = self._library.board_new()

    @property
    def cycles(self):
        """Clock cycles since reset."""
        return self._library.board_cycles(self._board)

    def write(self, data):
        """Queue bytes for the device."""
        self._library.board_write(self._board, bytes(data), len(data))

    def read(self, limit, timeout):
        """Bytes that have come, at most ``limit``; runs the clock until there is one or all is quiet."""
        deadline = time.monotonic() + timeout
        available = self._run(_BLOCK_CYCLES, _IDLE_CYCLES, 1)
        while not available and self._busy and time.monotonic() < deadline:
            available = self._run(_BLOCK_CYCLES, _IDLE_CYCLES, 1)
        # What follows the first byte is on its way: let it come.
        self._run(4 * limit, _GAP_CYCLES, limit, patient=False)
        buffer = ctypes.create_string_buffer(limit)
        count = self._library.board_read(self._board, buffer, limit)
        return buffer.raw[:count]

    def pause(self, seconds):
        """Let the clock run for a time of the device, or until all is quiet."""
        self._run(int(seconds * CLOCK_HZ) + 1, _IDLE_CYCLES, 0)

    def close(self):
        """Free the simulator."""
        if self._board is not None:
            self._library.board_free(self._board)
            self._board = None

    def _run(self, limit, idle, wanted, *, patient=True):
        start = time.perf_counter()
        before = self.cycles
        available = self._library.board_run(self._board, limit, idle, wanted, patient)
        self.seconds += time.perf_counter() - start
        self._busy = self.cycles - before >= limit
        return available


def _load(path):
    """The compiled design, with the types of its functions."""
    board = ctypes.CDLL(str(path))
    pointer, count = ctypes.c_void_p, ctypes.c_uint64
    board.board_new.restype = pointer
    for name, result, arguments in (
        ("board_free", None, ()),
        ("board_cycles", count, ()),
        ("board_write", None, (ctypes.c_char_p, count)),
        ("board_run", count, (count, count, count, ctypes.c_int)),
        ("board_read", count, (ctypes.c_char_p, count)),
    ):
        function = getattr(board, name)
        function.restype = result
        function.argtypes = (pointer, *arguments)
    return board
