"""Schedule to program: addresses, command words, contents of the memories."""

from dataclasses import dataclass

import numpy as np

from almac.compiler.allocate import allocate
from almac.compiler.graph import CompileError, Dequantize, Graph, Host, Quantize
from almac.compiler.program import Feed, HostStep, LayerInfo, Placement, Port, Program, Upload
from almac.compiler.schedule import Schedule
from almac.compiler.tiles import Tile
from almac.hdl.command import (
    COMMAND,
    COMMAND_WORDS,
    PARAM,
    Opcode,
    Space,
    encode,
    steps,
    words_of,
)
from almac.hdl.config import ArrayConfig
from almac.hdl.dot.code import encode as encode_trits
from almac.hdl.shapes import ALPHA
from almac.hdl.timing import run_cycles

__all__ = ["emit", "feeds_of", "quantization_of"]

#: Memories whose contents may be streamed in during a run.
_STREAMED = (Space.WEIGHT, Space.SCALE, Space.PARAM)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Contents:
    """Words that a tile needs in each memory: uint8[words, bytes]."""

    words: dict[Space, np.ndarray]


def emit(schedule: Schedule, graph: Graph) -> Program:
    """Encode ``schedule`` for its array.

    Weights stay on the device if all of them fit; else the host streams them in during the run, the tiles
    taking turns in the two halves of the memories, so that those of the next tile arrive while this one
    computes.

    Raises
    ------
    CompileError
        If commands, tables, activations, or the weights of one tile do not fit.
    """
    config = schedule.config
    addresses = allocate(schedule)
    tiles = [tile for layer in schedule.layers for tile in layer.tiles]
    contents = [_contents(tile, config) for tile in tiles]
    tables = _tables(tiles, config)
    at, resident = _place(tiles, contents, config)

    words = [_command(tile, at[index], 0 if resident else index + 1,
                      addresses, tables, config, last=index == len(tiles) - 1)
             for index, tile in enumerate(tiles)]
    commands = np.frombuffer(
        b"".join(word.to_bytes(4 * COMMAND_WORDS, "little") for word in words), np.uint8)
    images = {Space.COMMAND: commands.reshape(-1, 4), Space.TABLE: _table_image(tables)}
    _check_room(Space.COMMAND, len(images[Space.COMMAND]), config, "commands")
    for space in _STREAMED:
        parts = [part.words[space] for part in contents]
        images[space] = np.concatenate(_once(parts)[0] if resident else parts) if contents else \
            np.zeros((0, -(-words_of(space, config)[0] // 8)), np.uint8)
    uploads = () if resident else tuple(_uploads(contents, at))

    ends = run_cycles(config, [(t.opcode, t.beats, t.outputs, t.drain) for t in tiles])
    return Program(
        config=config,
        images={space.name: image for space, image in images.items()},
        feeds=feeds_of(graph),
        results=graph.outputs,
        before=tuple(_step(op) for op in schedule.edges.before),
        after=tuple(_step(op) for op in schedule.edges.after),
        inputs=tuple(_input_port(op, graph) for op in schedule.inputs),
        outputs=tuple(_output_port(op, graph, schedule) for op in schedule.outputs),
        placements={
            name: Placement(address=address, shape=schedule.layouts[name].shape,
                            words=schedule.layouts[name].words, parts=schedule.layouts[name].parts)
            for name, address in addresses.items()},
        layers=tuple(_layers(schedule, ends)),
        uploads=uploads,
        ends=tuple(ends))


def feeds_of(graph: Graph) -> tuple[Feed, ...]:
    """What the user gives."""
    return tuple(Feed(name=name, shape=graph.values[name].shape, dtype=graph.dtypes.get(name, "float32"))
                 for name in graph.inputs)


def quantization_of(graph: Graph) -> dict[str, tuple[float, int]]:
    """Scale and zero point of what the user gives and the host quantizes as it is, by name."""
    values = {op.inputs[0]: graph.values[op.output] for op in graph.ops
              if isinstance(op, Quantize) and not op.exact}
    return {name: (value.scale, value.zero_point) for name, value in values.items() if name in graph.inputs}


def _contents(tile: Tile, config: ArrayConfig) -> _Contents:
    """Memory words of one tile, the constant of the complemented operands taken out of its bias."""
    weights = np.zeros((0, -(-words_of(Space.WEIGHT, config)[0] // 8)), np.uint8)
    scales = np.zeros((0, -(-words_of(Space.SCALE, config)[0] // 8)), np.uint8)
    params = tile.params
    excess = np.zeros(config.rows, np.int64)
    if tile.trits is not None and tile.alpha is not None:
        bits, beat_excess = encode_trits(tile.trits)
        weights = np.packbits(bits.reshape(len(bits), -1), axis=1, bitorder="little")
        per_beat = np.repeat(tile.alpha, tile.scale_beats, axis=0)
        excess = (per_beat * beat_excess).sum(axis=0)
        scales = _pack(tile.alpha, ALPHA.width)
    rows: list[int] = []
    size = len(params.multiplier)
    # A word of parameters for every drain cycle, also of lanes without a channel; or the same one for all.
    for k in range((tile.drain if size > 1 else 1) * config.post_lanes):
        real = k < size
        multiplier = int(params.multiplier[k]) if real else 0
        offset = int(params.offset[k]) if real else 0
        rows.append(encode(
            PARAM, multiplier=multiplier, shift=int(params.shift[k]) if real else 0,
            offset=offset - (int(excess[k]) * multiplier if tile.trits is not None else 0)))
    if size == 1:
        rows = rows[:1] * config.post_lanes
    return _Contents(words={
        Space.WEIGHT: weights,
        Space.SCALE: scales,
        Space.PARAM: _join(rows, PARAM.size, config.post_lanes),
    })


def _pack(values: np.ndarray, width: int) -> np.ndarray:
    """Signed integers [words, n] as words of n fields: uint8[words, bytes]."""
    bound = 1 << (width - 1)
    if np.any(np.abs(values) >= bound):
        raise CompileError(f"group scales of up to {np.abs(values).max()}; supported: {bound - 1}")
    bits = (values[..., None] >> np.arange(width)) & 1
    return np.packbits(bits.astype(np.uint8).reshape(len(values), -1), axis=1, bitorder="little")


def _join(fields: list[int], width: int, count: int) -> np.ndarray:
    """Fields of ``width`` bits, ``count`` to a word, the first one lowest: uint8[words, bytes]."""
    size = -(-width * count // 8)
    words = [sum(value << (width * k) for k, value in enumerate(fields[start:start + count]))
             for start in range(0, len(fields), count)]
    joined = b"".join(word.to_bytes(size, "little") for word in words)
    return np.frombuffer(joined, np.uint8).reshape(-1, size)


def _tables(tiles: list[Tile], config: ArrayConfig) -> dict[tuple[int, ...], int]:
    """Index of every distinct table."""
    tables: dict[tuple[int, ...], int] = {}
    for tile in tiles:
        if tile.table is not None:
            tables.setdefault(tile.table, len(tables))
    if len(tables) > config.tables:
        raise CompileError(f"the model needs {len(tables)} tables, the array has {config.tables}; "
                           "use a target with more tables")
    return tables


def _table_image(tables: dict[tuple[int, ...], int]) -> np.ndarray:
    return np.array([code for table in tables for code in table], np.int8).view(np.uint8).reshape(-1, 1)


def _check_room(space: Space, needed: int, config: ArrayConfig, what: str) -> None:
    available = words_of(space, config)[1]
    if needed > available:
        raise CompileError(f"{what} take {needed} words of {space.name.lower()} memory, the array has "
                           f"{available}; use a target with a deeper one")


def _place(tiles: list[Tile], contents: list[_Contents], config: ArrayConfig,
           ) -> tuple[list[dict[Space, int]], bool]:
    """Address of every tile's words, and whether all of them stay on the device."""
    sizes = {space: [len(part.words[space]) for part in contents] for space in _STREAMED}
    once = {space: _once([part.words[space] for part in contents]) for space in _STREAMED}
    resident = all(sum(map(len, kept)) <= words_of(space, config)[1] for space, (kept, _) in once.items())
    if resident:
        return [{space: starts[index] for space, (_, starts) in once.items()} for index in range(len(tiles))], True
    for space in _STREAMED:
        half = words_of(space, config)[1] // 2
        for tile, size in zip(tiles, sizes[space], strict=True):
            if size > half:
                raise CompileError(
                    f"layer {tile.output!r}: a tile of {config.rows} output channels takes {size} words "
                    f"of {space.name.lower()} memory, half of it has {half}; use a target whose "
                    f"{space.name.lower()}_depth is at least {2 * size}")
    return [{space: index % 2 * (words_of(space, config)[1] // 2) for space in _STREAMED}
            for index in range(len(tiles))], False


def _once(parts: list[np.ndarray]) -> tuple[list[np.ndarray], list[int]]:
    """Words without repetitions, and where those of each part begin: layers may share their weights."""
    starts: dict[bytes, int] = {}
    kept: list[np.ndarray] = []
    size = 0
    for part in parts:
        if part.tobytes() not in starts:
            starts[part.tobytes()] = size
            kept.append(part)
            size += len(part)
    return kept, [starts[part.tobytes()] for part in parts]


def _uploads(contents: list[_Contents], at: list[dict[Space, int]]) -> list[Upload]:
    first = dict.fromkeys(_STREAMED, 0)
    uploads = []
    for index, part in enumerate(contents):
        for space in _STREAMED:
            count = len(part.words[space])
            if count:
                uploads.append(Upload(
                    space=space.name, address=at[index][space], first=first[space], count=count,
                    after=max(0, index - 1), grant=index + 1))
            first[space] += count
    return uploads


def _command(tile: Tile, at: dict[Space, int], grant: int, addresses: dict[str, int],
             tables: dict[tuple[int, ...], int], config: ArrayConfig, *, last: bool) -> int:
    base = addresses[tile.inputs[0]]
    strides = list(tile.address)
    if tile.opcode is Opcode.ADD:
        strides[3] = addresses[tile.inputs[1]] - base
    origin, y, x = tile.start
    counts = tile.counts
    wrap = 1 << COMMAND["address"].width
    try:
        word = encode(
            COMMAND, opcode=tile.opcode, last=int(last), grant=grant,
            count=[count - 1 for count in counts],
            address_step=steps(strides, counts), y_step=steps(tile.y, counts),
            x_step=steps(tile.x, counts),
            address=(base + origin) % wrap, y=y, x=x, height=tile.height, width=tile.width,
            pad=tile.pad, weight=at[Space.WEIGHT], scale=at[Space.SCALE],
            scale_beats=tile.scale_beats, param=at[Space.PARAM],
            param_step=int(len(tile.params.multiplier) > 1),
            out=addresses[tile.output] + tile.out_offset, out_step=tile.out_step, part=tile.part,
            drain=tile.drain, left=tile.left, side_multiplier=tile.side_multiplier,
            raw=int(tile.raw), zero_point=tile.zero_point, low=tile.low, high=tile.high,
            use_table=int(tile.table is not None),
            table=0 if tile.table is None else tables[tile.table])
    except ValueError as error:
        raise CompileError(f"layer {tile.output!r} is too large for one command: {error}") from None
    return int(word)


def _layers(schedule: Schedule, ends: list[int]) -> list[LayerInfo]:
    layers = []
    first, before = 0, 0
    for layer in schedule.layers:
        count = len(layer.tiles)
        end = ends[first + count - 1]
        layers.append(LayerInfo(name=layer.name, kind=layer.kind, output=layer.output, first=first,
                                commands=count, macs=layer.macs, cycles=end - before,
                                acc_bits=layer.acc_bits))
        first, before = first + count, end
    return layers


def _input_port(op: Quantize, graph: Graph) -> Port:
    value = graph.values[op.output]
    # The host does not compute with codes that it is given.
    scale, zero_point = (1.0, 0) if op.exact else (float(value.scale), value.zero_point)
    return Port(name=op.inputs[0], value=op.output, shape=graph.values[op.inputs[0]].shape,
                scale=(scale,), zero_point=zero_point,
                unsigned=value.unsigned, exact=op.exact, low=op.low, high=op.high, move=op.move, fold=op.fold)


def _output_port(op: Dequantize, graph: Graph, schedule: Schedule) -> Port:
    source = graph.values[op.inputs[0]]
    return Port(name=op.output, value=schedule.aliases.get(op.inputs[0], op.inputs[0]),
                shape=graph.values[op.output].shape,
                scale=tuple(float(v) for v in np.asarray(op.scale).reshape(-1)),
                bias=tuple(float(v) for v in np.asarray(op.bias).reshape(-1)),
                zero_point=op.zero_point, unsigned=source.unsigned, exact=op.exact, low=op.low, high=op.high,
                move=op.move)


def _step(op: Host) -> HostStep:
    return HostStep(kind=op.kind, inputs=op.inputs, output=op.output, model=op.model)
