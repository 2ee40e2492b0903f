"""Let the host move codes where it has them in hand anyway."""

from dataclasses import replace

from almac.compiler.graph import Dequantize, Graph, Move, Op, Quantize, Reshape
from almac.compiler.passes.merge_moves import as_index

__all__ = ["fold_edges"]


def fold_edges(graph: Graph) -> Graph:
    """Put a move behind ``Quantize``, or before ``Dequantize``, into it.

    Before
    ------
    ::

        q = Quantize(x); a = Move(q); ...; b = Move(y); z = Dequantize(b)

    After
    -----
    ::

        a = Quantize(x, move); ...; z = Dequantize(y, move)

    Channels-last inputs cost the device nothing then. The quantizer's own order must have no other reader.
    """
    folded: dict[str, Op] = {}
    for op in graph.ops:
        first = folded.get(op.inputs[0]) if op.inputs else None
        match op, first:
            case Move() | Reshape(), Quantize() if graph.is_private(first.output):
                move = as_index(graph, op)
                merged = move if first.move is None else move.after(first.move)
                if merged is None:
                    folded[op.output] = op
                    continue
                del folded[first.output]
                folded[op.output] = replace(first, output=op.output, move=merged)
            case Dequantize(), Move() | Reshape():
                folded[op.output] = replace(op, inputs=first.inputs, move=as_index(graph, first))
            case _:
                folded[op.output] = op
    return graph.with_ops(folded.values())
