"""A device with a program in it: images in, results out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from almac.compiler.layout import fold_words, from_words, to_words
from almac.compiler.program import LayerInfo, Port, Program, Upload, input_width
from almac.hdl.command import COMMAND_WORDS, Space
from almac.host.client import Client
from almac.host.edges import dequantize, finish, prepare, quantize
from almac.host.errors import IdentityError, InputError
from almac.host.transport import Transport

__all__ = ["Device", "RunInfo"]

#: Cycles in which the device is expected to compute between two questions whether it is done.
_POLL_SECONDS = 20e-6

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RunInfo:
    """What the device counted during the latest run.

    Attributes
    ----------
    cycles : int
        From the start of the run to its last result in memory, waits for the host included.
    stalls : int
        Of these, the cycles in which the device waited for the host's weights.
    """

    cycles: int
    stalls: int


class Device:
    """Runs programs on whatever is at the other end of a transport.

    Parameters
    ----------
    transport : Transport
    timeout : float
        Seconds that any one operation may take in all.
    clock_hz : float
        Clock of the device, to wait as long as a run is predicted to take before asking.

    Attributes
    ----------
    latest : RunInfo or None
        What the device counted during the latest run.
    """

    def __init__(self, transport: Transport, *, timeout: float = 30.0, clock_hz: float = 100e6) -> None:
        self.transport = transport
        self._client = Client(transport, timeout=timeout)
        self._clock_hz = clock_hz
        self._loaded: str | None = None
        self.latest: RunInfo | None = None

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the transport."""
        self.transport.close()

    def load(self, program: Program) -> None:
        """Check that the device is the array that ``program`` is for, and load it.

        Raises
        ------
        IdentityError
            Before anything is sent, if it is another one.
        """
        # After an error the device may have been reset, or be another one.
        if self._loaded == program.digest and self._client.in_session:
            return
        self._loaded = None
        identity = self._client.identify()
        if identity.digest != program.config.digest:
            raise IdentityError(
                f"device has array {identity.size}, program wants {program.config} (configurations "
                f"{identity.digest.hex()} and {program.config.digest.hex()}); compile the model for the "
                "device's target")
        streamed = {upload.space for upload in program.uploads}
        for name, image in program.images.items():
            if name not in streamed and len(image):
                self._client.write(Space[name], 0, 0, image)
        self._loaded = program.digest

    def run(self, program: Program, x: np.ndarray | Mapping[str, np.ndarray], *,
            progress: Progress | None = None) -> dict[str, np.ndarray]:
        """Run images through ``program``.

        Parameters
        ----------
        x : ndarray[N, ...] or mapping of them by input name
            In the model's own layout and units.
        progress : callable
            Told how many images of how many are done.

        Returns
        -------
        dict[str, ndarray[N, ...]]
            Every output of the model, in the model's own layout and units.

        Raises
        ------
        InputError
            If a shape or an input's name is not the model's.
        """
        real = prepare(program, _batches(program, x))
        codes = _codes(program, real)
        total = len(next(iter(codes.values())))
        self.load(program)
        columns = program.config.columns
        parts: dict[str, list[np.ndarray]] = {port.name: [] for port in program.outputs}
        for first in range(0, total, columns):
            count = min(columns, total - first)
            for column in range(count):
                for port in program.inputs:
                    self._write_input(program, port, column, codes[port.value][first + column])
            pending = list(program.uploads)
            if pending:
                self._grant(0)
            if program.ends:
                self._execute(program, pending, 0, len(program.ends))
            else:
                # Nothing but the host's work: the codes come back as they went.
                self.latest = RunInfo(0, 0)
            for column in range(count):
                for port in program.outputs:
                    parts[port.name].append(self.read_value(program, port.value, column))
            if progress is not None:
                progress(first + count, total)
        results = {port.name: dequantize(port, np.stack(parts[port.name])) for port in program.outputs}
        return finish(program, {**real, **results})

    def step(self, program: Program, x: np.ndarray | Mapping[str, np.ndarray],
             ) -> Iterator[LayerInfo]:
        """Run up to ``columns`` images one layer at a time, so that each can be read before the next.

        Yields each layer once its output is in memory.
        """
        codes = _codes(program, prepare(program, _batches(program, x)))
        stepped = program.stepped()
        self.load(stepped)
        for port in program.inputs:
            for column, image in enumerate(codes[port.value]):
                self._write_input(program, port, column, image)
        pending = list(program.uploads)
        if pending:
            self._grant(0)
        for layer in program.layers:
            pending = self._execute(stepped, pending, layer.first, layer.commands)
            yield layer

    def read_value(self, program: Program, value: str, column: int = 0) -> np.ndarray:
        """A value in the device's memory: int8[C, H, W], or int64[C, H, W] for accumulators."""
        placement = program.placements[value]
        words = self._client.read(Space.ACTIVATION, column, placement.address,
                                  placement.size * placement.parts, program.config.lanes)
        return from_words(words.view(np.int8), placement)

    def trace(self, program: Program) -> list[int]:
        """Cycle count at the end of every command of the latest run."""
        words = self._client.read(Space.TRACE, 0, 0, len(program.ends), 4)
        return [int(word) for word in words.view("<u4")[:, 0]]

    def _write_input(self, program: Program, port: Port, column: int, codes: np.ndarray) -> None:
        words = to_words(fold_words(codes, port), program.config.lanes)
        self._client.write(Space.ACTIVATION, column, program.placements[port.value].address,
                           words[:, :input_width(program, port)].view(np.uint8))

    def _execute(self, program: Program, pending: list[Upload], first: int, count: int,
                 ) -> list[Upload]:
        """Run the commands from ``first`` on, up to the one marked as the last; what is still to upload."""
        pending = self._upload(program, pending, done=first)
        self._client.run(first * COMMAND_WORDS)
        if not pending:
            self.transport.pause(program.ends[first + count - 1] / self._clock_hz)
        deadline = self._client.deadline("run")
        while True:
            status = self._client.status()
            if not status.busy:
                break
            deadline.check(f"{status.done} of {count} commands done")
            pending = self._upload(program, pending, done=first + status.done)
            self.transport.pause(_POLL_SECONDS)
        self.latest = RunInfo(status.cycles, status.stalls)
        return pending

    def _upload(self, program: Program, pending: list[Upload], *, done: int) -> list[Upload]:
        """Send the weights that there is room for by now, and grant the commands that have theirs."""
        while pending and pending[0].after <= done:
            grant = pending[0].grant
            while pending and pending[0].grant == grant:
                upload = pending.pop(0)
                image = program.images[upload.space][upload.first:upload.first + upload.count]
                self._client.write(Space[upload.space], 0, upload.address, image)
            self._grant(grant)
        return pending

    def _grant(self, count: int) -> None:
        self._client.write(Space.GRANT, 0, 0, np.array([[count & 255, count >> 8]], np.uint8))


