"""Bias, factor, normalization and clipping, between a sum and its quantizer."""

from dataclasses import replace

import numpy as np

from almac.compiler.graph import CompileError
from almac.compiler.linear import Linear, batch_norm, per_channel
from almac.compiler.messages import reason
from almac.compiler.onnx_model import Node
from almac.compiler.states import Product, State, Sum, Weight

__all__ = ["after_sum", "bounds"]


def after_sum(node: Node, inputs: list[State]) -> Linear | Sum | Product:
    """A node on accumulators, or on the sum or product of two tensors.

    Raises
    ------
    CompileError
        If a quantizer must come first.
    """
    match node.op, inputs:
        case "Relu", [state]:
            return replace(state, low=max(state.low, 0.0), high=max(state.high, 0.0))
        case "Clip", [state, *_]:
            low, high = bounds(node, inputs)
            # Where the bounds are the wrong way round, ONNX takes the upper one.
            low = min(low, high)
            return replace(state, low=min(max(state.low, low), high), high=max(min(state.high, high), low))
        case "Floor" | "Ceil", [Linear(low=low, high=high, rounding="") as linear] if low == -high == -np.inf:
            return replace(linear, rounding=node.op)
        case "BatchNormalization", [Linear() as linear, *rest]:
            return batch_norm(linear, node, rest)
        case "Add", [Linear() as linear, np.ndarray() | Weight() as constant] | [
                np.ndarray() | Weight() as constant, Linear() as linear]:
            return linear.plus(constant)
        case "Sub", [Linear() as linear, np.ndarray() | Weight() as constant]:
            return linear.plus(constant, -1.0)
        case "Mul", [Linear() as linear, np.ndarray() | Weight() as constant] | [
                np.ndarray() | Weight() as constant, Linear() as linear]:
            return linear.times(per_channel(_real(constant), linear.shape))
        case "Div", [Linear() as linear, np.ndarray() | Weight() as constant]:
            with np.errstate(all="ignore"):
                return linear.times(1 / per_channel(_real(constant), linear.shape).astype(np.float64))
    raise CompileError(reason(node, inputs))


def _real(constant: np.ndarray | Weight) -> np.ndarray:
    return constant.real() if isinstance(constant, Weight) else constant


def bounds(node: Node, inputs: list[State]) -> tuple[float, float]:
    """Lower and upper bound of a Clip, attributes up to opset 10, inputs since."""
    limits = [float(node.attributes.get("min", -np.inf)), float(node.attributes.get("max", np.inf))]
    for index in (0, 1):
        limit = inputs[index + 1] if len(inputs) > index + 1 else None
        if limit is None:
            continue
        if not isinstance(limit, np.ndarray) or limit.size != 1 or np.isnan(limit).any():
            raise CompileError("its bounds are not constant numbers")
        limits[index] = float(limit.reshape(-1)[0])
    return limits[0], limits[1]
