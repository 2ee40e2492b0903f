"""What an array can do with a node of a float model, once its input is quantized."""

import numpy as np

from almac.compiler.float_model import FloatModel
from almac.compiler.graph import CompileError
from almac.compiler.onnx_model import Node
from almac.compiler.operators import MOVES

__all__ = ["AVERAGES", "LINEAR", "PASS", "constant_width", "has_weights", "is_layout", "is_spatial"]

#: Operators with constant weights.
LINEAR = {"Conv", "ConvTranspose", "Gemm", "MatMul"}

#: Sums over windows or whole images.
AVERAGES = {"AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"}

#: Operators that do nothing.
PASS = {"Dropout", "Identity"}

_MAXIMA = {"GlobalMaxPool", "MaxPool", "ReduceMax"}


def has_weights(model: FloatModel, node: Node) -> bool:
    """Whether a linear operator has constant weights and bias, of a shape that the array computes with.

    Raises
    ------
    CompileError
        If they are real numbers of another type than float32.
    """
    names = [name for name in node.inputs[1:] if name]
    constants = [model.constants[name] for name in names if name in model.constants]
    if not names or len(constants) < len(names) or node.integer("transA", 0):
        return False
    for name, array in zip(names, constants, strict=True):
        if array.dtype != np.float32:
            raise CompileError(f"node {node.name!r} ({node.op}) reads {name!r}, which is of {array.dtype}; "
                               "supported: models in float32")
    return constants[0].ndim in ((2,) if node.op in ("Gemm", "MatMul") else (3, 4))


def is_spatial(model: FloatModel, node: Node) -> bool:
    """Whether a reduction is one of images, not of channels or the batch."""
    if not node.op.startswith("Reduce"):
        return True
    given = model.constants.get(node.inputs[1]) if len(node.inputs) > 1 else node.attributes.get("axes")
    rank = model.rank(node.inputs[0])
    return given is not None and rank > 0 and all(int(axis) % rank > 1 for axis in np.reshape(given, -1))


def is_layout(model: FloatModel, node: Node) -> bool:
    """Whether a node only moves the elements of its first input, or takes the largest ones."""
    match node.op:
        case op if op in _MAXIMA:
            return is_spatial(model, node)
        case "Resize" | "Upsample":
            return bool(node.attributes.get("mode", "nearest") == "nearest")
        case "Pad":
            # Another number than zero may be outside the range of the tensor, by far.
            value = node.inputs[2] if len(node.inputs) > 2 else ""
            return not value or not np.any(model.constants.get(value, np.ones(1)))
        case op:
            return op in MOVES or op in PASS


def constant_width(model: FloatModel, node: Node, axis: int) -> int:
    """1 if the constants of a node are single numbers, 2 if some are one for each index of ``axis``; else 0."""
    shape = model.shape(next(name for name in node.inputs if name not in model.constants))
    constants = [model.constants[name] for name in node.inputs if name in model.constants]
    for constant in constants:
        sizes = (*(1,) * (len(shape) - constant.ndim), *constant.shape)
        if len(sizes) != len(shape) and constant.ndim:
            return 0
        if constant.size > 1 and (
                axis >= len(shape) or constant.size != sizes[axis] or shape[axis] not in (None, sizes[axis])):
            return 0
    return 2 if any(constant.size > 1 for constant in constants) else 1
