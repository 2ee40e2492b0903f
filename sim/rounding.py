"""The one rounding of the device (NUMERICS.md section 4): to nearest, ties to even."""

import math

import numpy as np

__all__ = ["by_channel", "round_sum", "saturate", "shift_half_even"]

#: Elements that are rounded at a time: they stay in the cache from the first step to the last.
_BLOCK = 1 << 15


def shift_half_even(total, shift):
    """``total / 2**shift``, rounded to nearest, ties to even.

    Parameters
    ----------
    total : int64[...]
        Exact sums.
    shift : int64[...]
        From 0 to 63.

    Returns
    -------
    int64[...]
    """
    total, shift = np.asarray(total, np.int64), np.asarray(shift, np.int64)
    floor = total >> shift
    rest = total - (floor << shift)
    # With a shift of 63 the half does not overflow: 2**62.
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), np.int64(1))
    return floor + ((rest > half) | ((rest == half) & (floor & 1 == 1)))


def saturate(values, low, high):
    """Codes within ``low``..``high``: int8[...]."""
    return np.clip(values, low, high).astype(np.int8)


def round_sum(terms, multipliers, offset, shift, *, zero_point, low, high):
    """``clip(round_half_even((sum of terms * multipliers + offset) / 2**shift) + zero_point, low, high)``, exactly.

    In float64, block by block; what float64 cannot tell from a tie is rounded again in integers.

    Parameters
    ----------
    terms : sequence of int[N, K, ...]
        One or two.
    multipliers : sequence of int64[], int64[K] or int64[K, ...]
        One for each term.
    offset, shift : int64[], int64[K] or int64[K, ...]
        No sum may leave 64 bits; shifts are from 0 to 63.

    Returns
    -------
    int8[N, K, ...]
    """
    # A batch of single codes has one channel too.
    shape = (*terms[0].shape, 1)[:max(2, terms[0].ndim)]
    codes = np.empty(terms[0].shape, np.int8)
    if not codes.size:
        return codes
    terms = [term.reshape(shape) for term in terms]
    shift, *factors = (by_channel(values, len(shape)) for values in (shift, *multipliers, offset))
    error = _error(terms, factors, shift)
    # A division by a power of two rounds nothing.
    scales = [factor * np.ldexp(1.0, -shift) for factor in factors]
    for block in _blocks(shape):
        parts = [term[block] for term in terms]
        *products, real = (_part(scale, block) for scale in scales)
        for part, scale in zip(parts, products, strict=True):
            real = part * scale + real
        steps = np.rint(real)
        if error:
            unsure = np.nonzero(np.abs(real - steps) >= 0.5 - error)
            *products, total, shifts = (
                np.broadcast_to(_part(values, block), real.shape)[unsure] for values in (*factors, shift))
            for part, factor in zip(parts, products, strict=True):
                total = total + part[unsure].astype(np.int64) * factor
            steps[unsure] = shift_half_even(total, shifts)
        steps += zero_point
        codes.reshape(shape)[block] = np.clip(steps, low, high, out=steps)
    return codes


def by_channel(values, ndim):
    """Parameters [], [K] or [K, P, Q] of a tensor of ``ndim`` axes: int64[K, ...] that broadcasts against it."""
    array = np.asarray(values, np.int64)
    return array if array.ndim > 1 else array.reshape(-1, *(1,) * (ndim - 2))


def _error(terms, factors, shift):
    """How far a sum in float64 may be from the exact one, in units of the result; 0 if it is exact.

    ``factors`` are those of the terms, and the offset.
    """
    *multipliers, offset = (np.abs(factor.astype(np.float64)) for factor in factors)
    size = offset
    for term, multiplier in zip(terms, multipliers, strict=True):
        size = size + multiplier * max(-float(term.min()), float(term.max()))
    # An integer below 2**53, and each sum of such that stays below, is exact.
    if size.max() < 2.0 ** 53:
        return 0.0
    # Otherwise each product, the offset and each addition round once, by at most 2**-53 of the sum of all
    # magnitudes: with two terms five times, and the size itself is as good as exact. 2**-50 is eight times.
    return float((size * np.ldexp(1.0, -shift)).max()) * 2.0 ** -50


def _blocks(shape):
    """Slices of a batch, by image and channel, that together cover it."""
    images = max(1, _BLOCK // math.prod(shape[1:]))
    channels = max(1, _BLOCK // math.prod(shape[2:]))
    for n in range(0, shape[0], images):
        for k in range(0, shape[1], channels):
            yield slice(n, n + images), slice(k, k + channels)


def _part(values, block):
    """What belongs to a block, of what may be the same for all channels."""
    return values if len(values) == 1 else values[block[1]]
