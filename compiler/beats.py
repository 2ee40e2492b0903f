"""Weights of a tile in the order in which the array wants them: a word of trits a beat, and group scales.

A processing element applies one group scale to a beat, so a beat must not cross groups. Groups narrower than a word
are taken one after the other, as if they were further planes whose trits are zero outside the group: the price is
``lanes / group`` times the beats.
"""

import numpy as np

from almac.hdl.config import ArrayConfig

__all__ = ["array_words", "by_segment"]


def by_segment(trits: np.ndarray, alpha: np.ndarray, channels: int, lanes: int,
                ) -> tuple[np.ndarray, np.ndarray]:
    """Planes in which no word of channels crosses a group, and the scale of every channel.

    Returns trits int8[P', K, C, R, S] and scales int64[P', K, C] (one group: int64[P', K, 1]).
    """
    groups = alpha.shape[2]
    if groups == 1:
        return trits, alpha
    size = -(-channels // groups)
    group = np.arange(channels) // size
    word = np.arange(channels) // lanes
    # Which one of the groups that a word touches.
    segment = group - group[word * lanes]
    split = np.concatenate([
        trits * (segment == index)[None, None, :, None, None]
        for index in range(int(segment.max()) + 1)])
    per_channel = np.tile(alpha[:, :, group], (int(segment.max()) + 1, 1, 1))
    return split.astype(np.int8), per_channel


def array_words(trits: np.ndarray, scales: np.ndarray, begin: int, end: int, offsets: list[int],
                 config: ArrayConfig) -> tuple[np.ndarray, np.ndarray, int]:
    """Trits of every beat, scales, and the beats that share a word of scales.

    ``offsets`` are the first input channels of each row's group.
    """
    lanes, rows = config.lanes, config.rows
    planes, count, per_group, kernel_rows, kernel_columns = trits.shape
    words = end - begin
    shape = (planes, kernel_rows, kernel_columns, words * lanes, rows)
    beats = np.zeros(shape, np.int8)
    for row, offset in enumerate(offsets):
        at = offset - begin * lanes
        beats[:, :, :, at:at + per_group, row] = trits[:, row].transpose(0, 2, 3, 1)
    beats = beats.reshape(planes, kernel_rows, kernel_columns, words, lanes, rows)
    beats = beats.transpose(0, 1, 2, 3, 5, 4).reshape(-1, rows, lanes)

    if scales.shape[2] == 1:
        alpha = np.zeros((planes, rows), np.int64)
        alpha[:, :count] = scales[:, :, 0]
        return beats, alpha, kernel_rows * kernel_columns * words
    # One word of scales a beat: that of the group which the (segment of the) word belongs to.
    by_word = np.zeros((planes, words * lanes, rows), np.int64)
    nonzero = np.any(trits != 0, axis=(3, 4))
    for row, offset in enumerate(offsets):
        at = offset - begin * lanes
        by_word[:, at:at + per_group, row] = np.where(nonzero[:, row], scales[:, row], 0)
    by_word = by_word.reshape(planes, words, lanes, rows)
    magnitude = np.abs(by_word).argmax(axis=2)
    chosen = np.take_along_axis(by_word, magnitude[:, :, None], axis=2)[:, :, 0]
    alpha = np.broadcast_to(chosen[:, None, None], (planes, kernel_rows, kernel_columns, words, rows))
    return beats, alpha.reshape(-1, rows).copy(), 1
