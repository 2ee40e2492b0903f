"""What a tensor of the model is while the importer walks over it."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from almac.compiler.graph import CompileError, Value
from almac.compiler.onnx_model import Node

__all__ = ["Chain", "Codes", "Real", "State", "Sum", "Unsupported", "Weight"]


@dataclass(frozen=True, kw_only=True)
class Real:
    """An input of the model that nothing has quantized yet."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Codes:
    """Codes of the value ``name``, read with this scale and zero point (those of the device)."""

    name: str
    scale: float
    zero_point: int
    unsigned: bool

    def is_value(self, value: Value) -> bool:
        """Whether quantizing to ``value`` changes no code."""
        return (np.float32(self.scale) == np.float32(value.scale)
                and self.zero_point == value.zero_point and self.unsigned == value.unsigned)


@dataclass(frozen=True, kw_only=True, eq=False)
class Weight:
    """A constant behind a dequantizer: ``scale * (codes - zero_point)``."""

    codes: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int

    def along(self, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """Integers, and their scale for each index of ``axis``: int64[...], float32[n]."""
        rank = self.codes.ndim
        count = self.codes.shape[axis] if rank else 1
        if self.scale.size == 1:
            return self.codes - self.zero_point.reshape(-1)[0], np.full(
                count, self.scale.reshape(-1)[0], np.float32)
        if self.axis % rank != axis % rank:
            raise CompileError(f"its weights have a scale for each index of axis {self.axis}; supported: "
                               f"axis {axis}, the output channels")
        shape = [-1 if k == axis % rank else 1 for k in range(rank)]
        points = np.broadcast_to(self.zero_point.reshape(-1), (count,))
        return self.codes - points.reshape(shape), self.scale.reshape(-1).astype(np.float32)

    def real(self) -> np.ndarray:
        """Real values: float32[n] of a vector."""
        return (self.codes - self.zero_point).astype(np.float32) * self.scale.astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Sum:
    """Two tensors of codes added, and what has been clipped since."""

    a: Codes
    b: Codes
    source: str
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """Functions of one code, one after the other, from the tensor ``start`` on."""

    codes: Codes
    start: str
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Unsupported:
    """What an unsupported node makes; whoever reads it is not named again."""


State: TypeAlias = Any
