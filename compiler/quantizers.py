"""Scales and zero points of QuantizeLinear and DequantizeLinear."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from almac.compiler.graph import CompileError, Value
from almac.compiler.onnx_model import Node
from almac.compiler.states import State, Weight

__all__ = ["Parameters", "parameters"]

#: Types that ``output_dtype`` may name, by their number in ONNX.
_DEFAULTS: dict[int, Any] = {2: np.uint8, 3: np.int8, 21: ml_dtypes.uint4, 22: ml_dtypes.int4, 25: ml_dtypes.uint2,
                             26: ml_dtypes.int2}

#: Types of codes.
_INTEGERS = {np.dtype(kind) for kind in (
    np.int8, np.uint8, np.int16, np.uint16, np.int32, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4,
    ml_dtypes.uint4)}

#: Types of activations; the narrower ones are stored as 8 bits.
_ACTIVATIONS = {np.dtype(kind) for kind in (
    np.int8, np.uint8, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Parameters:
    """Checked parameters of a quantizer or dequantizer; the zero point has the type of the codes."""

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int
    block: int

    def value(self) -> Value:
        """What an activation with these parameters holds, as the device does; without its shape.

        Raises
        ------
        CompileError
            If an activation cannot have them.
        """
        if self.scale.size != 1 or self.zero_point.size != 1:
            raise CompileError("activations with a scale per channel; supported: one per tensor")
        dtype = self.zero_point.dtype
        if dtype not in _ACTIVATIONS:
            raise CompileError(f"activations of {dtype}; supported: int8, uint8, and narrower ones")
        limits: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        unsigned = int(limits.min) == 0
        shift = 128 * unsigned
        return Value(shape=(), scale=float(self.scale.reshape(-1)[0]), unsigned=unsigned,
                     zero_point=int(self.zero_point.reshape(-1)[0]) - shift,
                     low=int(limits.min) - shift, high=int(limits.max) - shift)

    def weight(self, codes: np.ndarray) -> Weight:
        """Constant codes behind a dequantizer."""
        integers = codes.astype(np.int64)
        axis, block = self.axis % max(codes.ndim, 1), 0
        if self.block:
            _check_blocks(codes.shape, self.scale.shape, axis, self.block)
            if self.zero_point.size > 1 and self.zero_point.shape != self.scale.shape:
                raise CompileError(f"zero points of the shape {list(self.zero_point.shape)} for scales of "
                                   f"{list(self.scale.shape)}")
            block = max(min(self.block, codes.shape[axis]), 1)
        elif self.scale.size not in (1, *codes.shape[axis:axis + 1]):
            raise CompileError(f"{self.scale.size} scales for the axis {axis} of {list(codes.shape)}")
        zero_point = self.zero_point.astype(np.int64)
        return Weight(codes=integers, scale=self.scale,
                      zero_point=zero_point.reshape(()) if zero_point.size == 1 else zero_point,
                      axis=axis, block=block)

    def quantize(self, x: np.ndarray) -> np.ndarray:
        """Codes of constant real numbers, by the float32 definition."""
        if self.block:
            raise CompileError("quantizes constants in blocks; supported: constants that are quantized already")
        if x.dtype.kind not in "fiuV":
            raise CompileError(f"quantizes constants of {x.dtype}; supported: numbers")
        limits: Any = ml_dtypes.iinfo(self.zero_point.dtype)  # type: ignore[no-untyped-call]
        scale, zero_point = (self._along(array, x) for array in (self.scale, self.zero_point.astype(np.int64)))
        if not np.isfinite(x.astype(np.float32)).all():
            raise CompileError("quantizes constants that are not finite")
        codes = np.rint(x.astype(np.float32) / scale) + zero_point
        return np.clip(codes, int(limits.min), int(limits.max)).astype(np.int64).astype(self.zero_point.dtype)

    def _along(self, parameter: np.ndarray, x: np.ndarray) -> np.ndarray:
        if parameter.size == 1:
            return parameter.reshape(())
        axis = self.axis % max(x.ndim, 1)
        if x.shape[axis:axis + 1] != (parameter.size,):
            raise CompileError(f"{parameter.size} scales for the axis {axis} of {list(x.shape)}")
        return parameter.reshape([-1 if k == axis else 1 for k in range(x.ndim)])


def parameters(node: Node, inputs: list[State], codes: np.ndarray | None = None, *,
               activation: bool = False) -> Parameters:
    """Parameters of ``node``, whose inputs are in the states ``inputs``; a dequantizer's of constant ``codes``.

    Raises
    ------
    CompileError
        If they are not constants, or no scale.
    """
    scale = inputs[1] if len(inputs) > 1 else None
    if not isinstance(scale, np.ndarray) or scale.dtype.kind not in "fiuV":
        raise CompileError("its scale is not a constant number")
    scale = scale.astype(np.float32)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise CompileError(f"its scale is {scale.reshape(-1)[:4].tolist()}; scales must be finite and "
                           "greater than zero")
    zero_point = inputs[2] if len(inputs) > 2 else None
    if zero_point is None:
        kind = _DEFAULTS.get(node.integer("output_dtype", 2))
        if kind is None:
            raise CompileError(f"output_dtype = {node.integer('output_dtype', 0)}; supported: INT8, UINT8, or a "
                               "zero point of the type")
        zero_point = np.zeros((), kind if codes is None else codes.dtype)
    if not isinstance(zero_point, np.ndarray):
        raise CompileError("its zero point is not a constant")
    block = node.integer("block_size", 0)
    if not scale.size or block < 0 or (not block and zero_point.size not in (1, scale.size)):
        raise CompileError(f"{scale.size} scales and {zero_point.size} zero points in blocks of {block}")
    # Codes of an activation are known by their sign alone: the type is that of the zero point, if there is one.
    known = codes is None or (activation and zero_point.dtype in _ACTIVATIONS)
    dtype = zero_point.dtype if known or codes is None else codes.dtype
    if dtype not in _INTEGERS or zero_point.dtype != dtype:
        raise CompileError(f"codes of {dtype} with a zero point of {zero_point.dtype}; supported: the same "
                           "integers of up to 32 bits")
    return Parameters(scale=scale, zero_point=zero_point, axis=node.integer("axis", 1),
                      block=block)


def _check_blocks(shape: tuple[int, ...], scales: tuple[int, ...], axis: int, block: int) -> None:
    expected = tuple(-(-size // block) if k == axis else size for k, size in enumerate(shape))
    if scales != expected:
        raise CompileError(f"scales of the shape {list(scales)} for {list(shape)} in blocks of {block}; "
                           f"expected: {list(expected)}")
