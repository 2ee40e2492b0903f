"""Moves that an array can do: it computes with trits, so it can pick channels."""

from typing import Any

import numpy as np

from almac.compiler.graph import Conv, Graph, Move, Op, Planes, Requantize, SumPool, Value

__all__ = ["lower_moves"]

#: Weights of a convolution that only picks channels.
_MOST_WEIGHTS = 1 << 24


def lower_moves(graph: Graph) -> Graph:
    """Replace a ``Move`` of whole channels and of regular positions by a convolution of single ones.

    Before
    ------
    ::

        y = Move(x)          # y[c, p, q] = x[pick[c], p*sh - top, q*sw - left], or padding

    After
    -----
    ::

        a = Conv(x)          # 1 x 1, one weight of 1 for each output channel
        y = Requantize(a)    # by one

    Splits, slices, channel shuffles, pads, crops, strided slices and broadcasts are of this kind. Where the
    channels stay, the vector unit copies words (``SumPool`` of one position). All others are left, for the schedule
    to refuse.
    """
    ops: list[Op] = []
    values: dict[str, Value] = {}
    for op in graph.ops:
        lowered = _lowered(graph, op) if isinstance(op, Move) else None
        if lowered is None:
            ops.append(op)
            continue
        ops += [lowered, Requantize(inputs=(lowered.output,), output=op.output, source=op.source,
                                    multiplier=np.array([1 << 23]), offset=np.array([0]), shift=np.array([23]))]
        values[lowered.output] = Value(shape=graph.values[op.output].shape, kind="acc")
    return graph.with_ops(ops, values)


def _lowered(graph: Graph, op: Move) -> Conv | SumPool | None:
    if not all(1 <= len(graph.values[name].shape) <= 3 for name in (*op.inputs, op.output)):
        return None
    shape = _image(graph.values[op.inputs[0]].shape)
    index = op.move.index.reshape(_image(op.move.index.shape))
    valid = index >= 0
    channel, row, column = np.unravel_index(np.where(valid, index, 0), shape)
    pick = np.where(valid, channel, -1).max(axis=(1, 2))
    lines = [_line(np.where(valid, axis, -1).max(axis=others))
             for axis, others in ((row, (0, 2)), (column, (0, 1)))]
    if lines[0] is None or lines[1] is None:
        return None
    (sh, top), (sw, left) = lines[0], lines[1]
    # What the convolution would do: the proof that it is this move.
    rows, columns = (np.arange(count) * stride - before for count, stride, before in zip(
        index.shape[1:], (sh, sw), (top, left), strict=True))
    inside = np.multiply.outer((rows >= 0) & (rows < shape[1]), (columns >= 0) & (columns < shape[2]))
    moved = (pick[:, None, None] * shape[1] + rows[:, None]) * shape[2] + columns
    if not np.array_equal(np.where(inside & (pick >= 0)[:, None, None], moved, -1), index) or (pick < 0).any():
        return None
    pads = (top, left, *(((count - 1) * stride + 1 - before - size) for count, stride, before, size in zip(
        index.shape[1:], (sh, sw), (top, left), shape[1:], strict=True)))
    common: dict[str, Any] = {"inputs": op.inputs, "output": f"{op.output}/moved", "source": op.source,
                              "strides": (sh, sw), "pads": pads, "pad_code": op.move.pad}
    if np.array_equal(pick, np.arange(shape[0])):
        return SumPool(kernel=(1, 1), **common)
    if len(pick) * shape[0] > _MOST_WEIGHTS:
        return None
    trits = np.zeros((1, len(pick), shape[0], 1, 1), np.int8)
    trits[0, np.arange(len(pick)), pick] = 1
    return Conv(weight=Planes(trits=trits, alpha=np.ones((1, len(pick), 1), np.int64)), **common)


def _line(taken: np.ndarray) -> tuple[int, int] | None:
    """Stride and padding before, of positions ``taken``, -1 where there is padding; None if nothing is taken."""
    where = np.flatnonzero(taken >= 0)
    if not len(where):
        return None
    first = int(where[0])
    stride = int(taken[first + 1] - taken[first]) if first + 1 in where else 1
    return (stride, stride * first - int(taken[first])) if stride >= 0 else None


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, *rest = shape
    height, width = (1, 1, *rest)[-2:]
    return channels, height, width
