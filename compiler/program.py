"""The program: what the host loads into a device, as a file that is safe to open."""

import hashlib
import io
import json
import zipfile
import zlib
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from almac.compiler.graph import Fold, Index
from almac.hdl.command import COMMAND, COMMAND_WORDS, Space
from almac.hdl.config import ArrayConfig

__all__ = ["Feed", "HostStep", "LayerInfo", "Placement", "Port", "Program", "ProgramError", "Upload"]

#: Changes whenever the file's contents change their meaning.
FILE_VERSION = 2

_FILE = "program.npz"

#: What reading an archive raises when it is cut off or damaged: a flipped bit may ask for an encryption or a
#: compression that there is not.
_UNREADABLE = (OSError, KeyError, zipfile.BadZipFile, EOFError, ValueError, RuntimeError, zlib.error)


class ProgramError(Exception):
    """A file is not a program, or not one for this device."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a value lies in activation memory: ``parts`` tensors of ``(C, H, W)``, channels last."""

    address: int
    shape: tuple[int, int, int]
    words: int
    parts: int = 1

    @property
    def size(self) -> int:
        """Words of one of the parts."""
        return self.shape[1] * self.shape[2] * self.words


@dataclass(frozen=True, kw_only=True)
class Port:
    """An input or output of the model, and what the host does with it.

    Attributes
    ----------
    name, value : str
        Name in the model; the value on the device.
    shape : tuple[int, ...]
        Of one image, as in the model.
    scale, bias : tuple[float, ...]
        One, or one for each channel; ``bias`` of outputs only.
    zero_point : int
        Of the code on the device.
    unsigned, exact : bool
        The model's codes are ``uint8``; the user gives or gets codes, not real numbers.
    low, high : float
        Limits: of the codes of an input, of the real numbers of an output.
    move : Index | None
        How the host moves the codes of an input before it sends them, or what it has read of an output.
    fold : Fold | None
        How the host then lays kernel positions into the channels, if it does.
    """

    name: str
    value: str
    shape: tuple[int, ...]
    scale: tuple[float, ...]
    bias: tuple[float, ...] = (0.0,)
    zero_point: int = 0
    unsigned: bool = False
    exact: bool = False
    low: float = -np.inf
    high: float = np.inf
    move: Index | None = None
    fold: Fold | None = None


@dataclass(frozen=True, kw_only=True)
class Feed:
    """A tensor that the user gives: shape of one image, and NumPy's name of its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class HostStep:
    """An operator that the host computes on real tensors of one image, as an ONNX model of its own."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    model: bytes


@dataclass(frozen=True, kw_only=True)
class Upload:
    """Words for a memory, to be written once ``after`` commands of the run are done.

    Uploads that share ``grant`` are followed by that many grants given in all.
    """

    space: str
    address: int
    first: int
    count: int
    after: int
    grant: int


