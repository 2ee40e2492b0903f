"""Tiling: which commands compute a graph, layer by layer."""

from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from almac.compiler.edges import EMPTY, Edges, edges_of, where
from almac.compiler.graph import (
    Add,
    ChannelTable,
    CompileError,
    Concat,
    Conv,
    Dequantize,
    Graph,
    Host,
    MaxPool,
    Move,
    Mul,
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
    edges : Edges
        And what it computes on real tensors before and behind them.
    """

    config: ArrayConfig
    layers: tuple[Layer, ...]
    layouts: dict[str, Layout]
    aliases: dict[str, str]
    inputs: tuple[Quantize, ...]
    outputs: tuple[Dequantize, ...]
    edges: Edges = EMPTY
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


def schedule(graph: Graph, config: ArrayConfig) -> Schedule:
    """Tile every op of ``graph`` for the array ``config``.

    Raises
    ------
    CompileError
        Naming every node that the device cannot run.
    """
    edges = edges_of(graph)
    problems = list(edges.problems)
    layers: list[Layer] = []
    layouts: dict[str, Layout] = {}
    aliases: dict[str, str] = {}
    done: set[int] = set()
    refused: set[str] = set()

    def place(name: str, parts: int = 1) -> Layout:
        layout = Layout(shape=_image(graph.values[name].shape), lanes=config.lanes, parts=parts)
        layouts[name] = layout
        return layout

    for op in graph.ops:
        if id(op) in done or isinstance(op, Dequantize | Host):
            continue
        follower = _follower(graph, op)
        output = op if follower is None else follower
        # A command has one table: one behind a table is a layer of its own.
        table = None if isinstance(op, Table) else _private_table(graph, output.output)
        target = output.output if table is None else table.output
        why = _refusal(graph, op, follower, config)
        if isinstance(op, Quantize) and why is None:
            place(op.output)
        elif isinstance(op, Reshape) and why is None:
            aliases[op.output] = aliases.get(op.inputs[0], op.inputs[0])
        elif why is not None:
            # What requantizes sums that there are not goes without saying.
            if op.inputs[0] not in refused or not isinstance(op, Requantize):
                problems.append((op, why))
            refused.add(op.output)
            done |= {id(output), id(table)}
            place(target)
        else:
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
    if not any(isinstance(op, Quantize) for op in graph.ops):
        # All of it would be the host's work.
        named = {id(op) for op, _ in problems}
        problems += [(op, op.reason) for op in edges.before + edges.after if op.reason and id(op) not in named]
    if problems:
        raise unsupported(graph, problems)
    return Schedule(
        config=config, layers=tuple(layers), layouts=layouts, aliases=aliases,
        inputs=tuple(op for op in graph.ops if isinstance(op, Quantize)),
        outputs=tuple(op for op in graph.ops if isinstance(op, Dequantize)), edges=edges,
        shapes={name: value.shape for name, value in graph.values.items()})


def unsupported(graph: Graph, problems: list[tuple[Op, str]]) -> CompileError:
    """One error for all nodes that the target cannot run, in the order of the model."""
    order = {op.output: k for k, op in enumerate(graph.ops)}
    lines = [f"{where(graph, op)}: {why}" for op, why in sorted(problems, key=lambda item: order[item[0].output])]
    lines = list(dict.fromkeys(lines))
    count = "1 node is" if len(lines) == 1 else f"{len(lines)} nodes are"
    text = [f"{count} not supported:", *lines]
    if not any(isinstance(op, Quantize) for op in graph.ops):
        text.append("The model is not quantized. Quantize it first, or let almac do so: --calib X.npz")
    return CompileError("\n".join(text))


def _refusal(graph: Graph, op: Op, follower: Requantize | None, config: ArrayConfig) -> str | None:
    """Why the device cannot run ``op``, and what to do; None if it can."""
    shapes = [graph.values[name].shape for name in (*op.inputs, op.output)]
    if isinstance(op, Quantize | Move | Reshape) and any(len(shape) > 3 for shape in shapes):
        return f"has the shape {max(shapes, key=len)}; supported on the array: vectors, signals and images"
    match op:
        case Quantize():
            return None
        case Reshape():
            return None if _image(shapes[0]) == _image(shapes[1]) else (
                f"{shapes[0]} to {shapes[1]} moves codes between words; supported: flattening before a matrix "
                "product, and shapes of one position")
        case Concat(axis=axis):
            return _concat_refusal(axis, shapes, config)
        case Add(multipliers=multipliers) if min(multipliers) < 0:
            return "takes a tensor away from another one; supported: Add"
        case Conv(groups=groups, weight=weight) if groups > 1 and weight.alpha.shape[2] > 1:
            return "groups of channels and group scales together; supported: one scale per output channel"
        case Conv() | SumPool() if follower is not None and np.ndim(follower.multiplier) > 1:
            return ("averages over windows of different sizes at the border; supported: no padding, or "
                    "count_include_pad = 1")
        case Conv() | SumPool() if follower is None and not all(
                isinstance(user, Dequantize) for user in graph.users(op.output)):
            return "its sums have more than one reader; quantize the tensor once and share the result"
        case Conv() | SumPool() | MaxPool() | Add() | Table():
            return None
        case Move():
            return ("moves codes within words or in an order that no command follows; supported: layouts at the "
                    "inputs and outputs, splits, slices, shuffles of channels, pads and crops")
        case Mul():
            return "multiplies two tensors; supported on the array: constants as one factor"
        case ChannelTable():
            return "is another function for each channel; supported: the same function for all of them"
    return "the device has no command for it"


def _concat_refusal(axis: int, shapes: list[tuple[int, ...]], config: ArrayConfig) -> str | None:
    if axis:
        return f"joins axis {axis + 1}; supported: channels"
    if shapes[-1][0] > config.lanes * config.act_depth:
        return f"makes {shapes[-1][0]} channels, more than activation memory holds; use a larger target"
    starts = np.cumsum([shape[0] for shape in shapes[:-2]])
    if (starts % config.post_lanes).any():
        return (f"its parts begin at the channels {starts.tolist()}; supported on this target: multiples of "
                f"{config.post_lanes}; use a target with fewer rows, or other numbers of channels")
    return None


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of a vector, a signal or an image."""
    channels, *rest = shape
    height, width = (1, 1, *rest)[-2:]
    return channels, height, width


def _follower(graph: Graph, op: Op) -> Requantize | None:
    """The requantization of the accumulators that ``op`` makes."""
    users = graph.users(op.output)
    match users:
        case (Requantize() as requantize,) if graph.is_private(op.output):
            return requantize
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
