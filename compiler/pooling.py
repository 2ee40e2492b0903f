"""Sums, maxima and averages over windows, images and spatial axes."""

from dataclasses import replace

import numpy as np

from almac.compiler.builder import Builder
from almac.compiler.graph import CompileError, MaxPool, SumPool
from almac.compiler.linear import Linear
from almac.compiler.onnx_model import Node
from almac.compiler.states import Codes, State
from almac.compiler.windows import pool_window, spatial_axes, window_counts

__all__ = ["AVERAGES", "MAXIMA", "average", "drops_columns", "maximum"]

AVERAGES = {"AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"}
MAXIMA = {"GlobalMaxPool", "MaxPool", "ReduceMax"}


def maximum(graph: Builder, node: Node, x: Codes, inputs: list[State]) -> Codes:
    """The greatest code of each window; it is that of the greatest number."""
    window, shape = pool_window(node, graph.shape(x), _axes(graph, node, inputs))
    name = node.outputs[0]
    graph.emit(MaxPool(inputs=(x.name,), output=name, source=node.name, **window),
               replace(graph.values[x.name], shape=shape, scale=x.scale, zero_point=x.zero_point))
    return replace(x, name=name)


def average(graph: Builder, node: Node, x: Codes, inputs: list[State]) -> Linear | Codes:
    """The sum of each window, and the number of its positions in the scale."""
    shape = graph.shape(x)
    axes = _axes(graph, node, inputs)
    if node.op.startswith("Reduce") and node.integer("noop_with_empty_axes", 0) and not axes:
        return x
    window, out = pool_window(node, shape, axes)
    count = int(np.prod(window["kernel"]))
    op = SumPool(inputs=(x.name,), output=node.outputs[0], source=node.name, pad_code=x.zero_point, **window)
    linear = Linear(op=op, shape=out, scale=np.full(out[0], x.scale, np.float32),
                    constant=np.full(out[0], -x.zero_point * count, np.int64))
    if node.op == "ReduceSum":
        return linear
    counts = window_counts(node, op, shape, out)
    if (counts != count).any():
        return replace(linear, counts=counts)
    return replace(linear, scale=linear.scale / np.float32(count))


def drops_columns(graph: Builder, node: Node, inputs: list[State]) -> bool:
    """Whether a reduction of an image takes away the last axis alone."""
    return (node.op.startswith("Reduce") and len(graph.shape(inputs[0])) == 3 and not node.integer("keepdims", 1)
            and _axes(graph, node, inputs) == [3])


def _axes(graph: Builder, node: Node, inputs: list[State]) -> list[int] | None:
    """Axes of a reduction, as an attribute or an input."""
    if not node.op.startswith("Reduce"):
        return None
    given = inputs[1] if len(inputs) > 1 else None
    if given is not None and not isinstance(given, np.ndarray):
        raise CompileError("its axes are not constants")
    axes = node.attributes.get("axes") if given is None else given.reshape(-1).tolist()
    return spatial_axes(node, axes, len(graph.shape(inputs[0])))
