"""What a tensor of the model is while the importer walks over it."""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from almac.compiler.graph import CompileError, Index, Value
from almac.compiler.onnx_model import Node
from almac.compiler.scales import exact_code

__all__ = ["Chain", "Codes", "Joined", "Motion", "Moved", "Product", "Real", "State", "Sum", "Unsupported",
           "Weight"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Motion:
    """What an operator that moves data does: as an :class:`Index`, but padding with a real number."""

    node: Node
    index: np.ndarray
    pad: float

    def of_codes(self, scale: float, zero_point: int) -> Index:
        """The same for codes.

        Raises
        ------
        CompileError
            If no code stands for the padding.
        """
        return Index(self.index, exact_code(self.pad, scale, zero_point))


@dataclass(frozen=True, kw_only=True)
class Real:
    """A tensor that is not quantized: an input of the model, or what the host has made.

    ``name`` is its value in the graph. ``moves`` are what layout operators have done to it since: if it gets
    quantized next, its codes are moved instead.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    moves: tuple[Motion, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Codes:
    """Codes of the value ``name``, read with this scale and zero point (those of the device).

    ``real`` says whether a dequantizer has made real numbers of them: a model may compute on both.
    """

    name: str
    scale: float
    zero_point: int
    unsigned: bool
    real: bool

    def is_value(self, value: Value) -> bool:
        """Whether quantizing to ``value`` changes no code."""
        return (np.float32(self.scale) == np.float32(value.scale)
                and self.zero_point == value.zero_point and self.unsigned == value.unsigned)


@dataclass(frozen=True, kw_only=True, eq=False)
class Weight:
    """A constant behind a dequantizer: ``scale * (codes - zero_point)``.

    With ``block``, a scale is of so many consecutive indices of ``axis``. ``rest`` are what has been added to
    it: further planes of the same weights.
    """

    codes: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int
    block: int = 0
    rest: tuple["Weight", ...] = ()

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
        if self.scale.size != count or self.zero_point.size not in (1, count):
            raise CompileError(f"its weights have {self.scale.size} scales and {self.zero_point.size} zero "
                               f"points for {count} output channels")
        shape = [-1 if k == axis % rank else 1 for k in range(rank)]
        points = np.broadcast_to(self.zero_point.reshape(-1), (count,))
        return self.codes - points.reshape(shape), self.scale.reshape(-1).astype(np.float32)

    def transposed(self, order: tuple[int, ...]) -> "Weight":
        """The same numbers with their axes in another order."""
        if sorted(order) != list(range(self.codes.ndim)):
            raise CompileError(f"order {list(order)} of the axes of {list(self.codes.shape)}")
        scale = self.scale.transpose(order) if self.block else self.scale
        return replace(self, codes=self.codes.transpose(order), scale=scale,
                       axis=order.index(self.axis % max(self.codes.ndim, 1)),
                       rest=tuple(weight.transposed(order) for weight in self.rest))

    def real(self) -> np.ndarray:
        """Real values: float32[...]."""
        if self.block:
            steps = self.codes - np.broadcast_to(self._repeated(self.zero_point), self.codes.shape)
            real = steps.astype(np.float32) * self._repeated(self.scale)
        else:
            integers, scale = self.along(self.axis)
            shape = [-1 if k == self.axis else 1 for k in range(integers.ndim)]
            real = integers.astype(np.float32) * scale.reshape(shape).astype(np.float32)
        return sum((part.real() for part in self.rest), start=real)

    def _repeated(self, parameter: np.ndarray) -> np.ndarray:
        """A parameter of every block, for every element."""
        if parameter.ndim != self.codes.ndim:
            return parameter.reshape(())
        count = self.codes.shape[self.axis]
        return np.repeat(parameter, self.block, axis=self.axis).take(range(count), self.axis)


@dataclass(frozen=True, kw_only=True)
class Sum:
    """Two tensors of codes added, or the second one taken away, and what has been clipped since."""

    a: Codes
    b: Codes
    sign: int = 1
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True, kw_only=True)
class Product:
    """Two tensors of codes multiplied, and what has been clipped since."""

    a: Codes
    b: Codes
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """Functions of one code, in order, from the tensors ``starts`` on, which are all the codes dequantized.

    With ``channels``, the function of each channel is another one.
    """

    codes: Codes
    starts: tuple[str, ...]
    nodes: tuple[Node, ...] = ()
    channels: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Joined:
    """Tensors one behind the other along ``axis`` (without the batch), each to be quantized first."""

    parts: tuple["State", ...]
    axis: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Moved:
    """A tensor that will be moved as soon as it is quantized."""

    state: "State"
    motion: Motion


@dataclass(frozen=True)
class Unsupported:
    """What a node makes that is not valid."""


State: TypeAlias = Any
