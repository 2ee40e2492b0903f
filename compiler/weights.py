"""Integer weights as planes of trits (NUMERICS.md section 2)."""

import numpy as np

from almac.compiler.graph import CompileError, Planes

__all__ = ["common_scale", "grouped_planes", "to_planes"]

#: Planes of balanced ternary whose scales 3**p fit into 8 bits.
_MOST_PLANES = 6

#: Greatest magnitude of a group scale.
_MOST_ALPHA = 255

#: How far a float32 ratio of two rounded scales may be from an integer, relative.
_RATIO = 4 * 2.0 ** -24


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
    greatest = max(-int(weights.min(initial=0)), int(weights.max(initial=0)))
    weights = np.asarray(weights, np.int32 if greatest < 1 << 31 else np.int64)
    factor = int(np.gcd.reduce(weights, axis=None)) or 1
    factor = factor if factor * 3 ** (_planes(greatest // factor) - 1) <= _MOST_ALPHA else 1
    count = _planes(greatest // factor)
    if count > _MOST_PLANES:
        raise CompileError(f"weights of up to {greatest} need {count} planes; "
                           f"supported: {_MOST_PLANES}, that is integers of 9 bits")
    # The digits of every integer that may occur, looked up: index 0 stands for the lowest.
    rest = np.arange(-(greatest // factor), greatest // factor + 1)
    index = (weights // factor - rest[0]).astype(np.intp)
    trits = np.empty((count, *weights.shape), np.int8)
    for plane in range(count):
        # The remainder of -1, 0 or 1; what is left is a multiple of three.
        digit = (rest + 1) % 3 - 1
        np.take(digit.astype(np.int8), index, out=trits[plane], mode="clip")
        rest = (rest - digit) // 3
    alpha = factor * 3 ** np.arange(count, dtype=np.int64)
    shape = (count, weights.shape[0], 1)
    return Planes(trits=trits, alpha=np.broadcast_to(alpha[:, None, None], shape).copy())


def grouped_planes(parts: list[tuple[np.ndarray, np.ndarray]]) -> Planes:
    """Planes of a sum of weights whose scales are of groups of input channels.

    Parameters
    ----------
    parts : list of (int[K, C, R, S], int[K, G])
        Integers, and the factor of each group; all parts have the same groups.

    Raises
    ------
    CompileError
        If a group scale gets beyond 8 bits.
    """
    digits = [to_planes(weights) for weights, _ in parts]
    alpha = np.concatenate([planes.alpha * factors for planes, (_, factors) in zip(digits, parts, strict=True)])
    if np.abs(alpha).max(initial=0) > _MOST_ALPHA:
        raise CompileError(f"its group scales are up to {np.abs(alpha).max()} times the least one; "
                           f"supported: {_MOST_ALPHA}")
    return Planes(trits=np.concatenate([planes.trits for planes in digits]), alpha=alpha)


def common_scale(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Write each row of scales as integers of at most 8 bits times one scale.

    Parameters
    ----------
    scales : float32[K, M]
        Greater than zero.

    Returns
    -------
    unit, factors : float32[K], int64[K, M]

    Raises
    ------
    CompileError
        If there are no such integers for a row.
    """
    least = scales.min(axis=1, keepdims=True).astype(np.float64)
    unit = np.zeros(len(scales), np.float32)
    factors = np.zeros(scales.shape, np.int64)
    for divisor in range(_MOST_ALPHA, 0, -1):
        # The smallest divisor comes last, and stays.
        ratio = scales / least * divisor
        near = np.rint(ratio)
        fits = ((np.abs(ratio - near) <= _RATIO * near) & (near <= _MOST_ALPHA)).all(axis=1)
        factors[fits] = near[fits].astype(np.int64)
        unit[fits] = (least[fits, 0] / divisor).astype(np.float32)
    if not unit.all():
        row = int(np.argmin(unit))
        raise CompileError(f"its group scales for output channel {row} are not integers of at most 8 bits "
                           "times one scale; quantize with such scales")
    return unit, factors


def _planes(greatest: int) -> int:
    count = 1
    while (3 ** count - 1) // 2 < greatest:
        count += 1
    return count