def _codes(program: Program, real: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Codes of a batch, by the value that they are of."""
    return {port.value: quantize(port, real[port.name]) for port in program.inputs}


def _batches(program: Program, x: np.ndarray | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Images by input, checked."""
    names = [feed.name for feed in program.feeds]
    if not isinstance(x, Mapping):
        if len(names) != 1:
            raise InputError(f"the model has the inputs {', '.join(names)}; give each by its name")
        x = {names[0]: x}
    if set(x) != set(names):
        raise InputError(f"the model has the inputs {', '.join(names)}, not {', '.join(sorted(x))}")
    batches = {}
    for feed in program.feeds:
        batch = np.asarray(x[feed.name])
        if batch.shape[1:] != feed.shape or not len(batch):
            raise InputError(f"input {feed.name!r} has shape {batch.shape}; the model takes "
                             f"[N, {', '.join(map(str, feed.shape))}] with N of at least 1")
        if program.before and batch.dtype != feed.dtype:
            if np.dtype(feed.dtype).kind != "f":
                raise InputError(f"input {feed.name!r} takes {feed.dtype}, not {batch.dtype}")
            batch = batch.astype(feed.dtype)
        batches[feed.name] = batch
    if len({len(batch) for batch in batches.values()}) > 1:
        raise InputError("inputs have different numbers of images")
    return batches
