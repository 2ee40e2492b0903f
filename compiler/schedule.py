"""Tiling: which commands compute a graph, before anything has an address.

A :class:`Layer` is one tensor that the device makes, a :class:`Tile` one command of it: at most ``rows``
output channels of a convolution, or a whole tensor of the vector unit. Images are stored channels last, in
words of ``lanes`` codes: word ``(h * W + w) * words + c // lanes``, lane ``c % lanes``.

Group scales: a processing element applies one scale to a beat, so a beat must not cross groups. Groups
narrower than a word are taken one after the other, as if they were further planes whose trits are zero
outside the group: the price is ``lanes / group`` times the beats.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from almac.compiler.graph import (
    Add,
    CompileError,
    Conv,
    Dequantize,
    Graph,
    MaxPool,
    Op,
    Pool,
    Quantize,
    Requantize,
    Reshape,
    SumPool,
    Table,
)
from almac.compiler.proof import accumulator_bits
from almac.hdl.command import Opcode
from almac.hdl.config import ArrayConfig

__all__ = ["Layer", "Layout", "Params", "Schedule", "Tile", "schedule"]

#: Bytes of an accumulator that leaves the device whole.
RAW_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a value lies in activation memory.

    Attributes
    ----------
    shape : tuple[int, int, int]
        Channels, height, width.
    lanes : int
        Codes in a word.
    parts : int
        1, or the four bytes of accumulators, as four tensors one behind the other.
    """

    shape: tuple[int, int, int]
    lanes: int
    parts: int = 1

    @property
    def words(self) -> int:
        """Words of a position."""
        return -(-self.shape[0] // self.lanes)

    @property
    def size(self) -> int:
        """Words of one tensor."""
        return self.shape[1] * self.shape[2] * self.words


@dataclass(frozen=True, kw_only=True, eq=False)
class Params:
    """Requantization of the channels of a tile: int64[n] each, or one for all."""

    multiplier: np.ndarray
    offset: np.ndarray
    shift: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Tile:
    """One command without addresses.

    Attributes
    ----------
    counts : tuple[int, ...]
        Iterations of :data:`almac.hdl.command.LEVELS`.
    address, y, x : tuple[int, ...]
        Strides of the levels; those of ``ADD`` go from the first operand to the second one by themselves.
    start : tuple[int, int, int]
        Word from the beginning of the input, row and column of the first beat.
    trits, alpha : int8[beats, rows, lanes], int64[scales, rows]
        Weights of an array command, in the order of the beats.
    scale_beats : int
        Beats that share a word of group scales.
    out_offset, out_step, part, drain : int
        As in :data:`almac.hdl.command.COMMAND`; the offset from the beginning of the output.
    """

    opcode: Opcode
    inputs: tuple[str, ...]
    output: str
    counts: tuple[int, ...]
    address: tuple[int, ...]
    y: tuple[int, ...]
    x: tuple[int, ...]
    start: tuple[int, int, int] = (0, 0, 0)
    height: int
    width: int
    pad: int = 0
    trits: np.ndarray | None = None
    alpha: np.ndarray | None = None
    scale_beats: int = 1
    params: Params
    out_offset: int = 0
    out_step: int
    part: int = 0
    drain: int
    left: int = 0
    side_multiplier: int = 0
    raw: bool = False
    zero_point: int = 0
    low: int = -128
    high: int = 127
    table: tuple[int, ...] | None = None

    @property
    def beats(self) -> int:
        """Beats of an output."""
        return prod(self.counts[3:])

    @property
    def outputs(self) -> int:
        """Outputs of the command."""
        return prod(self.counts[:3])


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A tensor that the device makes, and the commands that make it.

    ``macs`` are the useful multiply-accumulates, counted once per plane of the weights; ``acc_bits`` is the
    width that its accumulators are proved to need.
    """

    name: str
    kind: str
    output: str
    tiles: tuple[Tile, ...]
    macs: int
    acc_bits: int


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Layers in order of execution.

    Attributes
    ----------
    layouts : dict[str, Layout]
        Every value that is in activation memory.
    aliases : dict[str, str]
        Values that are another one under a new name (reshapes that move nothing).
    inputs, outputs : tuple[Quantize, ...], tuple[Dequantize, ...]
        What the host does at the edges.
    """

    config: ArrayConfig
    layers: tuple[Layer, ...]
    layouts: dict[str, Layout]
    aliases: dict[str, str]
    inputs: tuple[Quantize, ...]
    outputs: tuple[Dequantize, ...]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


def schedule(graph: Graph, config: ArrayConfig) -> Schedule:
    """Tile every op of ``graph`` for the array ``config``.

    Raises
    ------
    CompileError
        Naming every node that the device cannot run.
    """
    problems: list[str] = []
    layers: list[Layer] = []
    layouts: dict[str, Layout] = {}
    aliases: dict[str, str] = {}
    done: set[int] = set()

    def place(name: str, parts: int = 1) -> Layout:
        layout = Layout(shape=_image(graph.values[name].shape), lanes=config.lanes, parts=parts)
        layouts[name] = layout
        return layout

    for op in graph.ops:
        if id(op) in done:
            continue
        match op:
            case Quantize():
                place(op.output)
            case Dequantize():
                pass
            case Reshape(inputs=(source,)):
                if _moves_nothing(graph, op):
                    aliases[op.output] = aliases.get(source, source)
                else:
                    problems.append(
                        f"node {op.source!r} (Reshape): {graph.values[source].shape} to "
                        f"{graph.values[op.output].shape} moves codes between words; supported: "
                        "flattening before a matrix product, and shapes of one position")
            case Conv() | SumPool() | MaxPool() | Add() | Table():
                follower = _follower(graph, op)
                output = op if follower is None else follower
                # A command has one table: one behind a table is a layer of its own.
                table = None if isinstance(op, Table) else _private_table(graph, output.output)
                target = output.output if table is None else table.output
                done |= {id(output), id(table)}
                raw = isinstance(op, Conv | SumPool) and follower is None
                inputs = tuple(aliases.get(name, name) for name in op.inputs)
                tiles = tuple(_tiles(
                    replace(op, inputs=inputs), follower, target, layouts,
                    place(target, RAW_BYTES if raw else 1), config))
                if table is not None:
                    tiles = tuple(replace(tile, table=table.table) for tile in tiles)
                layers.append(Layer(name=op.source or target, kind=type(op).__name__,
                                    output=target, tiles=tiles, macs=_macs(graph, op),
                                    acc_bits=accumulator_bits(op)))
            case _:
                problems.append(f"node {op.source!r} ({type(op).__name__}): the device has no command "
                                "for it")
    if problems:
        raise CompileError("\n".join(problems))
    return Schedule(
        config=config, layers=tuple(layers), layouts=layouts, aliases=aliases,
        inputs=tuple(op for op in graph.ops if isinstance(op, Quantize)),
        outputs=tuple(op for op in graph.ops if isinstance(op, Dequantize)),
        shapes={name: value.shape for name, value in graph.values.items()})


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of a vector, a signal or an image."""
    channels, *rest = shape
    height, width = (1, 1, *rest)[-2:]
    return channels, height, width


def _moves_nothing(graph: Graph, op: Reshape) -> bool:
    before, after = (_image(graph.values[name].shape) for name in (op.inputs[0], op.output))
    return before == after


def _follower(graph: Graph, op: Op) -> Requantize | None:
    """The requantization of the accumulators that ``op`` makes."""
    users = graph.users(op.output)
    match users:
        case (Requantize() as requantize,) if graph.is_private(op.output):
            return requantize
    if isinstance(op, Conv | SumPool) and any(not isinstance(user, Dequantize) for user in users):
        raise CompileError(f"node {op.source!r}: accumulators {op.output!r} have more than one user; "
                           "quantize the tensor once and share the result")
    return None


def _private_table(graph: Graph, name: str) -> Table | None:
    match graph.users(name):
        case (Table() as table,) if graph.is_private(name) and graph.values[name].kind == "code":
            return table
    return None


def _macs(graph: Graph, op: Op) -> int:
    if not isinstance(op, Conv):
        return 0
    planes, count, *reduction = op.weight.trits.shape
    positions = prod(_image(graph.values[op.output].shape)[1:])
    return planes * count * prod(reduction) * positions


def _tiles(op: Op, requantize: Requantize | None, target: str, layouts: dict[str, Layout],
           out: Layout, config: ArrayConfig) -> Iterator[Tile]:
    source = layouts[op.inputs[0]]
    match op:
        case Conv():
            yield from _conv_tiles(op, requantize, target, source, out, config)
        case Pool():
            yield from _pool_tiles(op, requantize, target, source, out, config)
        case Add():
            params = Params(multiplier=np.array([op.multipliers[0]]), offset=np.array([op.offset]),
                            shift=np.array([op.shift]))
            yield replace(_word_by_word(op, Opcode.ADD, target, source, config), params=params,
                          left=op.left, side_multiplier=op.multipliers[1],
                          zero_point=op.zero_point, low=op.low, high=op.high)
        case Table():
            yield replace(_word_by_word(op, Opcode.MAX, target, source, config), table=op.table)


def _word_by_word(op: Op, opcode: Opcode, target: str, source: Layout,
                  config: ArrayConfig) -> Tile:
    """Tile that makes every word from the same word of each input."""
    _, height, width = source.shape
    return Tile(
        opcode=opcode, inputs=op.inputs, output=target,
        counts=(height, width, source.words, len(op.inputs), 1, 1, 1),
        address=(width * source.words, source.words, 1, 0, 0, 0, 0),
        y=(0,) * 7, x=(0,) * 7, height=1, width=1,
        params=_IDENTITY, out_step=1, drain=config.lanes // config.post_lanes)


_IDENTITY = Params(multiplier=np.array([1]), offset=np.array([0]), shift=np.array([0]))


def _window(op: Conv | Pool, kernel: tuple[int, int], source: Layout, out: Layout,
            ) -> dict[str, Any]:
    """Loops of a sliding window: what convolutions and pools have in common."""
    (sh, sw), (dh, dw), (top, left) = op.strides, op.dilations, op.pads[:2]
    words, width = source.words, source.shape[2]
    row = width * words
    return {
        "counts": (*out.shape[1:], 1, 1, *kernel, 1),
        "address": (sh * row, sw * words, 0, 0, dh * row, dw * words, 0),
        "y": (sh, 0, 0, 0, dh, 0, 0),
        "x": (0, sw, 0, 0, 0, dw, 0),
        "start": (-top * row - left * words, -top, -left),
        "height": source.shape[1],
        "width": width,
    }


def _pool_tiles(op: Pool, requantize: Requantize | None, target: str, source: Layout, out: Layout,
                config: ArrayConfig) -> Iterator[Tile]:
    """One tile, or one for each word of channels if these are scaled differently."""
    loops = _window(op, op.kernel, source, out)
    opcode = Opcode.MAX if isinstance(op, MaxPool) else Opcode.SUM
    whole = Tile(
        opcode=opcode, inputs=op.inputs, output=target, **loops,
        pad=op.pad_code if isinstance(op, SumPool) else -128,
        params=_IDENTITY, out_step=1, drain=config.lanes // config.post_lanes)
    counts, address = list(whole.counts), list(whole.address)
    counts[2], address[2] = out.words, 1
    whole = replace(whole, counts=tuple(counts), address=tuple(address))
    if isinstance(op, MaxPool):
        yield whole
        return
    settings = _settings(requantize)
    channels = out.shape[0]
    for part, params in _params_of(requantize, channels):
        uniform = all(np.all(values == values[0]) for values in
                      (params.multiplier, params.offset, params.shift))
        base = part * out.size
        if uniform:
            one = Params(multiplier=params.multiplier[:1], offset=params.offset[:1],
                         shift=params.shift[:1])
            yield replace(whole, params=one, out_offset=base, **settings)
            continue
        for word in range(out.words):
            span = slice(word * config.lanes, min((word + 1) * config.lanes, channels))
            origin, y, x = whole.start
            yield replace(
                whole, counts=(*whole.counts[:2], 1, *whole.counts[3:]), start=(origin + word, y, x),
                params=Params(multiplier=params.multiplier[span], offset=params.offset[span],
                              shift=params.shift[span]),
                out_offset=base + word, out_step=out.words, **settings)


def _conv_tiles(op: Conv, requantize: Requantize | None, target: str, source: Layout, out: Layout,
                config: ArrayConfig) -> Iterator[Tile]:
    weight = op.weight
    count, per_group, *kernel = weight.trits.shape[1:]
    loops = _window(op, (kernel[0], kernel[1]), source, out)
    trits, scales = _by_segment(weight.trits, weight.alpha, per_group, config.lanes)
    settings = _settings(requantize)
    group_rows = count // op.groups
    if op.groups > 1 and scales.shape[2] > 1:
        raise CompileError(f"node {op.source!r} (Conv): groups of channels and group scales together; "
                           "supported: one scale per output channel in grouped convolutions")

    for part, params in _params_of(requantize, count):
        for first in range(0, count, config.rows):
            stop = min(first + config.rows, count)
            # Only the words that hold the channels of the groups in this tile.
            begin = first // group_rows * per_group // config.lanes
            end = -(-(((stop - 1) // group_rows + 1) * per_group) // config.lanes)
            beats, alpha, scale_beats = _array_words(
                trits[:, first:stop], scales[:, first:stop], begin, end,
                [(k // group_rows) * per_group for k in range(first, stop)], config)
            counts = (*loops["counts"][:3], len(trits), *kernel, end - begin)
            origin, y, x = loops["start"]
            address = (*loops["address"][:6], 1)
            chunk = first // config.post_lanes
            per_word = config.lanes // config.post_lanes
            yield Tile(
                opcode=Opcode.CONV, inputs=op.inputs, output=target,
                **{**loops, "counts": counts, "address": address,
                   "start": (origin + begin, y, x)},
                pad=op.pad_code, trits=beats, alpha=alpha, scale_beats=scale_beats,
                params=Params(multiplier=params.multiplier[first:stop],
                              offset=params.offset[first:stop], shift=params.shift[first:stop]),
                out_offset=part * out.size + chunk // per_word, out_step=out.words,
                part=chunk % per_word, drain=-(-(stop - first) // config.post_lanes), **settings)


def _by_segment(trits: np.ndarray, alpha: np.ndarray, channels: int, lanes: int,
                ) -> tuple[np.ndarray, np.ndarray]:
    """Planes in which no word of channels crosses a group, and the scale of every channel.

    Returns trits int8[P', K, C, R, S] and scales int64[P', K, C] (one group: int64[P', K, 1]).
    """
    groups = alpha.shape[2]
    if groups == 1:
        return trits, alpha
    size = -(-channels // groups)
    group = np.arange(channels) // size
    word = np.arange(channels) // lanes
    # Which one of the groups that a word touches.
    segment = group - group[word * lanes]
    split = np.concatenate([
        trits * (segment == index)[None, None, :, None, None]
        for index in range(int(segment.max()) + 1)])
    per_channel = np.tile(alpha[:, :, group], (int(segment.max()) + 1, 1, 1))
    return split.astype(np.int8), per_channel


def _array_words(trits: np.ndarray, scales: np.ndarray, begin: int, end: int, offsets: list[int],
                 config: ArrayConfig) -> tuple[np.ndarray, np.ndarray, int]:
    """Trits of every beat, scales, and the beats that share a word of scales.

    ``offsets`` are the first input channels of each row's group.
    """
    lanes, rows = config.lanes, config.rows
    planes, count, per_group, kernel_rows, kernel_columns = trits.shape
    words = end - begin
    shape = (planes, kernel_rows, kernel_columns, words * lanes, rows)
    beats = np.zeros(shape, np.int8)
    for row, offset in enumerate(offsets):
        at = offset - begin * lanes
        beats[:, :, :, at:at + per_group, row] = trits[:, row].transpose(0, 2, 3, 1)
    beats = beats.reshape(planes, kernel_rows, kernel_columns, words, lanes, rows)
    beats = beats.transpose(0, 1, 2, 3, 5, 4).reshape(-1, rows, lanes)

    if scales.shape[2] == 1:
        alpha = np.zeros((planes, rows), np.int64)
        alpha[:, :count] = scales[:, :, 0]
        return beats, alpha, kernel_rows * kernel_columns * words
    # One word of scales a beat: that of the group which the (segment of the) word belongs to.
    by_word = np.zeros((planes, words * lanes, rows), np.int64)
    nonzero = np.any(trits != 0, axis=(3, 4))
    for row, offset in enumerate(offsets):
        at = offset - begin * lanes
        by_word[:, at:at + per_group, row] = np.where(nonzero[:, row], scales[:, row], 0)
    by_word = by_word.reshape(planes, words, lanes, rows)
    magnitude = np.abs(by_word).argmax(axis=2)
    chosen = np.take_along_axis(by_word, magnitude[:, :, None], axis=2)[:, :, 0]
    alpha = np.broadcast_to(chosen[:, None, None], (planes, kernel_rows, kernel_columns, words, rows))
    return beats, alpha.reshape(-1, rows).copy(), 1


def _params_of(requantize: Requantize | None, channels: int) -> Iterator[tuple[int, Params]]:
    """Parameters of all channels; those of the four bytes of the accumulators without a requantizer."""
    if requantize is not None:
        spread = [np.broadcast_to(np.asarray(values, np.int64).reshape(-1), (channels,))
                  for values in (requantize.multiplier, requantize.offset, requantize.shift)]
        yield 0, Params(multiplier=spread[0], offset=spread[1], shift=spread[2])
        return
    for part in range(RAW_BYTES):
        yield part, Params(multiplier=np.ones(channels, np.int64),
                           offset=np.zeros(channels, np.int64),
                           shift=np.full(channels, 8 * part))


def _settings(requantize: Requantize | None) -> dict[str, Any]:
    if requantize is None:
        return {"raw": True}
    return {"zero_point": requantize.zero_point, "low": requantize.low, "high": requantize.high}
