"""Bias, factor, normalization and clipping, between a sum and its quantizer."""

from dataclasses import replace

import numpy as np

from almac.compiler.graph import CompileError
from almac.compiler.linear import Linear, batch_norm, per_channel
from almac.compiler.messages import reason
from almac.compiler.onnx_model import Node
from almac.compiler.states import State, Sum, Weight

__all__ = ["after_sum", "bounds", "with_constant"]


def after_sum(node: Node, inputs: list[State]) -> Linear | Sum:
    """A node on accumulators, or on the sum of two tensors.

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
            return replace(state, low=min(max(state.low, low), high), high=max(min(state.high, high), low))
        case "BatchNormalization", [Linear() as linear, *rest]:
            return batch_norm(linear, node, rest)
        case "Add", [Linear() as linear, np.ndarray() | Weight() as constant] | [
                np.ndarray() | Weight() as constant, Linear() as linear]:
            return with_constant(linear, constant)
        case "Sub", [Linear() as linear, np.ndarray() as constant]:
            return with_constant(linear, constant, -1.0)
        case "Mul", [Linear() as linear, np.ndarray() as constant] | [
                np.ndarray() as constant, Linear() as linear]:
            return linear.times(per_channel(constant, linear.shape))
        case "Div", [Linear() as linear, np.ndarray() as constant]:
            with np.errstate(all="ignore"):
                return linear.times(1 / per_channel(constant, linear.shape).astype(np.float64))
    raise CompileError(reason(node, inputs))


def with_constant(linear: Linear, constant: State, factor: float = 1.0) -> Linear:
    """Add a constant that is broadcast along the channels."""
    per_channel(constant.codes if isinstance(constant, Weight) else np.asarray(constant), linear.shape)
    if factor == 1.0:
        return linear.with_bias(constant)
    real = constant.real() if isinstance(constant, Weight) else constant
    return linear.with_bias(np.asarray(real, np.float64) * factor)


def bounds(node: Node, inputs: list[State]) -> tuple[float, float]:
    """Lower and upper bound of a Clip."""
    limits = [-np.inf, np.inf]
    for index in (0, 1):
        limit = inputs[index + 1] if len(inputs) > index + 1 else None
        if limit is None:
            continue
        if not isinstance(limit, np.ndarray) or limit.size != 1 or np.isnan(limit).any():
            raise CompileError("its bounds are not constant numbers")
        limits[index] = float(limit.reshape(-1)[0])
    return limits[0], limits[1]
