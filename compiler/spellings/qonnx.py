"""QONNX: quantizers from real numbers to real numbers, of any number of bits."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from almac.compiler.spellings.emit import Rewrite, Rule, decline
from almac.compiler.spellings.inputs import Declined, Operand, Scheme, array, attribute, is_constant, operands
from almac.compiler.spellings.rounding import HALF_EVEN, round_constant, round_nodes, steps_of

__all__ = ["RULES"]

_DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")

#: Domain of the one operator that ONNX cannot spell.
_OURS = "almac"

_ONE = Scheme(scale=np.ones((), np.float32), zero_point=np.zeros((), np.int64))


def _quant(rewrite: Rewrite) -> ir.Value:
    """Of constants, the codes; of activations, QuantizeLinear, bounds on the codes, DequantizeLinear.

    QONNX adds the zero point before it rounds, and ONNX after: an activation at a tie with an odd zero point is
    rounded to the other side. Constants are not.
    """
    node = rewrite.node
    x, scale, zero_point, bit_width = operands(node, 4)
    steps = steps_of(attribute(node, "rounding_mode", "ROUND"))
    bits, signed = _bits(bit_width), attribute(node, "signed", 1)
    low, high = _bounds(bits, signed, attribute(node, "narrow", 1))
    scales, points = _scale(scale), _zero_point(zero_point)
    bipolar = bits == 1 and signed
    if is_constant(x):
        y = _steps_of_constant(_numbers(x), scales, points)
        codes = np.where(y >= 0, 1, -1) if bipolar else np.clip(
            round_constant(steps, y).astype(np.float64), low, high)
        return _codes(rewrite, codes, (-1, 1) if bipolar else (low, high), scales, points)
    if bipolar:
        if points.any():
            raise Declined("one bit with a zero point; supported: without")
        return _sign(rewrite, x, scale)
    real = _activation_scheme(scales, points)
    if steps == HALF_EVEN:
        return _activation(rewrite, x, real, real, (low, high))
    rounded = round_nodes(rewrite, steps, _in_steps(rewrite, x, real), "rounded")
    return _activation(rewrite, rounded, _ONE, real, (low, high))


def _steps_of_constant(x: np.ndarray, scales: np.ndarray, points: np.ndarray) -> np.ndarray:
    """``x / scale + zero_point`` in float32; what is too large for that saturates anyway."""
    try:
        with np.errstate(over="ignore"):
            return x / scales + points.astype(np.float32)
    except ValueError:
        raise Declined(f"scales of the shape {list(scales.shape)} and zero points of {list(points.shape)} for "
                       f"{list(x.shape)}") from None


def _bipolar_quant(rewrite: Rewrite) -> ir.Value:
    """Zero counts as positive, which no function of ONNX says."""
    x, scale = operands(rewrite.node, 2)
    if is_constant(x):
        return _codes(rewrite, np.where(_numbers(x) >= 0, 1, -1), (-1, 1), _scale(scale),
                      np.zeros((), np.int64))
    return _sign(rewrite, x, scale)


def _sign(rewrite: Rewrite, x: Operand, scale: Operand) -> ir.Value:
    return rewrite.op("BipolarQuant", (x, scale), "real", main=True, domain=_OURS)


def _trunc(rewrite: Rewrite) -> ir.Value:
    """Codes divided by a power of two, which the older form says by bit widths and the newer one by scales."""
    node = rewrite.node
    steps = steps_of(attribute(node, "rounding_mode", "FLOOR"))
    if len(node.inputs) > 5:
        x, scale, zero_point, _, out_scale, out_bits = operands(node, 6)
        before, after = _activation_scheme(_scale(scale), _zero_point(zero_point)), _scale(out_scale)
        factor = np.exp2(np.rint(np.log2(after / before.scale)))
        real = _activation_scheme(after, _whole(before.zero_point / factor, "zero point divided by the scales"))
        bounds = _bounds(_bits(out_bits), attribute(node, "signed", 1), attribute(node, "narrow", 0))
    else:
        x, scale, zero_point, in_bits, out_bits = operands(node, 5)
        before = real = _activation_scheme(_scale(scale), _zero_point(zero_point))
        factor = np.exp2(np.float32(_bits(in_bits) - _bits(out_bits)))
        bounds = _int8_bounds(_bits(out_bits))
    if factor < 1:
        raise Declined("a truncation to more bits; supported: to fewer")
    whole = rewrite.op("Round", (_in_steps(rewrite, x, before),), "whole")
    truncated = rewrite.op("Div", (whole, rewrite.constant(np.array(factor, np.float32), "factor")), "truncated")
    # QuantizeLinear rounds half to even by itself.
    rounded = truncated if steps == HALF_EVEN else round_nodes(rewrite, steps, truncated, "rounded")
    return _activation(rewrite, rounded, _ONE, real, bounds)


def _int8_bounds(bits: int) -> tuple[int, int]:
    """Bounds that leave codes of so many bits alone, whether they are signed or not."""
    if 2 ** bits > 127:
        raise Declined(f"a truncation to {bits} bits that does not say whether they are signed; supported: up to "
                       "6; give it an out_scale and the attribute signed (qonnx 1.0)")
    return -128, 127


def _in_steps(rewrite: Rewrite, x: Operand, real: Scheme) -> ir.Value:
    """``x / scale + zero_point``, as QONNX computes it."""
    y = rewrite.op("Div", (x, rewrite.constant(real.scale, "step")), "steps")
    if real.zero_point == 0:
        return y
    offset = rewrite.constant(real.zero_point.astype(np.float32), "offset")
    return rewrite.op("Add", (y, offset), "shifted")


def _activation(rewrite: Rewrite, x: Operand, quantize: Scheme, real: Scheme, bounds: tuple[int, int],
                ) -> ir.Value:
    """Codes of ``x`` within ``bounds``, and what they are worth."""
    dtype: np.dtype[Any] = np.dtype(np.int8 if bounds[0] < 0 else np.uint8)
    limits = np.iinfo(dtype)
    if bounds[0] < limits.min or bounds[1] > limits.max:
        raise Declined(f"an activation with codes from {bounds[0]} to {bounds[1]}; supported: 8 bits")
    quantize, real = _of_type(quantize, dtype), _of_type(real, dtype)
    if bounds == (limits.min, limits.max):
        codes = rewrite.quantize(x, quantize, main=True)
    else:
        wide = rewrite.quantize(x, quantize, "wide", main=True)
        low, high = (rewrite.constant(np.array(bound, dtype), part) for bound, part in
                     zip(bounds, ("low", "high"), strict=True))
        codes = rewrite.op("Clip", (wide, low, high), "codes", dtype=ir.DataType.from_numpy(dtype))
    return rewrite.dequantize(codes, real, "real")


def _codes(rewrite: Rewrite, codes: np.ndarray, bounds: tuple[int, int], scales: np.ndarray, points: np.ndarray,
           ) -> ir.Value:
    """A constant of codes within ``bounds``, behind DequantizeLinear."""
    dtype = _smallest(min(bounds[0], int(points.min())), max(bounds[1], int(points.max())))
    scheme = _along(Scheme(scale=scales, zero_point=points.astype(dtype)), codes.shape)
    return rewrite.dequantize(rewrite.constant(codes.astype(dtype), "codes"), scheme, "real", main=True)


def _smallest(low: int, high: int) -> np.dtype[Any]:
    """The first type that holds both; unsigned ones have at most 8 bits."""
    for kind in (np.int8 if low < 0 else np.uint8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return np.dtype(kind)
    raise Declined(f"codes from {low} to {high}; supported: 32 bits with a sign")


def _along(scheme: Scheme, shape: tuple[int, ...]) -> Scheme:
    """With the axis of a constant of this shape along which the scales or zero points differ."""
    scale, zero_point = np.broadcast_arrays(scheme.scale, scheme.zero_point)
    if scale.size == 1:
        return Scheme(scale=scale.reshape(()), zero_point=zero_point.reshape(()))
    axes = [axis for axis, size in enumerate(scale.shape, len(shape) - scale.ndim) if size != 1]
    if len(axes) != 1 or scale.ndim > len(shape) or shape[axes[0]] != scale.size:
        raise Declined(f"scales of the shape {list(scale.shape)} for {list(shape)}; supported: along one axis")
    return Scheme(scale=scale.reshape(-1), zero_point=zero_point.reshape(-1), axis=axes[0])


def _activation_scheme(scales: np.ndarray, points: np.ndarray) -> Scheme:
    if scales.size > 1 or points.size > 1:
        raise Declined(f"an activation with {max(scales.size, points.size)} scales or zero points; supported: one")
    return Scheme(scale=scales.reshape(()), zero_point=points.reshape(()))


def _of_type(scheme: Scheme, dtype: np.dtype[Any]) -> Scheme:
    limits = np.iinfo(dtype)
    if not limits.min <= scheme.zero_point <= limits.max:
        raise Declined(f"the zero point {scheme.zero_point} with codes of {dtype}")
    return replace(scheme, zero_point=scheme.zero_point.astype(dtype))


def _bounds(bits: int, signed: int, narrow: int) -> tuple[int, int]:
    """Least and greatest code; a narrow range has one code less: the least, or the greatest without a sign."""
    if signed:
        return -(2 ** (bits - 1)) + bool(narrow), 2 ** (bits - 1) - 1
    return 0, 2 ** bits - 1 - bool(narrow)


def _numbers(value: Operand) -> np.ndarray:
    numbers = array(value, "input").astype(np.float32)
    if np.isnan(numbers).any():
        raise Declined("quantizes constants that are not numbers")
    return numbers


def _scale(value: Operand) -> np.ndarray:
    scale = array(value, "scale").astype(np.float32)
    if not scale.size or not (np.isfinite(scale).all() and (scale > 0).all()):
        raise Declined(f"its scale is {scale.reshape(-1)[:4].tolist()}; scales must be finite and greater than "
                       "zero")
    return scale


def _zero_point(value: Operand) -> np.ndarray:
    return _whole(array(value, "zero point"), "zero point")


def _bits(value: Operand) -> int:
    bits = _whole(array(value, "bit width"), "bit width")
    if bits.size != 1 or not 1 <= int(bits.reshape(-1)[0]) <= 32:
        raise Declined(f"its bit width is {bits.reshape(-1)[:4].tolist()}; supported: one from 1 to 32")
    return int(bits.reshape(-1)[0])


def _whole(numbers: np.ndarray, what: str) -> np.ndarray:
    """Whole numbers that have been written as real ones."""
    real = numbers.astype(np.float64)
    # Beyond 32 bits nothing is a zero point or bit width.
    if not real.size or not (np.abs(real) < 2.0 ** 31).all() or (real != np.rint(real)).any():
        raise Declined(f"its {what} is {numbers.reshape(-1)[:4].tolist()}; supported: whole numbers of 32 bits")
    return real.astype(np.int64)


_OPS: dict[str, Rule] = {
    "Quant": _quant,
    "IntQuant": _quant,
    "BipolarQuant": _bipolar_quant,
    "Trunc": _trunc,
    "MultiThreshold": decline("a sum of thresholds; export the model before its quantizers become thresholds"),
}

RULES: dict[tuple[str, str], Rule] = {(domain, op): rule for domain in _DOMAINS for op, rule in _OPS.items()}
