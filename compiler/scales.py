"""Real scales and biases as integers (NUMERICS.md sections 4 and 5)."""

from fractions import Fraction

import numpy as np

from almac.compiler.graph import CompileError

__all__ = ["OFFSET_LIMIT", "code_of", "exact_code", "fixed_point", "offset_of"]

#: Bits of a multiplier.
_MANTISSA = 24

#: Scales so small that more would be shifted out give up low bits of the multiplier instead: what an
#: accumulator of 31 bits contributes is then below 2**-21 output steps per bit given up.
_MOST_SHIFT = 52

#: Offsets beyond it saturate the output whatever the accumulator is: a product has 55 bits, and the output
#: range shifted left at most 60.
OFFSET_LIMIT = 1 << 61


def fixed_point(scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multiplier and shift of float32 scales, ``scale = multiplier / 2**shift``.

    Parameters
    ----------
    scale : float32[K]
        Not negative; zero gives the multiplier zero.

    Returns
    -------
    multiplier, shift : int64[K]
        ``2**23 <= multiplier < 2**24`` unless the shift has reached its limit.

    Raises
    ------
    ValueError
        If a scale is 2**24 or more.
    """
    scale = np.asarray(scale, np.float32)
    if not (scale < 2.0 ** _MANTISSA).all():
        raise ValueError(f"scale must be below 2**{_MANTISSA}, not {np.max(scale)!r}")
    mantissa, exponent = np.frexp(scale.astype(np.float64))
    multiplier = (mantissa * (1 << _MANTISSA)).astype(np.int64)
    shift = np.where(multiplier == 0, _MANTISSA, _MANTISSA - exponent.astype(np.int64))
    excess = np.maximum(shift - _MOST_SHIFT, 0)
    return multiplier >> np.minimum(excess, _MANTISSA), shift - excess


def offset_of(bias: float, y_scale: float, shift: int) -> int:
    """``round_half_even(bias / y_scale * 2**shift)``, exact, at most :data:`OFFSET_LIMIT` in magnitude."""
    exact = Fraction(float(bias)) / Fraction(float(y_scale)) * (1 << int(shift))
    return max(-OFFSET_LIMIT, min(OFFSET_LIMIT, round(exact)))


def exact_code(real: float, scale: float, zero_point: int) -> int:
    """Code of a real number that is one of those that codes stand for.

    Raises
    ------
    CompileError
        If it is not.
    """
    code = code_of(real, scale, zero_point)
    if np.float32(code - zero_point) * np.float32(scale) != np.float32(real):
        raise CompileError(f"pads with {real}, which is not among the numbers of the codes, {scale} * (code - "
                           f"{zero_point}); pad with 0")
    return code


def code_of(real: float, scale: float, zero_point: int) -> int:
    """Code of a real number, saturated to -128..127."""
    # The greatest float32 numbers mean no bound; their quotient may be infinite.
    with np.errstate(over="ignore"):
        steps = np.rint(np.float32(real) / np.float32(scale))
    return int(np.clip(steps + np.float32(zero_point), -128, 127))
