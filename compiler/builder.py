"""The graph in the making, and where accumulators and codes leave it."""

from dataclasses import replace
from typing import Any

import numpy as np

from almac.compiler.graph import (
    CompileError,
    Dequantize,
    Graph,
    MaxPool,
    Op,
    Requantize,
    Reshape,
    Transpose,
    Value,
    verify,
)
from almac.compiler.linear import Linear
from almac.compiler.scales import code_of, fixed_point, offset_of
from almac.compiler.states import Codes

__all__ = ["Builder", "dequantized", "requantized"]


class Builder:
    """Ops and values in the order of their making, until the graph is whole.

    Attributes
    ----------
    ops : list[Op]
    values : dict[str, Value]
    renamed : dict[str, str]
        Names that the graph will have instead, so that its outputs have those of the model.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.values: dict[str, Value] = {}
        self.renamed: dict[str, str] = {}

    def emit(self, op: Op, value: Value) -> None:
        """Add an op; ``value`` is what it makes."""
        self.ops.append(op)
        self.values[op.output] = value

    def close(self, linear: Linear) -> str:
        """Emit the op that makes the accumulators, unless it is there already; their name."""
        value = Value(shape=linear.shape, kind="acc")
        name, count = linear.op.output, 0
        while name in self.values:
            # Two readers may want opposite signs (a factor below zero), or another shape.
            if replace(linear.op, output=name) in self.ops and self.values[name] == value:
                return name
            count += 1
            name = f"{linear.op.output}/{count}"
        self.emit(replace(linear.op, output=name), value)
        return name

    def alias(self, codes: Codes, name: str) -> None:
        """A quantizer that changes nothing: what it makes is the same value, under its name if it is free."""
        producer = next((op for op in self.ops if op.output == codes.name), None)
        if isinstance(producer, MaxPool | Reshape | Transpose) and codes.name not in self.renamed:
            self.renamed[codes.name] = name

    def output(self, name: str, state: Linear | Codes) -> None:
        """Give the user accumulators or codes under the name of the model's output."""
        if isinstance(state, Linear):
            source, shape = self.close(state), state.shape
        else:
            source, shape = state.name, self.values[state.name].shape
            if not state.real:
                self.renamed[source] = f"{name}/codes"
        self.emit(dequantized(source, f"{name}/user", state, name), Value(shape=shape, kind="real"))
        self.renamed[f"{name}/user"] = name
        # What the user gets has the name of the output; the value that it is made of needs another.
        if name in self.values:
            self.renamed.setdefault(name, f"{name}/{'acc' if self.values[name].kind == 'acc' else 'codes'}")

    def finish(self, inputs: list[str], outputs: list[str]) -> Graph:
        """The graph."""
        names = self.renamed
        ops = tuple(replace(op, inputs=tuple(names.get(name, name) for name in op.inputs),
                            output=names.get(op.output, op.output)) for op in self.ops)
        used = {name for op in ops for name in (*op.inputs, op.output)}
        values = {names.get(name, name): value for name, value in self.values.items()}
        return verify(Graph(
            ops=ops, values={name: value for name, value in values.items() if name in used},
            inputs=tuple(name for name in inputs if name in used), outputs=tuple(outputs)))


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
