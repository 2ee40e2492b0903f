"""Operators that only move data, by what they do to the numbers of the elements."""

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx
from onnx import helper

from almac.compiler.graph import CompileError
from almac.compiler.onnx_model import Node
from almac.compiler.onnx_run import node_model, run_model
from almac.compiler.states import State

__all__ = ["MOST_MOVED", "broadcast", "moves_of"]

#: Inputs that hold a shape, whose first size may be that of the model's own batch.
_SHAPES = {"Expand": 1, "Reshape": 1, "Resize": 3}

#: Elements of a tensor that is moved: few enough for float32 to number them exactly.
MOST_MOVED = 1 << 23

_NAME = "elements"
_PAD = "pad"


def moves_of(node: Node, opset: int, shape: tuple[int, ...], inputs: Sequence[State], batch: int = 1,
             ) -> tuple[list[np.ndarray], float]:
    """Where the elements of each output come from, and the real number that padding holds.

    The node is executed on the numbers 0, 1, 2, ... in a tensor of ``shape``, with padding of -1: what it makes
    of them is the answer, whatever its attributes mean.

    Parameters
    ----------
    shape : tuple[int, ...]
        Of one image, without the batch.
    inputs : sequence of State
        Those of the node; all but the first constants.
    batch : int
        Size that a constant shape may have instead of a batch of one.

    Returns
    -------
    indices : list of int32[...]
        For each output, in its shape without the batch.
    pad : float

    Raises
    ------
    CompileError
        If the node computes, moves the batch, or is not valid.
    """
    size = prod(shape)
    if size > MOST_MOVED:
        raise CompileError(f"moves {size} elements; supported: {MOST_MOVED}")
    if node.op in ("Resize", "Upsample") and node.attributes.get("mode", "nearest") not in ("nearest", b"nearest"):
        raise CompileError(f"mode = {node.attributes['mode']}; supported: nearest")
    if node.op == "Transpose":
        order = [int(k) for k in node.attributes.get("perm", range(len(shape) + 1)[::-1])]
        if sorted(order) != list(range(len(shape) + 1)) or order[0] != 0:
            raise CompileError(f"perm = {order}; supported: orders that keep the batch first")
    if node.op == "Flatten" and node.integer("axis", 1) % (len(shape) + 1) != 1:
        raise CompileError(f"axis = {node.integer('axis', 1)}; supported: 1")
    constants = {}
    for index, (name, state) in enumerate(zip(node.inputs[1:], inputs[1:], strict=True), 1):
        if name and not isinstance(state, np.ndarray):
            raise CompileError("its shape is not a constant" if node.op == "Reshape"
                               else f"its input {index} is not a constant")
        if name and state is not None:
            constants[name] = state
    name = (*node.inputs, "", "", "")[_SHAPES.get(node.op, 0)]
    if batch > 1 and name in constants:
        sizes = constants[name].reshape(-1)
        if sizes[:1] == batch and (node.op == "Reshape" or len(sizes) == len(shape) + 1):
            constants[name] = np.concatenate([[1], sizes[1:]])
    proto, pad = _padding(node, constants)
    results = []
    for output in node.outputs:
        if not output:
            results.append(np.zeros(0, np.int32))
            continue
        model = node_model([proto], opset, {_NAME: np.dtype(np.float32)}, constants, output)
        got = run_model(model, [np.arange(size, dtype=np.float32).reshape(1, *shape)])
        if got.ndim < 2 or got.shape[0] != 1 or not got.size:
            raise CompileError(f"makes {list(got.shape)} of {[1, *shape]}; supported: shapes that keep the batch "
                               "first")
        results.append(got[0].astype(np.int32))
    return results, pad


def _padding(node: Node, constants: dict[str, np.ndarray]) -> tuple[onnx.NodeProto, float]:
    """The node on the numbers of the elements, with padding of -1, and what it really pads with."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    proto.input[0] = _NAME
    if node.op != "Pad" or node.attributes.get("mode", "constant") != "constant":
        return proto, 0.0
    if "pads" in node.attributes:
        kept = [item for item in proto.attribute if item.name != "value"]
        del proto.attribute[:]
        proto.attribute.extend([*kept, helper.make_attribute("value", -1.0)])
        return proto, float(node.attributes.get("value", 0.0))
    given = constants.pop(node.inputs[2], None) if len(node.inputs) > 2 and node.inputs[2] else None
    rest = list(proto.input)[3:]
    del proto.input[2:]
    proto.input.extend([_PAD, *rest])
    constants[_PAD] = np.array(-1, np.float32)
    return proto, 0.0 if given is None else float(given.reshape(-1)[0])


def broadcast(shape: tuple[int, ...], target: tuple[int, ...]) -> np.ndarray:
    """Where the elements of a tensor of ``target`` come from, if it is broadcast from ``shape``: int32[target]."""
    padded = (*(1,) * (len(target) - len(shape)), *shape)
    return np.broadcast_to(np.arange(int(np.prod(shape)), dtype=np.int32).reshape(padded), target).copy()
