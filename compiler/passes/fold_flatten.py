"""Give a matrix product over a flattened image the image itself."""

from dataclasses import replace

import numpy as np

from almac.compiler.graph import Conv, Graph, Move, Op, Planes, Reshape
from almac.compiler.passes.merge_moves import as_index

__all__ = ["fold_flatten"]


def fold_flatten(graph: Graph) -> Graph:
    """Replace a 1 x 1 ``Conv`` over a flattened ``x`` by a ``Conv`` whose kernel is the whole of ``x``.

    Before
    ------
    ::

        f = Reshape(x)   # (C, H, W) to (C*H*W, 1, 1), or a Move that does so in another order
        y = Conv(f)      # kernel 1 x 1

    After
    -----
    ::

        y = Conv(x)      # kernel H x W, no padding

    The weights take the order of ``x`` in the model, channels first, so nothing depends on how the device stores
    images. Group scales survive only where all input channels share one; else the reshape stays.
    """
    producer = {op.output: op for op in graph.ops}
    folded: list[Op] = []
    for op in graph.ops:
        match op, producer.get(op.inputs[0]):
            case Conv(groups=1, weight=Planes() as weight), (Reshape() | Move()) as layout if (
                _is_matrix(graph, op) and weight.alpha.shape[2] == 1
            ):
                new = _reordered(graph, weight, layout)
                folded.append(op if new is None else replace(op, inputs=layout.inputs, weight=new))
            case _:
                folded.append(op)
    used = {name for op in folded for name in op.inputs} | set(graph.outputs)
    return graph.with_ops(op for op in folded
                          if not isinstance(op, Reshape) or op.output in used)


def _reordered(graph: Graph, weight: Planes, layout: Reshape | Move) -> Planes | None:
    """Weights over the image that ``layout`` flattens; None if it is none, or takes an element twice."""
    shape = graph.values[layout.inputs[0]].shape
    taken = as_index(graph, layout).index.reshape(-1)
    if len(shape) != 3 or (taken < 0).any() or len(np.unique(taken)) < len(taken):
        return None
    planes, count = weight.trits.shape[:2]
    trits = np.zeros((planes, count, int(np.prod(shape))), np.int8)
    trits[..., taken] = weight.trits.reshape(planes, count, -1)
    return Planes(trits=trits.reshape(planes, count, *shape), alpha=weight.alpha)


def _is_matrix(graph: Graph, conv: Conv) -> bool:
    kernel = conv.weight.trits.shape[3:]
    return kernel == (1, 1) and not any(conv.pads) and int(np.prod(graph.values[conv.inputs[0]].shape[1:])) == 1
