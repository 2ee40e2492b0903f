"""Images to words of activation memory, and back: what compiler, host and simulation agree on."""

import numpy as np

from almac.compiler.graph import Fold
from almac.compiler.program import Placement, Port

__all__ = ["fold_words", "from_words", "raw_to_acc", "to_words"]


def to_words(codes: np.ndarray, lanes: int) -> np.ndarray:
    """Words of an image: int8[C, H, W] to int8[H * W * words, lanes]; lanes beyond C are zero."""
    channels, height, width = codes.shape
    words = -(-channels // lanes)
    padded = np.zeros((height, width, words * lanes), np.int8)
    padded[..., :channels] = codes.transpose(1, 2, 0)
    return padded.reshape(-1, lanes)


def fold_words(codes: np.ndarray, port: Port) -> np.ndarray:
    """Image of the device for an input: int8[C, H, W], moved, and with the kernel in the channels if folded."""
    codes = codes if port.move is None else port.move.apply(codes[None])[0]
    image = codes.reshape(codes.shape[0], *(1, 1, *codes.shape[1:])[-2:])
    return image if port.fold is None else fold_window(image, port.fold)


def fold_window(image: np.ndarray, fold: Fold) -> np.ndarray:
    """Lay the positions of a kernel side by side in the channels; copies codes, computes nothing.

    ``result[(r * S + s) * C + c, p, q] = image[c, p*sh + r*dh - top, q*sw + s*dw - left]``, the padding code
    outside the image. A fold with one kernel row leaves the rows to the loops of the convolution.
    """
    rows, columns = fold.kernel
    (sh, sw), (dh, dw), (top, left, bottom, right) = fold.strides, fold.dilations, fold.pads
    padded = np.pad(image, ((0, 0), (top, bottom), (left, right)), constant_values=fold.pad_code)
    height = (padded.shape[1] - dh * (rows - 1) - 1) // sh + 1
    width = (padded.shape[2] - dw * (columns - 1) - 1) // sw + 1
    return np.concatenate([
        padded[:, r * dh:r * dh + (height - 1) * sh + 1:sh, s * dw:s * dw + (width - 1) * sw + 1:sw]
        for r in range(rows) for s in range(columns)])


def from_words(words: np.ndarray, placement: Placement) -> np.ndarray:
    """Value in memory: int8[size * parts, lanes] to int8[C, H, W], or accumulators to int64."""
    channels, height, width = placement.shape
    parts = words.reshape(placement.parts, height, width, -1)[..., :channels].transpose(0, 3, 1, 2)
    return parts[0] if placement.parts == 1 else raw_to_acc(parts)


def raw_to_acc(parts: np.ndarray) -> np.ndarray:
    """Accumulators from their bytes, the lowest first: int8[4, ...] to int64[...]."""
    raw = np.ascontiguousarray(np.moveaxis(parts, 0, -1)).view("<i4")[..., 0]
    return raw.astype(np.int64)
