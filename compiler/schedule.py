"""Tiling: which commands compute a graph, layer by layer."""

from dataclasses import dataclass, field, replace
from math import prod

from almac.compiler.graph import (
    Add,
    CompileError,
    Conv,
    Dequantize,
    Graph,
    MaxPool,
    Op,
    Quantize,
    Requantize,
    Reshape,
    SumPool,
    Table,
)
from almac.compiler.proof import accumulator_bits
from almac.compiler.tiles import RAW_BYTES, Layout, Tile, tiles_of
from almac.hdl.config import ArrayConfig

__all__ = ["Layer", "Schedule", "schedule"]


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
                    place(op.output)
            case Conv() | SumPool() | MaxPool() | Add() | Table():
                follower = _follower(graph, op)
                output = op if follower is None else follower
                # A command has one table: one behind a table is a layer of its own.
                table = None if isinstance(op, Table) else _private_table(graph, output.output)
                target = output.output if table is None else table.output
                done |= {id(output), id(table)}
                raw = isinstance(op, Conv | SumPool) and follower is None
                inputs = tuple(aliases.get(name, name) for name in op.inputs)
                tiles = tuple(tiles_of(
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
                place(op.output)
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
