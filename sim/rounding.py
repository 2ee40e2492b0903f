"""The one rounding of the device (NUMERICS.md section 4): to nearest, ties to even."""

import math

import numpy as np

__all__ = ["round_sum", "saturate", "shift_half_even"]

#: Elements that are rounded at a time: they stay in the cache from the first step to the last.
_BLOCK = 1 << 15

#: Far beyond every code, however far its zero point is from it, but a short integer.
_FAR = 1 << 14


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
    shift, *factors = (_by_channel(values, len(shape)) for values in (shift, *multipliers, offset))
    # Scaling by a power of two rounds nothing.
    unit = np.ldexp(1.0, -shift)
    scales = [factor * unit for factor in factors]
    size = _magnitude(terms, factors)
    greatest = float((size * unit).max())
    # Integers below 2**53, and sums of them that stay below, are exact in float64. Otherwise each product, the
    # offset and each addition round once, by at most 2**-53 of the sum of all magnitudes: with two terms five
    # times. 2**-50 allows for eight, and so for the roundings of the magnitudes too.
    error = 0.0 if size.max() < 2.0 ** 53 else greatest * 2.0 ** -50
    longest = min(codes.size, max(_BLOCK, math.prod(shape[2:])))
    bounds = np.full((2, longest), [[low], [high]], np.int16)
    for block in _blocks(shape):
        parts = [term[block] for term in terms]
        *products, real = (_part(scale, block) for scale in scales)
        for part, scale in zip(parts, products, strict=True):
            product = part * scale
            real = np.add(product, real, out=product)
        steps = np.rint(real)
        if error and (unsure := np.abs(real - steps) >= 0.5 - error).any():
            integers = (np.broadcast_to(_part(values, block), real.shape)[unsure] for values in (*factors, shift))
            steps[unsure] = _in_integers([part[unsure] for part in parts], *integers)
        if greatest > _FAR:
            np.clip(steps, -_FAR, _FAR, out=steps)
        # Saturation of short integers, by arrays rather than numbers, takes a quarter of the time.
        short = steps.reshape(-1).astype(np.int16)
        short += zero_point
        for bound, limit in zip(bounds, (np.maximum, np.minimum), strict=True):
            limit(short, bound[:len(short)], out=short)
        codes.reshape(shape)[block] = short.reshape(steps.shape)
    return codes


def _in_integers(parts, *factors):
    """``factors`` are those of the parts, the offset and the shift, for each element."""
    *products, total, shift = factors
    for part, factor in zip(parts, products, strict=True):
        total = total + part.astype(np.int64) * factor
    return shift_half_even(total, shift)


def _by_channel(values, ndim):
    """Parameters [], [K] or [K, P, Q] of a tensor of ``ndim`` axes: int64[K, ...] that broadcasts against it."""
    array = np.asarray(values, np.int64)
    return array if array.ndim > 1 else array.reshape(-1, *(1,) * (ndim - 2))


def _magnitude(terms, factors):
    """Sum of the magnitudes of the products with the terms, and of the offset behind them: float64[K, ...]."""
    *multipliers, total = (np.abs(factor.astype(np.float64)) for factor in factors)
    for term, multiplier in zip(terms, multipliers, strict=True):
        total = total + multiplier * max(-float(term.min()), float(term.max()))
    return total


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
