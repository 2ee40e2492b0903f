"""Where accumulators and codes leave: requantization, and real numbers for the user."""

from dataclasses import replace
from typing import Any

import numpy as np

from almac.compiler.graph import CompileError, Dequantize, Op, Requantize, Value
from almac.compiler.linear import Linear
from almac.compiler.scales import code_of, fixed_point, offset_of
from almac.compiler.states import Codes

__all__ = ["close_linear", "dequantized", "requantized"]


def close_linear(linear: Linear, ops: list[Op], values: dict[str, Value]) -> str:
    """Emit the op that makes the accumulators, unless it is there already; their name."""
    value = Value(shape=linear.shape, kind="acc")
    name, count = linear.op.output, 0
    while name in values:
        # Two readers may want opposite signs (a factor below zero), or another shape.
        op = replace(linear.op, output=name)
        if op in ops and values[name] == value:
            return name
        count += 1
        name = f"{linear.op.output}/{count}"
    ops.append(replace(linear.op, output=name))
    values[name] = value
    return name


def requantized(linear: Linear, acc: str, value: Value, common: dict[str, Any]) -> Requantize:
    """Accumulators to the codes of ``value`` (NUMERICS.md section 4)."""
    try:
        with np.errstate(over="ignore"):
            multiplier, shift = fixed_point(linear.scale / np.float32(value.scale))
    except ValueError as error:
        raise CompileError(str(error)) from None
    offset = linear.constant * multiplier
    if linear.bias is not None:
        offset = offset + np.array([
            offset_of(bias, value.scale, bits)
            for bias, bits in zip(linear.bias, shift, strict=True)], np.int64)
    return Requantize(inputs=(acc,), multiplier=multiplier, offset=offset, shift=shift,
                      zero_point=value.zero_point,
                      low=code_of(linear.low, value.scale, value.zero_point),
                      high=code_of(linear.high, value.scale, value.zero_point), **common)


def dequantized(name: str, output: str, state: Linear | Codes, source: str = "") -> Dequantize:
    """Accumulators or codes to what the user gets, on the host."""
    if isinstance(state, Codes):
        scale = np.array([state.scale if state.real else 1], np.float32)
        return Dequantize(inputs=(name,), output=output, source=source, scale=scale, bias=np.zeros(1, np.float32),
                          zero_point=state.zero_point if state.real else 0, exact=not state.real)
    if state.low > -np.inf or state.high < np.inf:
        raise CompileError(f"output {output.removesuffix('/user')!r}: Relu or Clip of a tensor that is not "
                           "quantized; quantize the tensor, or cut the model before them")
    bias = state.constant * state.scale.astype(np.float64)
    if state.bias is not None:
        bias = bias + state.bias
    return Dequantize(inputs=(name,), output=output, source=state.op.source,
                      scale=state.scale, bias=bias.astype(np.float32))
