"""Put a function of codes into what makes them."""

from dataclasses import replace

import numpy as np

from almac.compiler.graph import Add, Graph, Mul, Op, Quantize, Requantize, Table

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

    The limits of 2-bit activations, written as ``Clip`` on codes, cost no table then. Two tables one behind the
    other are one.
    """
    folded: dict[str, Op] = {}
    for op in graph.ops:
        folded[op.output] = op
        first = folded.get(op.inputs[0]) if op.inputs else None
        if not isinstance(op, Table) or first is None or not graph.is_private(op.inputs[0]):
            continue
        limits = _limits(op)
        match first:
            case Requantize() | Add() | Mul() | Quantize(exact=False) if limits is not None:
                low, high = (int(np.clip(limit, *limits)) for limit in (first.low, first.high))
                merged: Op = replace(first, output=op.output, low=low, high=high)
            case Table(table=table):
                steps = tuple(op.steps[code + 128] for code in table) if op.steps else ()
                merged = replace(op, inputs=first.inputs, table=tuple(op.table[code + 128] for code in table),
                                 steps=first.steps if limits is not None else steps)
            case _:
                continue
        del folded[first.output]
        folded[op.output] = merged
    return graph.with_ops(folded.values())


def _limits(op: Table) -> tuple[int, int] | None:
    """Bounds, if the table does nothing but limit."""
    low, high = min(op.table), max(op.table)
    return (low, high) if op.table == tuple(min(max(code, low), high) for code in range(-128, 128)) else None