@dataclass(frozen=True, kw_only=True)
class LayerInfo:
    """A layer for reports: its commands, and what they cost."""

    name: str
    kind: str
    output: str
    first: int
    commands: int
    macs: int
    cycles: int
    acc_bits: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """Everything that a device needs to run a model, and a host to talk to it.

    Attributes
    ----------
    config : ArrayConfig
        The array that it is for; no other one runs it.
    images : dict[str, uint8[words, bytes]]
        Contents of each memory, by the name of its :class:`~almac.hdl.command.Space`. Those that
        ``uploads`` mention are written during a run, the others once.
    feeds, results : tuple[Feed, ...], tuple[str, ...]
        What the user gives, and the names of what the user gets.
    before, after : tuple[HostStep, ...]
        What the host computes before the device runs, and after it; from feeds to ``inputs``, and from ``outputs``
        to results, where these are not the same.
    inputs, outputs : tuple[Port, ...]
    placements : dict[str, Placement]
        Every value that is in memory at the end of the layer that makes it.
    layers : tuple[LayerInfo, ...]
    uploads : tuple[Upload, ...]
        Empty if all weights stay on the device.
    ends : tuple[int, ...]
        Predicted cycle count at the end of every command.
    """

    config: ArrayConfig
    images: dict[str, np.ndarray]
    feeds: tuple[Feed, ...]
    results: tuple[str, ...]
    before: tuple[HostStep, ...] = ()
    after: tuple[HostStep, ...] = ()
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    placements: dict[str, Placement]
    layers: tuple[LayerInfo, ...]
    uploads: tuple[Upload, ...]
    ends: tuple[int, ...]

    @property
    def cycles(self) -> int:
        """Predicted cycles of a run, from its start to its last result."""
        return self.ends[-1] if self.ends else 0

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates of an image, counted once per plane of the weights."""
        return sum(layer.macs for layer in self.layers)

    @property
    def utilisation(self) -> float:
        """Share of the array's multiply-accumulates that a full run uses."""
        return self.macs / (max(self.cycles, 1) * self.config.lanes * self.config.rows)

    @property
    def input_bytes(self) -> int:
        """Bytes of an image on the link."""
        return sum(self.placements[port.value].size * self.placements[port.value].parts
                   * input_width(self, port) for port in self.inputs)

    @property
    def output_bytes(self) -> int:
        """Bytes of a result on the link."""
        return sum(placement.size * placement.parts * self.config.lanes
                   for placement in (self.placements[port.value] for port in self.outputs))

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights: two bits each, with the padding of the tiles."""
        return int(self.images[Space.WEIGHT.name].size)

    @cached_property
    def digest(self) -> str:
        """Identity of what is computed, whatever the tensors are called; a run compares it with the device's."""
        names = {name: f"{place.address}" for name, place in self.placements.items()}
        names |= {feed.name: f"feed {k}" for k, feed in enumerate(self.feeds)}
        for kind, steps in (("before", self.before), ("after", self.after)):
            names |= {step.output: f"{kind} {k}" for k, step in enumerate(steps)}
        names |= {port.name: names.get(port.name, f"port {k}") for k, port in enumerate(self.outputs)}
        meta = self._meta(names)
        for key in ("layers", "placements"):
            del meta[key]
        return hashlib.sha256(self._serialize(meta)).hexdigest()[:16]

    def flip_bit(self, layer: str, bit: int = 0) -> "Program":
        """Return the program with one bit of a layer's first weight word inverted, to test the tests."""
        command = next(info.first for info in self.layers if info.name == layer)
        start = int(self._first_weight(command))
        words = self.images[Space.WEIGHT.name].copy()
        words[start, bit // 8] ^= 1 << bit % 8
        return replace(self, images={**self.images, Space.WEIGHT.name: words})

    def stepped(self) -> "Program":
        """Return the program with every layer's last command marked as the last one of a run."""
        words = self.images[Space.COMMAND.name].copy().reshape(-1, 4 * COMMAND_WORDS)
        for layer in self.layers:
            row = words[layer.first + layer.commands - 1]
            command = int.from_bytes(row.tobytes(), "little")
            command |= 1 << COMMAND["last"].offset
            row[:] = np.frombuffer(command.to_bytes(4 * COMMAND_WORDS, "little"), np.uint8)
        return replace(self, images={**self.images, Space.COMMAND.name: words.reshape(-1, 4)})

    def _first_weight(self, command: int) -> int:
        words = self.images[Space.COMMAND.name][command * COMMAND_WORDS:][:COMMAND_WORDS]
        return int(COMMAND.from_bits(int.from_bytes(words.tobytes(), "little")
                                     & ((1 << COMMAND.size) - 1)).weight)

    def _meta(self, names: dict[str, str]) -> dict[str, Any]:
        """Everything but the arrays; tensors under other names."""
        def called(name: str) -> str:
            return names.get(name, name)

        return {
            "version": FILE_VERSION,
            "config": asdict(self.config),
            "feeds": [{**asdict(feed), "name": called(feed.name)} for feed in self.feeds],
            "results": [called(name) for name in self.results],
            **{key: [{**asdict(step), "model": step.model.hex(), "output": called(step.output),
                      "inputs": [called(name) for name in step.inputs]} for step in steps]
               for key, steps in (("before", self.before), ("after", self.after))},
            **{key: [{**asdict(replace(port, move=None)), "name": called(port.name), "value": called(port.value),
                      "move": None if port.move is None else port.move.pad} for port in ports]
               for key, ports in (("inputs", self.inputs), ("outputs", self.outputs))},
            "placements": {name: asdict(place) for name, place in self.placements.items()},
            "layers": [asdict(layer) for layer in self.layers],
            "uploads": [asdict(upload) for upload in self.uploads],
            "ends": list(self.ends),
        }

    def _serialize(self, meta: dict[str, Any]) -> bytes:
        header = json.dumps(meta, sort_keys=True).encode()
        moves = [port.move.index for port in (*self.inputs, *self.outputs) if port.move is not None]
        blobs = [np.frombuffer(header, np.uint8), *moves, *(self.images[s] for s in sorted(self.images))]
        buffer = io.BytesIO()
        for blob in blobs:
            np.lib.format.write_array(buffer, np.ascontiguousarray(blob), allow_pickle=False)
        return buffer.getvalue()

    def save(self, folder: str | Path) -> Path:
        """Write the program into ``folder``, whole or not at all."""
        path = Path(folder) / _FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        body = self._serialize(self._meta({}))
        names = ",".join(sorted(self.images)).encode()
        partial = path.with_suffix(".part")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in (("names", names), ("body", body),
                               ("digest", hashlib.sha256(names + body).digest())):
                archive.writestr(zipfile.ZipInfo(name), data)
        partial.replace(path)
        return path

    @classmethod
    def load(cls, folder: str | Path) -> "Program":
        """Read a program; executes nothing in it.

        Raises
        ------
        ProgramError
            If there is none, it is incomplete or damaged, or was written by another version.
        """
        path = Path(folder)
        path = path / _FILE if path.is_dir() else path
        try:
            with zipfile.ZipFile(path) as archive:
                names, body, digest = (archive.read(name) for name in ("names", "body", "digest"))
        except FileNotFoundError:
            raise ProgramError(f"{path} does not exist; `almac compile MODEL.onnx -o FOLDER` makes one") \
                from None
        except _UNREADABLE as error:
            raise ProgramError(f"{path} is not a whole program ({error}); compile the model again") \
                from None
        if hashlib.sha256(names + body).digest() != digest:
            raise ProgramError(f"{path} is damaged: its checksum differs; compile the model again")
        buffer = io.BytesIO(body)
        header = np.lib.format.read_array(buffer, allow_pickle=False)
        meta: dict[str, Any] = json.loads(header.tobytes())
        if meta["version"] != FILE_VERSION:
            raise ProgramError(f"{path} has file version {meta['version']}, this is for "
                               f"{FILE_VERSION}; compile the model again")
        inputs, outputs = (tuple(_port(item, buffer) for item in meta[key]) for key in ("inputs", "outputs"))
        images = {name: np.lib.format.read_array(buffer, allow_pickle=False)
                  for name in names.decode().split(",")}
        before, after = (tuple(
            HostStep(**{**item, "inputs": tuple(item["inputs"]), "model": bytes.fromhex(item["model"])})
            for item in meta[key]) for key in ("before", "after"))
        return cls(
            config=ArrayConfig(**meta["config"]),
            images=images,
            feeds=tuple(Feed(**{**item, "shape": tuple(item["shape"])}) for item in meta["feeds"]),
            results=tuple(meta["results"]),
            before=before,
            after=after,
            inputs=inputs,
            outputs=outputs,
            placements={name: Placement(**{**item, "shape": tuple(item["shape"])})
                        for name, item in meta["placements"].items()},
            layers=tuple(LayerInfo(**item) for item in meta["layers"]),
            uploads=tuple(Upload(**item) for item in meta["uploads"]),
            ends=tuple(meta["ends"]))


def input_width(program: Program, port: Port) -> int:
    """Bytes of a word of an input that cross the link: the lanes that its channels fill."""
    return min(program.placements[port.value].shape[0], program.config.lanes)


def _port(item: dict[str, Any], buffer: io.BytesIO) -> Port:
    move = item["move"]
    if move is not None:
        move = Index(np.lib.format.read_array(buffer, allow_pickle=False), move)
    fold = item["fold"]
    if fold is not None:
        pairs = {name: tuple(fold[name]) for name in ("kernel", "strides", "dilations", "pads")}
        fold = Fold(**pairs, pad_code=fold["pad_code"])
    return Port(**{**item, "fold": fold, "move": move,
                   **{name: tuple(item[name]) for name in ("shape", "scale", "bias")}})
