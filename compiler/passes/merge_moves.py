"""Make one move of several, and none of those that cancel out."""

from dataclasses import replace

import numpy as np

from almac.compiler.graph import Dequantize, Graph, Index, Move, Op, Reshape, Table, Value

__all__ = ["as_index", "merge_moves"]


def merge_moves(graph: Graph) -> Graph:
    """Replace a ``Move`` or ``Reshape`` behind another one by one of the first one's input.

    Before
    ------
    ::

        a = Move(x); y = Move(a)

    After
    -----
    ::

        y = Move(x)      # or Reshape(x), if all elements end where they were

    Transpositions of channels-last exports cancel out, and channel shuffles become one permutation. A ``Table``
    between two moves changes places with the first of them. The first one goes with the next ``remove_dead`` unless
    something else reads it.
    """
    merged: dict[str, Op] = {}
    values: dict[str, Value] = dict(graph.values)
    for op in graph.ops:
        first = merged.get(op.inputs[0]) if op.inputs else None
        if isinstance(op, Table) and isinstance(first, Move | Reshape) and all(
                isinstance(user, Move | Reshape | Dequantize) for user in graph.users(op.output)):
            name = f"{op.output}/before"
            before = replace(op, inputs=first.inputs, output=name)
            move = as_index(graph, first)
            values[name] = replace(values[op.output], shape=values[first.inputs[0]].shape)
            merged[name] = before
            merged[op.output] = Move(inputs=(name,), output=op.output, source=first.source, kind=first.title,
                                     move=Index(move.index, op.table[move.pad + 128]))
            continue
        merged[op.output] = op
        if not isinstance(op, Move | Reshape) or not isinstance(first, Move | Reshape):
            continue
        both = as_index(graph, op).after(as_index(graph, first))
        if both is None:
            continue
        if both.is_order(int(np.prod(values[first.inputs[0]].shape))):
            merged[op.output] = Reshape(inputs=first.inputs, output=op.output, source=op.source)
        else:
            kind = op.kind if isinstance(op, Move) else first.title
            merged[op.output] = Move(inputs=first.inputs, output=op.output, source=op.source, move=both, kind=kind)
    return graph.with_ops(merged.values(), values)


def as_index(graph: Graph, op: Move | Reshape) -> Index:
    """Where the elements of the op's output come from."""
    if isinstance(op, Move):
        return op.move
    shape = graph.values[op.output].shape
    return Index(np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape))
