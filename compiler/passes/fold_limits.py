"""Put a function of codes into what makes them."""

from dataclasses import replace

import numpy as np

from almac.compiler.graph import Add, Concat, Graph, MaxPool, Move, Mul, Op, Quantize, Requantize, Reshape, Table

__all__ = ["fold_limits"]


def fold_limits(graph: Graph) -> Graph:
    """Replace a ``Table`` that limits its input by the bounds of the op before it; join tables.

    Before
    ------
    ::

        a = Requantize(x); y = Table(a)      # table[c] = clip(c, low, high)

    After
    -----
    ::

        y = Requantize(x, low, high)

    The limits of 2-bit activations, written as ``Clip`` on codes, cost no table then; where all codes are within
    them anyway, nothing is left. Two tables one behind the other are one.
    """
    folded: dict[str, Op] = {}
    ranges: dict[str, tuple[int, int]] = {}
    same: dict[str, str] = {}
    for original in graph.ops:
        op = replace(original, inputs=tuple(same.get(name, name) for name in original.inputs))
        folded[op.output] = op
        ranges[op.output] = _range(op, [ranges.get(name, _CODES) for name in op.inputs])
        if not isinstance(op, Table):
            continue
        limits, first = _limits(op), folded.get(op.inputs[0])
        low, high = ranges.get(op.inputs[0], _CODES)
        private = first is not None and graph.is_private(original.inputs[0])
        if limits is not None and limits[0] <= low and high <= limits[1]:
            merged = replace(first, output=op.output) if private and first is not None else None
            if merged is None:
                same[op.output] = op.inputs[0]
                del folded[op.output]
        else:
            merged = _merged(first, op, limits) if private and first is not None else None
        if merged is not None and first is not None:
            # The last name is the one that the model gives to the codes.
            del folded[first.output]
            folded[op.output] = merged
    return graph.with_ops(folded.values())


_CODES = (-128, 127)

#: Distance from a tie, in steps of the output, that float32 arithmetic may get wrong.
_NEAR = 1e-4


def _range(op: Op, inputs: list[tuple[int, int]]) -> tuple[int, int]:
    """Least and greatest code that the op makes, as far as is known."""
    match op:
        case Requantize() | Add() | Mul() | Quantize(exact=False):
            return op.low, op.high
        case Table(table=table):
            return min(table), max(table)
        case MaxPool() | Reshape() | Concat():
            return min(low for low, _ in inputs), max(high for _, high in inputs)
        case Move(move=move):
            pads = [move.pad] if (move.index < 0).any() else []
            return min([inputs[0][0], *pads]), max([inputs[0][1], *pads])
    return _CODES


def _merged(first: Op, op: Table, limits: tuple[int, int] | None) -> Op | None:
    match first:
        case Requantize() | Add() | Mul() | Quantize(exact=False) if limits is not None:
            low, high = (int(np.clip(limit, *limits)) for limit in (first.low, first.high))
            return replace(first, output=op.output, low=low, high=high)
        case Table(table=table) if _is_sure(first):
            steps = tuple(op.steps[code + 128] for code in table) if op.steps else ()
            return replace(op, inputs=first.inputs, table=tuple(op.table[code + 128] for code in table),
                           steps=first.steps if limits is not None else steps)
    return None


def _limits(op: Table) -> tuple[int, int] | None:
    """Bounds, if the table does nothing but limit."""
    if not _is_sure(op):
        return None
    low, high = min(op.table), max(op.table)
    return (low, high) if op.table == tuple(min(max(code, low), high) for code in range(-128, 128)) else None


def _is_sure(op: Table) -> bool:
    """Whether no result is so near to a tie that float32 arithmetic may round it otherwise.

    What such a code becomes further on could not be told from an error.
    """
    steps = np.array(op.steps)
    return not (np.abs(np.abs(steps - np.floor(steps)) - 0.5) < _NEAR).any()
