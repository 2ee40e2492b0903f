"""Integer weights as planes of trits (NUMERICS.md section 2)."""

import numpy as np

from almac.compiler.graph import CompileError, Planes

__all__ = ["to_planes"]

#: Planes of balanced ternary whose scales 3**p fit into 8 bits.
_MOST_PLANES = 6


def to_planes(weights: np.ndarray) -> Planes:
    """The fewest planes of balanced ternary digits that sum to integer weights.

    ``weights = sum over p of 3**p * trits[p]``: one plane for -1..1, two for -4..4, three for -13..13, five
    for -121..121, six for -364..364. A factor that all weights share goes into the scales first.

    Parameters
    ----------
    weights : int[K, C, R, S]

    Raises
    ------
    CompileError
        If a weight is beyond what six planes hold.
    """
    weights = np.asarray(weights, np.int64)
    factor = int(np.gcd.reduce(weights, axis=None)) or 1
    factor = factor if factor * 3 ** (_planes(weights // factor) - 1) <= 255 else 1
    rest = weights // factor
    count = _planes(rest)
    if count > _MOST_PLANES:
        raise CompileError(f"weights of up to {np.abs(weights).max()} need {count} planes; "
                           f"supported: {_MOST_PLANES}, that is integers of 9 bits")
    trits = np.empty((count, *weights.shape), np.int8)
    for plane in range(count):
        # The remainder of -1, 0 or 1; what is left is a multiple of three.
        digit = (rest + 1) % 3 - 1
        trits[plane] = digit
        rest = (rest - digit) // 3
    alpha = factor * 3 ** np.arange(count, dtype=np.int64)
    shape = (count, weights.shape[0], 1)
    return Planes(trits=trits, alpha=np.broadcast_to(alpha[:, None, None], shape).copy())


def _planes(weights: np.ndarray) -> int:
    greatest = int(np.abs(weights).max(initial=0))
    count = 1
    while (3 ** count - 1) // 2 < greatest:
        count += 1
    return count
