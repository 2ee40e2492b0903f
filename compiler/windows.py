"""Kernels, strides and pads of the model's operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from almac.compiler.graph import CompileError, SumPool
from almac.compiler.onnx_model import Node

__all__ = ["Window", "conv_window", "pool_window", "spatial_axes", "transposed_window", "window_counts"]

#: Positions of an image, with pads: more than any array has room for, and few enough to count.
_MOST_POSITIONS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Window:
    """A sliding window, two-dimensional; ``shape`` is that of the positions, as the model counts them."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    shape: tuple[int, ...]


def conv_window(node: Node, shape: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """Window of a Conv on an input of (C, H, W) or (C, W)."""
    return _window(node, shape, (int(kernel[0]), int(kernel[1])))


def pool_window(node: Node, shape: tuple[int, ...], axes: list[int] | None = None,
                ) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Fields of a :class:`~almac.compiler.graph.Pool`, and the shape of its output.

    ``axes`` are those of a reduction, as :func:`spatial_axes` gives them.
    """
    channels, *spatial = shape
    if len(spatial) not in (1, 2):
        raise CompileError(f"its input has the shape {shape}; supported: 1-D and 2-D images")
    if node.op.startswith("Global"):
        return {"kernel": (1, 1, *spatial)[-2:]}, (channels, *(1,) * len(spatial))
    if axes is not None:
        kernel = [size if axis in axes else 1 for axis, size in enumerate(spatial, 2)]
        kept = [1 if axis in axes else size for axis, size in enumerate(spatial, 2)
                if axis not in axes or node.integer("keepdims", 1)]
        return {"kernel": (1, *kernel)[-2:]}, (channels, *kept)
    kernel = [int(k) for k in node.attributes.get("kernel_shape", ())]
    if len(kernel) != len(spatial) or not kernel:
        raise CompileError(f"kernel_shape = {kernel} for an input of the shape {shape}; supported: 1-D and 2-D")
    window = _window(node, shape, ((1, *kernel)[-2], kernel[-1]))
    if any(node.outputs[1:]):
        raise CompileError("returns indices; supported: values only")
    return ({"kernel": window.kernel, "strides": window.strides, "dilations": window.dilations,
             "pads": window.pads}, (channels, *window.shape))


def spatial_axes(node: Node, axes: list[int] | None, rank: int) -> list[int]:
    """Axes of a reduction of an image of ``rank`` sizes without the batch, counted with the batch.

    Raises
    ------
    CompileError
        If they are others than those of positions.
    """
    if not all(isinstance(axis, int) for axis in axes or ()):
        raise CompileError(f"axes = {axes}; supported: integers")
    given = None if axes is None else sorted(int(axis) % (rank + 1) for axis in axes)
    if node.integer("noop_with_empty_axes", 0) and not given:
        return []
    if not given or not set(given) <= set(range(2, rank + 1)):
        raise CompileError(f"axes = {axes}; supported: spatial axes")
    return given


def window_counts(node: Node, op: SumPool, shape: tuple[int, ...], out: tuple[int, ...]) -> np.ndarray:
    """What the sum at each position is divided by: int64[P, Q], or [Q] for signals."""
    counts = []
    sizes, positions = (1, 1, *shape[1:])[-2:], (1, 1, *out[1:])[-2:]
    padded = bool(node.integer("count_include_pad", 0))
    for axis in range(2):
        before, after = op.pads[axis], op.pads[axis + 2]
        # Positions that count: the image, or the image and its pads, never what hangs over (ceil_mode).
        low, high = (-before, sizes[axis] + after) if padded else (0, sizes[axis])
        first = np.arange(positions[axis]) * op.strides[axis] - before
        begin, end = (np.clip(-((first - limit) // op.dilations[axis]), 0, op.kernel[axis])
                      for limit in (low, high))
        counts.append(np.maximum(end - begin, 0))
    full = np.multiply.outer(*counts)
    if not full.all():
        raise CompileError("averages over windows outside the image")
    return full.reshape(out[1:])


def transposed_window(node: Node, shape: tuple[int, ...], kernel: tuple[int, ...],
                      ) -> tuple[Window, np.ndarray | None]:
    """Window of the convolution that a ConvTranspose is, and where the elements of its input come from.

    Returns
    -------
    window : Window
        Of stride 1.
    stuffed : int32[C, ...] or None
        The input with ``stride - 1`` positions of padding (-1) between its own ones, without those that
        negative pads take away; None if that is the input itself.
    """
    spatial = shape[1:]
    strides, dilations = _pair(node, "strides", spatial), _pair(node, "dilations", spatial)
    rank = len(spatial)
    sizes = (1, 1, *spatial)[-2:]
    extra = (0, 0, *(int(v) for v in node.attributes.get("output_padding", (0,) * rank)))[-2:]
    span = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    pads = [int(v) for v in node.attributes.get("pads", (0,) * (2 * rank))]
    if len(pads) != 2 * rank or len(node.attributes.get("output_shape", (0,) * rank)) < rank:
        raise CompileError(f"pads = {pads}, or its output_shape, are not of {rank} axes")
    begin, end = [0, *pads[:rank]][-2:], [0, *pads[rank:]][-2:]
    auto = node.attributes.get("auto_pad", "NOTSET")
    wanted = node.attributes.get("output_shape")
    if auto in ("SAME_UPPER", "SAME_LOWER") or wanted is not None:
        targets = ([1, *[int(v) for v in wanted][-rank:]][-2:] if wanted is not None
                   else [n * s for n, s in zip(sizes, strides, strict=True)])
        totals = [s * (n - 1) + o + k - t
                  for n, s, o, k, t in zip(sizes, strides, extra, span, targets, strict=True)]
        if rank == 1:
            totals[0] = 0
        # What cannot be cut off is added behind the image, if a size is asked for.
        if wanted is not None:
            extra = tuple(o + max(-t, 0) for o, t in zip(extra, totals, strict=True))
        small = [max(t, 0) // 2 for t in totals]
        large = [max(t, 0) - half for t, half in zip(totals, small, strict=True)]
        begin, end = (small, large) if auto == "SAME_UPPER" else (large, small)
    elif auto == "VALID":
        begin, end = [0, 0], [0, 0]
    elif auto != "NOTSET":
        raise CompileError(f"auto_pad = {auto!r}; supported: NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    _check_room([(n - 1) * s + 1 for n, s in zip(sizes, strides, strict=True)], begin, end,
                [s * (n - 1) + o + k for n, s, o, k in zip(sizes, strides, extra, span, strict=True)])
    index = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape[0], *sizes)
    stuffed = np.full((shape[0], *((n - 1) * s + 1 for n, s in zip(sizes, strides, strict=True))), -1, np.int32)
    stuffed[:, ::strides[0], ::strides[1]] = index
    outer = [(k - 1 - b, k - 1 - e + o) for k, b, e, o in zip(span, begin, end, extra, strict=True)]
    if min(*begin, *end) < 0 or any(
            n + a + b < k for n, (a, b), k in zip(stuffed.shape[1:], outer, span, strict=True)):
        raise CompileError(f"pads = {[*begin, *end]} leave nothing of its output, or are below zero")
    crop = [slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(stuffed.shape[1:], outer, strict=True)]
    stuffed = stuffed[:, crop[0], crop[1]]
    (top, bottom), (left, right) = ((max(a, 0), max(b, 0)) for a, b in outer)
    window = Window(kernel=(kernel[0], kernel[1]), strides=(1, 1), dilations=dilations,
                    pads=(top, left, bottom, right), shape=tuple(n + a + b - k + 1 for n, (a, b), k in zip(
                        stuffed.shape[1:], ((top, bottom), (left, right)), span, strict=True))[-rank:])
    stuffed = stuffed.reshape(shape[0], *stuffed.shape[1:][-rank:])
    same = stuffed.size == index.size and (stuffed.reshape(-1) == index.reshape(-1)).all()
    return window, None if same else stuffed


def _pair(node: Node, name: str, spatial: tuple[int, ...]) -> tuple[int, int]:
    values = [int(v) for v in node.attributes.get(name, (1,) * len(spatial))]
    if len(values) != len(spatial) or min(values) < 1:
        raise CompileError(f"{name} = {values}; supported: one number above zero for each of {len(spatial)}")
    return (1, *values)[-2], values[-1]


def _window(node: Node, shape: tuple[int, ...], kernel: tuple[int, int]) -> Window:
    spatial = shape[1:]
    if len(spatial) not in (1, 2):
        raise CompileError(f"its input has the shape {shape}; supported: 1-D and 2-D images")

    strides, dilations = _pair(node, "strides", spatial), _pair(node, "dilations", spatial)
    size = (1, 1, *spatial)[-2:]
    span = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    auto = node.attributes.get("auto_pad", "NOTSET")
    given = [int(v) for v in node.attributes.get("pads", (0,) * (2 * len(spatial)))]
    if len(given) != 2 * len(spatial):
        raise CompileError(f"pads = {given}; supported: two numbers for each of {len(spatial)} axes")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        if dilations != (1, 1):
            # The standard and onnxruntime, which has none or other ones, do not agree on these pads.
            raise CompileError(f"auto_pad = {auto!r} with dilations = {list(dilations)}; supported: pads as "
                               "numbers")
        totals = [max(0, (-(-n // s) - 1) * s + k - n)
                  for n, s, k in zip(size, strides, span, strict=True)]
        small = [total // 2 for total in totals]
        large = [total - half for total, half in zip(totals, small, strict=True)]
        begin, end = (small, large) if auto == "SAME_UPPER" else (large, small)
    elif auto == "VALID":
        begin, end = [0, 0], [0, 0]
    elif auto == "NOTSET":
        half = len(spatial)
        begin, end = [0, *given[:half]][-2:], [0, *given[half:]][-2:]
    else:
        raise CompileError(f"auto_pad = {auto!r}; supported: NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    if min(*begin, *end) < 0:
        raise CompileError(f"pads = {given}; supported: none below zero")
    positions = []
    for n, s, k, before, after in zip(size, strides, span, begin, end, strict=True):
        room = n + before + after - k
        if room < 0:
            raise CompileError(f"its window of {k} is larger than its padded input of {room + k}")
        count = room // s + 1
        if node.attributes.get("ceil_mode", 0):
            count = -(-room // s) + 1
            # A window that would begin in the padding behind the image is dropped.
            count -= (count - 1) * s >= n + before
        positions.append(count)
    _check_room(size, begin, end, positions)
    return Window(kernel=kernel, strides=strides, dilations=dilations,
                  pads=(begin[0], begin[1], end[0], end[1]), shape=tuple(positions[-len(spatial):]))


def _check_room(size: Sequence[int], begin: Sequence[int], end: Sequence[int], positions: Sequence[int]) -> None:
    padded = [n + before + after for n, before, after in zip(size, begin, end, strict=True)]
    if prod(padded) > _MOST_POSITIONS or prod(positions) > _MOST_POSITIONS:
        raise CompileError(f"pads its input to {padded}, for {list(positions)} outputs; supported: "
                           f"{_MOST_POSITIONS} positions")
