"""The graph in the making, and where accumulators and codes leave it."""

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from almac.compiler.graph import (
    CompileError,
    Dequantize,
    Graph,
    Index,
    MaxPool,
    Move,
    Op,
    Requantize,
    Reshape,
    Value,
    verify,
)
from almac.compiler.linear import Linear
from almac.compiler.scales import code_of, fixed_point, offset_of
from almac.compiler.states import Chain, Codes, Joined, Moved, Product, Real, State, Sum

__all__ = ["Builder", "bipolar_of", "dequantized", "requantized"]


class Builder:
    """Ops and values in the order of their making, until the graph is whole.

    Attributes
    ----------
    ops : list[Op]
    values : dict[str, Value]
    dtypes : dict[str, dtype]
        Of real values; float32 where nothing is said.
    renamed : dict[str, str]
        Names that the graph will have instead, so that its outputs have those of the model.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.values: dict[str, Value] = {}
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.renamed: dict[str, str] = {}

    def emit(self, op: Op, value: Value) -> None:
        """Add an op; ``value`` is what it makes."""
        if op.output in self.values:
            raise CompileError(f"two tensors would be called {op.output!r}; rename the one of the model")
        if value.kind != "real" and not value.shape:
            raise CompileError("makes one number for each image; supported on the array: a vector; reshape it")
        self.ops.append(op)
        self.values[op.output] = value

    def shape(self, state: State) -> tuple[int, ...]:
        """Shape of a tensor for one image; empty where there is none."""
        match state:
            case Codes(name=name):
                return self.values[name].shape
            case Real(shape=shape) | Linear(shape=shape):
                return shape
            case Sum(a=a) | Product(a=a):
                return self.shape(a)
            case Chain(codes=codes):
                return self.shape(codes)
            case Moved(motion=motion):
                return motion.index.shape
            case Joined(parts=parts, axis=axis):
                shapes = [self.shape(part) for part in parts]
                return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1:])
            case np.ndarray():
                return state.shape[1:]
        return ()

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

    def move(self, before: str, after: str, move: Index, source: str, kind: str) -> None:
        """Add an op that moves codes; one that leaves them in their order is a reshape."""
        known = self.values[before]
        if not (move.index < 0).any():
            move = Index(move.index)
        common: dict[str, Any] = {"inputs": (before,), "output": after, "source": source}
        op = Reshape(**common) if move.is_order(int(np.prod(known.shape))) else Move(**common, move=move, kind=kind)
        self.emit(op, replace(known, shape=move.index.shape))

    def moved(self, codes: Codes, name: str, move: Index, source: str, kind: str) -> Codes:
        """Codes moved, as the value ``name``."""
        self.move(codes.name, name, move, source, kind)
        self.values[name] = replace(self.values[name], scale=codes.scale, zero_point=codes.zero_point)
        return replace(codes, name=name)

    def alias(self, codes: Codes, name: str) -> None:
        """A quantizer that changes nothing: what it makes is the same value, under its name if it is free."""
        producer = next((op for op in self.ops if op.output == codes.name), None)
        if isinstance(producer, MaxPool | Move | Reshape) and codes.name not in self.renamed:
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

    def finish(self, inputs: list[str], outputs: list[str], opset: int) -> Graph:
        """The graph."""
        names = self.renamed
        ops = tuple(replace(op, inputs=tuple(names.get(name, name) for name in op.inputs),
                            output=names.get(op.output, op.output)) for op in self.ops)
        used = {name for op in ops for name in (*op.inputs, op.output)}
        values = {names.get(name, name): value for name, value in self.values.items()}
        return verify(Graph(
            ops=ops, values={name: value for name, value in values.items() if name in used},
            inputs=tuple(name for name in inputs if name in used), outputs=tuple(outputs), opset=opset,
            dtypes={names.get(name, name): dtype.name for name, dtype in self.dtypes.items() if name in used}))


def requantized(linear: Linear, acc: str, value: Value, common: dict[str, Any]) -> Requantize:
    """Accumulators to the codes of ``value`` (NUMERICS.md section 4)."""
    scale, constant, bias = linear.scale, linear.constant, linear.bias
    if linear.counts is not None:
        # A divisor for each position: [K] becomes [K, P, Q].
        wide = (-1, *(1,) * linear.counts.ndim)
        scale = (scale.reshape(wide) / linear.counts.astype(np.float32)).astype(np.float32)
        constant = np.broadcast_to(constant.reshape(wide), scale.shape)
        bias = None if bias is None else np.broadcast_to(bias.reshape(wide), scale.shape)
    try:
        with np.errstate(over="ignore"):
            multiplier, shift = fixed_point(scale / np.float32(value.scale))
    except ValueError as error:
        raise CompileError(str(error)) from None
    offset = constant * multiplier
    if bias is not None:
        numbers = [offset_of(number, value.scale, bits)
                   for number, bits in zip(bias.reshape(-1), shift.reshape(-1), strict=True)]
        offset = offset + np.array(numbers, np.int64).reshape(shift.shape)
    if linear.rounding:
        if value.scale != 1.0:
            raise CompileError("quantizes rounded numbers to a scale other than 1")
        multiplier, offset, shift = _rounded(linear.rounding, multiplier, offset, shift)
    low, high = (code_of(limit, value.scale, value.zero_point) for limit in (linear.low, linear.high))
    return Requantize(inputs=(acc,), multiplier=multiplier, offset=offset, shift=shift,
                      zero_point=value.zero_point, low=max(low, value.low),
                      high=max(min(high, value.high), value.low), **common)


def _rounded(mode: str, multiplier: np.ndarray, offset: np.ndarray, shift: np.ndarray,
             ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters with which rounding to nearest becomes rounding down (``Floor``) or up (``Ceil``).

    For ``t / 2**s`` with an integer ``t``, ``floor`` is the nearest integer to ``(2 * t + 1) / 2**(s+1) - 1/2``,
    never a tie. Multipliers of 24 odd bits cannot be doubled: they move by a half less one step of ``t``, right
    for all sums that are not exactly one step below an integer, where float32 could not tell either.
    """
    whole = multiplier & -multiplier
    tail = np.where(multiplier == 0, 0, np.log2(np.maximum(whole, 1)).astype(np.int64))
    tail = np.minimum(np.minimum(tail, shift), np.where(offset == 0, 62, np.log2(np.maximum(
        offset & -offset, 1)).astype(np.int64)))
    multiplier, offset, shift = multiplier >> tail, offset >> tail, shift - tail
    double = (multiplier < 1 << 23) & (shift < 60) & (np.abs(offset) < 1 << 60)
    multiplier, offset, shift = (np.where(double, multiplier * 2, multiplier), np.where(double, offset * 2, offset),
                                 np.where(double, shift + 1, shift))
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0) - (shift > 0)
    return multiplier, offset - half if mode == "Floor" else offset + half, shift


