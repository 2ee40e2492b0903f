"""Images to words of activation memory, and back: what compiler, host and simulation agree on."""

import numpy as np

from almac.compiler.program import Placement

__all__ = ["from_words", "raw_to_acc", "to_words"]


def to_words(codes: np.ndarray, lanes: int) -> np.ndarray:
    """Words of an image: int8[C, H, W] to int8[H * W * words, lanes]; lanes beyond C are zero."""
    channels, height, width = codes.shape
    words = -(-channels // lanes)
    padded = np.zeros((height, width, words * lanes), np.int8)
    padded[..., :channels] = codes.transpose(1, 2, 0)
    return padded.reshape(-1, lanes)


def from_words(words: np.ndarray, placement: Placement) -> np.ndarray:
    """Value in memory: int8[size * parts, lanes] to int8[C, H, W], or accumulators to int64."""
    channels, height, width = placement.shape
    parts = words.reshape(placement.parts, height, width, -1)[..., :channels].transpose(0, 3, 1, 2)
    return parts[0] if placement.parts == 1 else raw_to_acc(parts)


def raw_to_acc(parts: np.ndarray) -> np.ndarray:
    """Accumulators from their bytes, the lowest first: int8[4, ...] to int64[...]."""
    raw = np.ascontiguousarray(np.moveaxis(parts, 0, -1)).view("<i4")[..., 0]
    return raw.astype(np.int64)
