"""Kernels, strides and pads of the model's operators."""

from dataclasses import dataclass
from typing import Any

from almac.compiler.graph import CompileError
from almac.compiler.onnx_model import Node

__all__ = ["Window", "conv_window", "pool_window"]


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
    """Fields of a :class:`~almac.compiler.graph.Pool`, and the shape of its output."""
    channels, *spatial = shape
    if len(spatial) not in (1, 2):
        raise CompileError(f"its input has the shape {shape}; supported: 1-D and 2-D images")
    size = (1, 1, *spatial)[-2:]
    match node.op:
        case "GlobalAveragePool":
            return ({"kernel": size}, (channels, *(1,) * len(spatial)))
        case "ReduceMean":
            rank = len(shape) + 1
            axes = node.attributes.get("axes") if axes is None else axes
            if axes is None or sorted(int(axis) % rank for axis in axes) != list(range(2, rank)):
                raise CompileError(f"axes = {axes}; supported: all spatial axes")
            keep = int(node.attributes.get("keepdims", 1))
            return {"kernel": size}, (channels, *(1,) * len(spatial) * keep)
    kernel = [int(k) for k in node.attributes.get("kernel_shape", ())]
    if len(kernel) != len(spatial) or not kernel:
        raise CompileError(f"kernel_shape = {kernel} for an input of the shape {shape}; supported: 1-D and 2-D")
    window = _window(node, shape, ((1, *kernel)[-2], kernel[-1]))
    if node.op == "AveragePool" and any(window.pads) and not node.attributes.get("count_include_pad", 0):
        raise CompileError("averages over windows of different sizes at the border; supported: no "
                           "padding, or count_include_pad = 1")
    if node.op == "AveragePool" and node.attributes.get("ceil_mode", 0):
        raise CompileError("ceil_mode = 1; supported: 0 for averages")
    if len(node.outputs) > 1:
        raise CompileError("returns indices; supported: values only")
    return ({"kernel": window.kernel, "strides": window.strides, "dilations": window.dilations,
             "pads": window.pads}, (channels, *window.shape))


def _window(node: Node, shape: tuple[int, ...], kernel: tuple[int, int]) -> Window:
    spatial = shape[1:]
    if len(spatial) not in (1, 2):
        raise CompileError(f"its input has the shape {shape}; supported: 1-D and 2-D images")

    def pair(name: str) -> tuple[int, int]:
        values = [int(v) for v in node.attributes.get(name, (1,) * len(spatial))]
        if len(values) != len(spatial) or min(values) < 1:
            raise CompileError(f"{name} = {values}; supported: one number above zero for each of {len(spatial)}")
        return (1, *values)[-2], values[-1]

    strides, dilations = pair("strides"), pair("dilations")
    size = (1, 1, *spatial)[-2:]
    span = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    auto = node.attributes.get("auto_pad", "NOTSET")
    given = [int(v) for v in node.attributes.get("pads", (0,) * (2 * len(spatial)))]
    if len(given) != 2 * len(spatial):
        raise CompileError(f"pads = {given}; supported: two numbers for each of {len(spatial)} axes")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
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
    return Window(kernel=kernel, strides=strides, dilations=dilations,
                  pads=(begin[0], begin[1], end[0], end[1]), shape=tuple(positions[-len(spatial):]))
