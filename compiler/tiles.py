"""One command each: the tiles that compute an op, before anything has an address.

A convolution becomes a tile for each ``rows`` output channels, an op of the vector unit one tile. Images are stored
channels last, in words of ``lanes`` codes: word ``(h * W + w) * words + c // lanes``, lane ``c % lanes``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from almac.compiler.beats import array_words, by_segment
from almac.compiler.graph import Add, Concat, Conv, MaxPool, Op, Planes, Pool, Requantize, SumPool, Table
from almac.hdl.command import Opcode
from almac.hdl.config import ArrayConfig

__all__ = ["RAW_BYTES", "Layout", "Params", "Tile", "tiles_of"]

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


def tiles_of(op: Op, requantize: Requantize | None, target: str, layouts: dict[str, Layout],
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
        case Concat():
            yield from _concat_tiles(op, target, layouts, out, config)
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


def _concat_tiles(op: Concat, target: str, layouts: dict[str, Layout], out: Layout, config: ArrayConfig,
                  ) -> Iterator[Tile]:
    """Tiles that copy every input to its channels, by weights of one: a channel may change its lane."""
    first = 0
    by_one = Requantize(inputs=(), output=target, multiplier=np.array([1]), offset=np.array([0]),
                        shift=np.array([0]))
    for name in op.inputs:
        count = layouts[name].shape[0]
        trits = np.eye(count, dtype=np.int8).reshape(1, count, count, 1, 1)
        copy = Conv(inputs=(name,), output=target, source=op.source,
                    weight=Planes(trits=trits, alpha=np.ones((1, count, 1), np.int64)))
        yield from _conv_tiles(copy, by_one, target, layouts[name], out, config, base=first)
        first += count


def _conv_tiles(op: Conv, requantize: Requantize | None, target: str, source: Layout, out: Layout,
                config: ArrayConfig, base: int = 0) -> Iterator[Tile]:
    """Tiles of a convolution whose outputs are the channels of the target from ``base`` on."""
    weight = op.weight
    count, per_group, *kernel = weight.trits.shape[1:]
    loops = _window(op, (kernel[0], kernel[1]), source, out)
    trits, scales = by_segment(weight.trits, weight.alpha, per_group, config.lanes)
    settings = _settings(requantize)
    group_rows = count // op.groups
    for byte, params in _params_of(requantize, count):
        for first in range(0, count, config.rows):
            stop = min(first + config.rows, count)
            # Only the words that hold the channels of the groups in this tile.
            begin = first // group_rows * per_group // config.lanes
            end = -(-(((stop - 1) // group_rows + 1) * per_group) // config.lanes)
            part, offsets = slice(None), [(k // group_rows) * per_group for k in range(first, stop)]
            if op.groups == 1 and scales.shape[2] == 1:
                # ... and that have a weight other than zero.
                used = np.flatnonzero(trits[:, first:stop].any(axis=(0, 1, 3, 4)))
                begin, end = (int(k) // config.lanes for k in (used[[0, -1]] if len(used) else (0, 0)))
                end += 1
                part = slice(begin * config.lanes, end * config.lanes)
                offsets = [begin * config.lanes] * len(offsets)
            beats, alpha, scale_beats = array_words(
                trits[:, first:stop, part], scales[:, first:stop], begin, end, offsets, config)
            counts = (*loops["counts"][:3], len(trits), *kernel, end - begin)
            origin, y, x = loops["start"]
            address = (*loops["address"][:6], 1)
            chunk = (base + first) // config.post_lanes
            per_word = config.lanes // config.post_lanes
            yield Tile(
                opcode=Opcode.CONV, inputs=op.inputs, output=target,
                **{**loops, "counts": counts, "address": address,
                   "start": (origin + begin, y, x)},
                pad=op.pad_code, trits=beats, alpha=alpha, scale_beats=scale_beats,
                params=Params(multiplier=params.multiplier[first:stop],
                              offset=params.offset[first:stop], shift=params.shift[first:stop]),
                out_offset=byte * out.size + chunk // per_word, out_step=out.words,
                part=chunk % per_word, drain=-(-(stop - first) // config.post_lanes), **settings)


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
