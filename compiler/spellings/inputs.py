"""What a node reads: constants, attributes, parameters of quantizers; or why it is not as its operator demands."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx_ir as ir

__all__ = ["Declined", "Operand", "Scheme", "array", "attribute", "dtype_of", "is_constant", "operands", "scheme"]

_T = TypeVar("_T", int, float, str, tuple[int, ...])

#: An input of a node; None for an optional one that is left out.
Operand: TypeAlias = ir.Value | None


class Declined(Exception):
    """Why a node is left as it is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scheme:
    """Scale and zero point of codes: one, or one for each index of ``axis``; the zero point has their type."""

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int | None = None


def operands(node: ir.Node, count: int, optional: Container[int] = ()) -> tuple[Operand, ...]:
    """The ``count`` inputs of ``node``, with None for each of the ``optional`` ones that is left out.

    Raises
    ------
    Declined
        If another one is left out, or there are more.
    """
    given = tuple(node.inputs)
    inputs = given + (None,) * (count - len(given))
    missing = [index for index, value in enumerate(inputs) if value is None and index not in optional]
    if missing or len(inputs) > count:
        raise Declined(f"has {len(given)} inputs; its operator has {count}"
                       + (f", and the one at {missing[0]} must not be left out" if missing else ""))
    return inputs


def is_constant(value: Operand) -> bool:
    """Whether ``value`` is an initializer or the output of a Constant."""
    return value is not None and _tensor(value) is not None


def array(value: Operand, what: str) -> np.ndarray:
    """Numbers of a constant; ``what`` it is, for messages.

    Raises
    ------
    Declined
        If it is none.
    """
    tensor = None if value is None else _tensor(value)
    if tensor is None:
        raise Declined(f"its {what} is not a constant")
    try:
        numbers = tensor.numpy()
    except (OSError, TypeError, ValueError) as error:
        raise Declined(f"its {what} cannot be read ({error})") from None
    if numbers.dtype.kind in "OSU":
        raise Declined(f"its {what} is text")
    return numbers


def _tensor(value: ir.Value) -> ir.TensorProtocol | None:
    try:
        return ir.convenience.get_const_tensor(value)
    except ValueError:
        # A Constant that is not as ONNX demands.
        return None


def attribute(node: ir.Node, name: str, default: _T) -> _T:
    """An attribute, of the type of its ``default``."""
    item = node.attributes.get(name)
    if item is None:
        return default
    if not isinstance(item.value, type(default)):
        raise Declined(f"its attribute {name} is not of the type {type(default).__name__}")
    return item.value


def scheme(scale: Operand, zero_point: Operand, *, axis: int | None = None,
           default: np.dtype[Any] | None = None) -> Scheme:
    """Constant parameters of a quantizer.

    Parameters
    ----------
    scale, zero_point : Operand
        As the operator has them. Without a zero point it is 0.
    axis : int | None
        Of several scales; None if there may be only one.
    default : np.dtype | None
        Type of a zero point that is left out, if it is known.

    Raises
    ------
    Declined
        If they are not constants, or of a shape that is not supported.
    """
    scales = array(scale, "scale").astype(np.float32)
    if zero_point is None and default is None:
        raise Declined("the type of its codes is not known; give it a zero point")
    points = np.zeros((), default) if zero_point is None else array(zero_point, "zero point")
    count = max(scales.size, points.size)
    # Several are in one dimension; those of a batch of matrices are [1, ..., 1, N].
    if any(numbers.size not in (1, count) or (numbers.size > 1 and numbers.shape[-1] != count)
           for numbers in (scales, points)):
        raise Declined(f"scales of the shape {list(scales.shape)} and zero points of {list(points.shape)}")
    if count == 1:
        return Scheme(scale=scales.reshape(()), zero_point=points.reshape(()))
    if axis is None:
        raise Declined(f"an activation with {count} scales or zero points; supported: one")
    return Scheme(scale=np.broadcast_to(scales.reshape(-1), (count,)), axis=axis,
                  zero_point=np.broadcast_to(points.reshape(-1), (count,)))


def dtype_of(codes: Operand) -> np.dtype[Any] | None:
    """Type of a tensor, if the model says it."""
    return None if codes is None or codes.dtype is None else codes.dtype.numpy()