def bipolar_of(linear: Linear, acc: str, common: dict[str, Any]) -> Requantize:
    """Accumulators to 1 where what they stand for is not below zero, else -1.

    ``2 * acc - 2 * threshold + 1`` is at least 1 from the threshold on, and at most -1 below it.
    """
    if linear.counts is not None or linear.rounding or linear.low > -np.inf or linear.high < np.inf:
        raise CompileError("takes the sign of what has been limited or rounded")
    known = np.zeros(len(linear.scale)) if linear.bias is None else linear.bias
    least = [_threshold(float(bias), float(scale)) for bias, scale in zip(known, linear.scale, strict=True)]
    threshold = np.array(least, np.int64) - linear.constant
    count = len(linear.scale)
    return Requantize(inputs=(acc,), multiplier=np.full(count, 2, np.int64), offset=1 - 2 * threshold,
                      shift=np.zeros(count, np.int64), low=-1, high=1, **common)


def _threshold(bias: float, scale: float) -> int:
    """Least integer ``n`` with ``scale * n + bias >= 0``."""
    if scale == 0:
        return -(1 << 40) if bias >= 0 else 1 << 40
    return max(-(1 << 40), min(1 << 40, ceil(-Fraction(bias) / Fraction(scale))))


def dequantized(name: str, output: str, state: Linear | Codes, source: str = "") -> Dequantize:
    """Accumulators or codes to what the user gets, on the host."""
    if isinstance(state, Codes):
        scale = np.array([state.scale if state.real else 1], np.float32)
        return Dequantize(inputs=(name,), output=output, source=source, scale=scale, bias=np.zeros(1, np.float32),
                          zero_point=state.zero_point if state.real else 0, exact=not state.real)
    bias = state.constant * state.scale.astype(np.float64)
    if state.bias is not None:
        bias = bias + state.bias
    return Dequantize(inputs=(name,), output=output, source=state.op.source, scale=state.scale,
                      bias=bias.astype(np.float32), low=state.low, high=state.high)
