"""Give a matrix product over a flattened image the image itself."""

from dataclasses import replace

import numpy as np

from almac.compiler.graph import Conv, Graph, Op, Planes, Reshape

__all__ = ["fold_flatten"]


def fold_flatten(graph: Graph) -> Graph:
    """Replace a 1 x 1 ``Conv`` over ``Reshape(x)`` by a ``Conv`` whose kernel is the whole of ``x``.

    Before
    ------
    ::

        f = Reshape(x)   # (C, H, W) to (C*H*W, 1, 1), channels first
        y = Conv(f)      # kernel 1 x 1

    After
    -----
    ::

        y = Conv(x)      # kernel H x W, no padding

    The weights keep their order, channels first, so nothing depends on how the device stores images.
    Group scales survive only where all input channels share one; else the reshape stays.
    """
    producer = {op.output: op for op in graph.ops}
    folded: list[Op] = []
    for op in graph.ops:
        match op, producer.get(op.inputs[0]):
            case Conv(groups=1, weight=Planes() as weight), Reshape() as reshape if (
                _is_matrix(graph, op) and weight.alpha.shape[2] == 1
            ):
                shape = graph.values[reshape.inputs[0]].shape
                planes, count = weight.trits.shape[:2]
                if len(shape) != 3:
                    folded.append(op)
                    continue
                trits = weight.trits.reshape(planes, count, *shape)
                folded.append(replace(op, inputs=reshape.inputs,
                                      weight=Planes(trits=trits, alpha=weight.alpha)))
            case _:
                folded.append(op)
    used = {name for op in folded for name in op.inputs} | set(graph.outputs)
    return graph.with_ops(op for op in folded
                          if not isinstance(op, Reshape) or op.output in used)


def _is_matrix(graph: Graph, conv: Conv) -> bool:
    kernel = conv.weight.trits.shape[3:]
    return kernel == (1, 1) and not any(conv.pads) and int(np.prod(graph.values[conv.inputs[0]].shape[1:])) == 1
