"""Data that is moved and joined: at once if there are codes, else as soon as there are."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from almac.compiler.builder import Builder
from almac.compiler.closing import close
from almac.compiler.graph import CompileError, Index
from almac.compiler.linear import Linear
from almac.compiler.messages import reason
from almac.compiler.moves import MOST_MOVED, broadcast, moves_of
from almac.compiler.onnx_model import Model, Node
from almac.compiler.states import Chain, Codes, Joined, Motion, Moved, Product, Real, State, Sum

__all__ = ["concatenated", "moved", "pair", "rearranged"]

#: What waits for a quantizer.
_WAITING = (Chain, Joined, Linear, Moved, Product, Sum)


def rearranged(graph: Builder, model: Model, node: Node, state: State, inputs: list[State]) -> list[State]:
    """Outputs of an operator that moves data."""
    real = isinstance(state, Real) and graph.values[state.name].leading == 1
    if not (real or isinstance(state, (Codes, *_WAITING))):
        raise CompileError(reason(node, inputs))
    indices, pad = moves_of(node, model.opset, graph.shape(state), inputs, model.batch)
    return [moved(graph, Motion(node=node, index=index, pad=pad), state, name)
            for index, name in zip(indices, node.outputs, strict=True)]


def moved(graph: Builder, motion: Motion, state: State, name: str) -> State:
    """A tensor after ``motion``; codes become the value ``name``."""
    node, shape = motion.node, motion.index.shape
    match state:
        case Codes():
            if not state.real:
                # It pads with codes.
                motion = replace(motion, pad=(motion.pad - 128 * state.unsigned - state.zero_point) * state.scale)
            return graph.moved(state, name, motion.of_codes(state.scale, state.zero_point), node.name, node.op)
        case Real():
            return replace(state, shape=shape, moves=(*state.moves, motion))
        case Linear() if shape[0] == state.shape[0] and not {*state.shape[1:], *shape[1:]} - {1}:
            return replace(state, shape=shape)
    return Moved(state=state, motion=motion)


def concatenated(graph: Builder, model: Model, states: Mapping[str, State], node: Node, inputs: list[State],
                 ) -> State:
    """Tensors one behind the other; codes with the same scale and zero point at once."""
    if not all(isinstance(state, (Codes, *_WAITING)) for state in inputs):
        raise CompileError(reason(node, inputs))
    shapes = [graph.shape(state) for state in inputs]
    axis = node.integer("axis", 1) % (len(shapes[0]) + 1)
    if axis == 0 or len({(*shape[:axis - 1], *shape[axis:]) for shape in shapes}) > 1:
        raise CompileError(f"joins the shapes {shapes} along axis {node.integer('axis', 1)}; supported: any axis "
                           "behind the batch")
    if sum(prod(shape) for shape in shapes) > MOST_MOVED:
        raise CompileError(f"joins the shapes {shapes}; supported: {MOST_MOVED} elements")
    first = inputs[0]
    joined = Joined(parts=tuple(inputs), axis=axis - 1)
    if isinstance(first, Codes) and all(isinstance(x, Codes) and replace(x, name="") == replace(first, name="")
                                        for x in inputs):
        value = replace(graph.values[first.name], scale=first.scale, zero_point=first.zero_point)
        close(graph, model, states, joined, value, node.outputs[0], node.name)
        return replace(first, name=node.outputs[0])
    return joined


def pair(graph: Builder, node: Node, a: Codes, b: Codes) -> tuple[Codes, Codes]:
    """Both operands in the shape of the result."""
    shapes = graph.shape(a), graph.shape(b)
    if len(shapes[0]) != len(shapes[1]):
        raise CompileError(f"joins the shapes {shapes[0]} and {shapes[1]}; supported: as many axes")
    try:
        target = np.broadcast_shapes(*shapes)
    except ValueError:
        raise CompileError(f"joins the shapes {shapes[0]} and {shapes[1]}, which do not fit") from None
    operands = []
    for key, codes, shape in zip("ab", (a, b), shapes, strict=True):
        name, move = f"{node.outputs[0]}/{key}", Index(broadcast(shape, target))
        operands.append(codes if shape == target else graph.moved(codes, name, move, node.name, "Expand"))
    return operands[0], operands[1]
