"""Images from files."""

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

__all__ = ["InputFileError", "labels_of", "load_inputs", "load_samples", "random_inputs"]

_PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}


class InputFileError(Exception):
    """A file does not hold images for the model."""


def load_inputs(path, feeds):
    """Batches by input name.

    Parameters
    ----------
    path : path
        ``.npy`` or ``.npz`` (``x``, or an array for each input) in the model's own layout and units; a picture
        or a folder of them, in the order of their names: scaled to the input's size, channels first, pixel / 255.
    feeds : sequence of Feed
        What the model wants.
    """
    path = Path(path)
    if not path.exists():
        raise InputFileError(f"{path} does not exist")
    if path.is_dir() or path.suffix.lower() in _PICTURES:
        return {_only(path, feeds).name: _pictures(path, _only(path, feeds))}
    try:
        data = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputFileError(f"{path} is neither NumPy data nor a picture ({error})") from None
    if isinstance(data, np.ndarray):
        return {_only(path, feeds).name: _with_batch(data, _only(path, feeds))}
    names = {feed.name for feed in feeds}
    if names <= set(data.files):
        return {feed.name: _with_batch(data[feed.name], feed) for feed in feeds}
    if "x" in data.files:
        return {_only(path, feeds).name: _with_batch(data["x"], _only(path, feeds))}
    raise InputFileError(f"{path} holds {', '.join(data.files)}; it must hold x, or an array for each of "
                         f"{', '.join(sorted(names))}")


def load_samples(path):
    """Arrays of an ``.npz``: ``x``, or one for each input of a model; labels ``y`` are none of them."""
    path = Path(path)
    if not path.exists():
        raise InputFileError(f"{path} does not exist")
    try:
        data = np.load(path, allow_pickle=False)
        arrays = {"x": data} if isinstance(data, np.ndarray) else {name: data[name] for name in data.files}
    except (OSError, ValueError, EOFError) as error:
        raise InputFileError(f"{path} is not NumPy data ({error})") from None
    return {"x": arrays["x"]} if "x" in arrays else arrays


def labels_of(path):
    """Labels ``y`` of an ``.npz``; None where there are none."""
    if Path(path).suffix != ".npz":
        return None
    with np.load(path, allow_pickle=False) as data:
        return data["y"] if "y" in data.files else None


def random_inputs(feeds, quantization, count, seed=0):
    """Random batches over the whole range of each input's codes, and a little beyond.

    ``quantization`` gives scale and zero point of the inputs that are quantized as they are.
    """
    rng = np.random.default_rng(seed)
    batches = {}
    for feed in feeds:
        shape, dtype = (count, *feed.shape), np.dtype(feed.dtype)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            batches[feed.name] = rng.integers(max(info.min, -256), min(info.max, 255) + 1, shape).astype(dtype)
        elif feed.name not in quantization:
            # The host computes on it first: nothing is known of its range.
            batches[feed.name] = rng.normal(0, 1, shape).astype(dtype)
        else:
            scale, zero_point = quantization[feed.name]
            real = (rng.integers(-136, 137, shape) - zero_point) * np.float32(scale)
            batches[feed.name] = real.astype(dtype)
    return batches


def _only(path, ports):
    if len(ports) != 1:
        names = ", ".join(port.name for port in ports)
        raise InputFileError(f"{path}: the model has the inputs {names}; give an .npz with all of them")
    return ports[0]


def _with_batch(array, port):
    return array[None] if array.shape == port.shape else array


def _pictures(path, port):
    files = sorted(p for p in path.iterdir() if p.suffix.lower() in _PICTURES) if path.is_dir() \
        else [path]
    if not files:
        raise InputFileError(f"{path} holds no pictures")
    if len(port.shape) != 3 or port.shape[0] not in (1, 3):
        raise InputFileError(f"{path}: the model takes {port.shape}, not pictures of 1 or 3 channels; "
                             "give an .npy")
    channels, height, width = port.shape
    batch = []
    for file in files:
        try:
            with Image.open(file) as picture:
                picture = picture.convert("L" if channels == 1 else "RGB").resize((width, height))
                batch.append(np.asarray(picture, np.float32).reshape(height, width, channels))
        except (OSError, UnidentifiedImageError) as error:
            raise InputFileError(f"{file} is not a picture ({error})") from None
    scaled = np.stack(batch).transpose(0, 3, 1, 2)
    if port.dtype in ("int8", "uint8"):
        return scaled.astype(np.uint8) if port.dtype == "uint8" else (scaled - 128).astype(np.int8)
    return scaled / np.float32(255)
