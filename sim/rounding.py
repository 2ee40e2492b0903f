"""The one rounding of the device (NUMERICS.md section 4): to nearest, ties to even."""

import numpy as np

__all__ = ["saturate", "shift_half_even"]


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
