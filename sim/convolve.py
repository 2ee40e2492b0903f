"""Convolutions in matrix products of float32 that are small enough to be exact."""

import math
import weakref
from dataclasses import dataclass

import numpy as np

from almac.compiler.graph import Pool

__all__ = ["convolve", "windows"]

#: Greatest magnitude of a code.
_CODE = 128

#: Integers up to this magnitude, and sums that stay below it in any order, are exact in float32.
_EXACT = 1 << 24

#: Elements of the windows that are laid out at a time, at least an image's.
_BLOCK = 1 << 22


def windows(op, x, pad, shape=None):
    """Windows of an image: [N, C, P, Q, R, S]; as many positions as ``shape`` says, or as fit.

    Parameters
    ----------
    op : Pool or Fold
    x : int[N, C, ...]
    pad : int
        What is outside the image.
    shape : tuple[int, ...] or None
        Of the output for one image.
    """
    x = x.reshape(x.shape[0], x.shape[1], *(1, 1, *x.shape[2:])[-2:])
    (sh, sw), (dh, dw), (top, left, bottom, right) = op.strides, op.dilations, op.pads
    rows, columns = op.kernel
    span = (dh * (rows - 1) + 1, dw * (columns - 1) + 1)
    if shape is not None:
        # Positions may hang over the pads (ceil_mode).
        positions = (1, 1, *shape[1:])[-2:]
        bottom = max(bottom, (positions[0] - 1) * sh + span[0] - top - x.shape[2])
        right = max(right, (positions[1] - 1) * sw + span[1] - left - x.shape[3])
    if min(op.pads) < 0:
        # They crop.
        x = x[:, :, max(-top, 0):x.shape[2] - max(-bottom, 0), max(-left, 0):x.shape[3] - max(-right, 0)]
        top, left, bottom, right = (max(size, 0) for size in (top, left, bottom, right))
    if top or left or bottom or right:
        x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=pad)
    view = np.lib.stride_tricks.sliding_window_view(x, span, axis=(2, 3))
    if not sh or not sw:
        # The same position for every output.
        view = np.broadcast_to(view[:, :, :1 if not sh else None, :1 if not sw else None], (
            *view.shape[:2], positions[0] if not sh else view.shape[2], positions[1] if not sw else view.shape[3],
            *view.shape[4:]))
    view = view[:, :, ::sh or 1, ::sw or 1, ::dh, ::dw]
    return view if shape is None else view[:, :, :positions[0], :positions[1]]


def convolve(op, x, weight=None, shape=None):
    """Accumulators of a batch of codes.

    Parameters
    ----------
    op : Conv
    x : int8[N, C, ...]
    weight : int[K, C, R, S] or None
        Other weights than those of ``op``; ``x`` may then hold other integers than codes.
    shape : tuple[int, ...] or None
        Of the output for one image; needed for strides of zero.

    Returns
    -------
    int32[N, K, P, Q]
        int64 with weights whose sums may need it.
    """
    if weight is None:
        matrix = _matrix_of(op.weight, op.groups)
        kernel = op.weight.trits.shape[3:]
    else:
        matrix = _Matrix.of(weight, op.groups, max(_CODE, int(np.abs(x).max(initial=0))))
        kernel = weight.shape[2:]
    window = Pool(inputs=op.inputs, output=op.output, kernel=kernel, strides=op.strides,
                  dilations=op.dilations, pads=op.pads)
    view = windows(window, x, op.pad_code, shape)
    images, _, height, width = view.shape[:4]
    # The reduction first, so that it is the rows of a matrix: [C, R, S, N, P, Q].
    view = view.transpose(1, 4, 5, 0, 2, 3)
    groups, per_group, reduction = matrix.weight.shape
    acc = np.empty((images, groups * per_group, height, width), matrix.dtype)
    step = max(1, _BLOCK * images // max(1, math.prod(view.shape)))
    for n in range(0, images, step):
        part = view[:, :, :, n:n + step]
        columns = np.empty(part.shape, np.float32)
        columns[...] = part
        product = matrix.times(columns.reshape(groups, reduction, -1))
        acc[n:n + step] = product.reshape(-1, *columns.shape[3:]).swapaxes(0, 1)
    return acc


@dataclass(frozen=True, kw_only=True)
class _Matrix:
    """Weights as matrices.

    Attributes
    ----------
    weight : float32[G, K / G, C R S]
    cuts : tuple[int, ...]
        Where the reduction is cut into pieces whose sums are exact in float32.
    dtype : type
        Integers that hold the sum of all pieces.
    """

    weight: np.ndarray
    cuts: tuple[int, ...]
    dtype: type

    @classmethod
    def of(cls, weight, groups, greatest):
        """Those of weights that meet integers of at most ``greatest`` in magnitude."""
        weight = weight.reshape(weight.shape[0], -1)
        # Sums of magnitudes up to each position: no sum of any of the products in between is larger.
        sums = np.cumsum(np.abs(weight), axis=1, dtype=np.int64) * greatest
        cuts, before = [0], 0
        while (sums[:, -1] - before).max() > _EXACT:
            beyond = (sums - np.reshape(before, (-1, 1)) > _EXACT).any(axis=0)
            cuts.append(int(beyond.argmax()))
            assert cuts[-1] > cuts[-2], f"weights of up to {np.abs(weight).max()} are not exact in float32"
            before = sums[:, cuts[-1] - 1]
        return cls(weight=weight.reshape(groups, len(weight) // groups, -1).astype(np.float32),
                   cuts=(*cuts, weight.shape[1]),
                   dtype=np.int32 if sums[:, -1].max() < 1 << 31 else np.int64)

    def times(self, columns):
        """Products with float32[G, C R S, L]: [G, K / G, L]."""
        total = None
        for begin, end in zip(self.cuts, self.cuts[1:], strict=False):
            product = self.weight[:, :, begin:end] @ columns[:, begin:end]
            if len(self.cuts) == 2:
                return product
            product = product.astype(self.dtype)
            total = product if total is None else np.add(total, product, out=total)
        return total


#: Matrices of weights that are still in use, by identity.
_MATRICES: dict[tuple[int, int], _Matrix] = {}


def _matrix_of(planes, groups):
    key = id(planes), groups
    if key not in _MATRICES:
        _MATRICES[key] = _Matrix.of(planes.dense(), groups, _CODE)
        weakref.finalize(planes, _MATRICES.pop, key).atexit = False
    return _MATRICES[key]
