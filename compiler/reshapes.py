"""Shapes of the operators that move nothing, for one image."""

from collections.abc import Callable

import numpy as np

from almac.compiler.graph import CompileError
from almac.compiler.onnx_model import Node

__all__ = ["order_of", "reshaped"]


def reshaped(node: Node, shape: tuple[int, ...], constant: Callable[[int], np.ndarray | None]) -> tuple[int, ...]:
    """Shape, without the batch, that Flatten, Reshape, Squeeze or Unsqueeze makes of ``shape``.

    ``constant(k)`` gives the k-th input of the node, None if it has none.
    """
    batched = (1, *shape)
    match node.op:
        case "Flatten":
            if node.integer("axis", 1) % len(batched) != 1:
                raise CompileError(f"axis = {node.integer('axis', 1)}; supported: 1")
            return (int(np.prod(shape)),)
        case "Reshape":
            return _reshape(node, batched, constant(1))
        case "Squeeze":
            axes = _axes(node, constant(1), len(batched))
            axes = {k for k, size in enumerate(batched) if size == 1 and k} if axes is None else axes
            if 0 in axes or any(batched[k] != 1 for k in axes):
                raise CompileError(f"drops axes of {list(batched)} that are not 1, or the batch")
            return tuple(size for k, size in enumerate(batched) if k and k not in axes)
        case _:
            new = constant(1)
            count = len(batched) + (0 if new is None else new.size)
            axes = _axes(node, new, count) or set()
            sizes = iter(batched)
            result = tuple(1 if k in axes else next(sizes) for k in range(count))
            if 0 in axes:
                raise CompileError("puts an axis before the batch; supported: behind it")
            return result[1:]


def order_of(node: Node, rank: int) -> tuple[int, ...]:
    """Order of the axes of one image, that is without the batch, that a Transpose makes."""
    order = [int(k) for k in node.attributes.get("perm", range(rank)[::-1])]
    if sorted(order) != list(range(rank)) or order[0] != 0:
        raise CompileError(f"perm = {order}; supported: orders that keep the batch first")
    return tuple(k - 1 for k in order[1:])


def _axes(node: Node, given: np.ndarray | None, rank: int) -> set[int] | None:
    axes = node.attributes.get("axes") if given is None else given.reshape(-1).tolist()
    return None if axes is None else {int(k) % rank for k in axes}


def _reshape(node: Node, batched: tuple[int, ...], target: np.ndarray | None) -> tuple[int, ...]:
    if target is None:
        raise CompileError("its shape is not a constant")
    size = int(np.prod(batched))
    given = [int(v) for v in target.reshape(-1)]
    if not node.integer("allowzero", 0):
        given = [batched[k] if v == 0 and k < len(batched) else v for k, v in enumerate(given)]
    sizes = list(given)
    if sizes.count(-1) == 1:
        known = int(np.prod([v for v in sizes if v != -1]))
        sizes[sizes.index(-1)] = size // max(known, 1)
    if len(sizes) < 2 or sizes[0] != 1 or int(np.prod(sizes)) != size or min(sizes) < 1:
        raise CompileError(f"reshapes {list(batched)} to {given}; supported: constant shapes that keep the "
                           "batch first")
    return tuple(sizes[1:])
