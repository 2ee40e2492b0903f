"""One layer at a time, of what the shapes allow.

Each strategy takes the growing recipe and the tensor that is read. Windows always fit into what they slide over.
"""

import math

from hypothesis import strategies as st
from layers import (
    AveragePool,
    Binary,
    Channelwise,
    Concat,
    Function,
    GlobalPool,
    MaxPool,
    Pad,
    Reduce,
    Reorder,
    Reshape,
    Resize,
    Slice,
    Split,
    Transpose,
)
from product_strategies import conv, conv_transpose, gemm

__all__ = ["CHOICES"]


@st.composite
def pool(draw, growing, tensor):
    """MaxPool or AveragePool; every window holds something beside padding."""
    size = growing.shape(tensor)[1:]
    kernel = tuple(draw(st.integers(1, min(3, n))) for n in size)
    pads = tuple(draw(st.integers(0, k - 1)) for k in kernel * 2)
    strides = tuple(draw(st.integers(1, 3)) for _ in size)
    # Before opset 22, onnxruntime's shapes count a window that starts in the last padding; its kernels do not.
    ceil_mode = draw(st.integers(0, 1)) if all(
        -(-(n + pads[i] + pads[i + len(size)] - kernel[i]) // strides[i]) * strides[i] < n + pads[i]
        for i, n in enumerate(size)) else 0
    known = {"inputs": (tensor,), "kernel": kernel, "strides": strides, "pads": pads, "ceil_mode": ceil_mode}
    if draw(st.booleans()):
        return MaxPool(**known)
    return AveragePool(**known, count_include_pad=draw(st.integers(0, 1)))


@st.composite
def global_pool(draw, growing, tensor):
    """All of the space."""
    if draw(st.booleans()):
        return GlobalPool(inputs=(tensor,), kind=draw(st.sampled_from(["GlobalAveragePool", "GlobalMaxPool"])))
    return Reduce(inputs=(tensor,), keepdims=draw(st.integers(0, 1)),
                  kind=draw(st.sampled_from(["ReduceMean", "ReduceSum", "ReduceMax"])))


@st.composite
def binary(draw, growing, tensor):
    """Two tensors of one shape, possibly the same one."""
    others = [other for other in growing.usable if growing.shape(other) == growing.shape(tensor)]
    other = draw(st.sampled_from(others))
    # Nothing is left of a tensor without itself.
    kind = draw(st.sampled_from(["Add", "Mul"] if other == tensor else ["Add", "Mul", "Sub"]))
    return Binary(inputs=(tensor, other), kind=kind)


@st.composite
def concat(draw, growing, tensor):
    """Two tensors of one size in space, possibly the same one."""
    others = [other for other in growing.usable if growing.shape(other)[1:] == growing.shape(tensor)[1:]]
    return Concat(inputs=(tensor, draw(st.sampled_from(others))))


@st.composite
def channelwise(draw, growing, tensor):
    """A constant for each channel, as large as what it is added to."""
    kind = draw(st.sampled_from(["Mul", "Add", "Sub", "Div"]))
    size = growing.rms(tensor) if kind in {"Add", "Sub"} else 2.0 ** draw(st.integers(-2, 2))
    return Channelwise(inputs=(tensor,), kind=kind, size=size)


@st.composite
def function(draw, growing, tensor):
    """A function of one number."""
    kind = draw(st.sampled_from(["Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "PRelu",
                                 "Clip", "SiLU", "Gelu"]))
    size = growing.rms(tensor)
    alpha, beta = {"LeakyRelu": (draw(st.sampled_from([0.01, 0.1, 1.5])), 0.0), "HardSigmoid": (0.2, 0.5),
                   "Clip": draw(st.sampled_from([(0.0, size), (-size, size / 2)]))}.get(kind, (0.0, 0.0))
    return Function(inputs=(tensor,), kind=kind, alpha=alpha, beta=beta)


@st.composite
def part(draw, growing, tensor):
    """Slice or Split of an axis of two or more."""
    shape = growing.shape(tensor)
    axis = draw(st.sampled_from([i for i, n in enumerate(shape) if n > 1]))
    cut = draw(st.integers(1, shape[axis] - 1))
    match draw(st.sampled_from(["first", "last", "stepped", "split"])):
        case "first":
            return Slice(inputs=(tensor,), axis=axis + 1, start=0, stop=cut)
        case "last":
            return Slice(inputs=(tensor,), axis=axis + 1, start=cut, stop=1 << 31)
        case "stepped":
            return Slice(inputs=(tensor,), axis=axis + 1, start=cut - 1, stop=shape[axis], step=2)
    return Split(inputs=(tensor,), axis=axis + 1, sizes=(cut, shape[axis] - cut), part=draw(st.integers(0, 1)))


@st.composite
def pad(draw, growing, tensor):
    """Pad in space; a reflection needs something to reflect."""
    size, out = growing.shape(tensor)[1:], growing.recipe.quantization(tensor)
    mode = draw(st.sampled_from(["constant", "edge", "reflect"]))
    pads = tuple(draw(st.integers(0, min(2, n - 1) if mode == "reflect" else 2)) for n in size * 2)
    code = draw(st.sampled_from([out.zero_point, out.low, out.high]))
    return Pad(inputs=(tensor,), pads=pads, mode=mode, code=code)


@st.composite
def reshape(draw, growing, tensor):
    """Flatten, or the same by Reshape; or an image with its spatial axes exchanged in size."""
    shape = growing.shape(tensor)
    form = draw(st.sampled_from(["Flatten", "vector", "image"]))
    to = (shape[0], *shape[:0:-1]) if form == "image" else (math.prod(shape),)
    return Reshape(inputs=(tensor,), form=form, batch=draw(st.sampled_from([0, -1])), shape=to)


@st.composite
def transpose(draw, growing, tensor):
    """Channels last; the way back is added by the caller."""
    rank = len(growing.shape(tensor)) + 1
    perms = [(0, *range(2, rank), 1), (0, 1, *range(rank - 1, 1, -1))]
    return Transpose(inputs=(tensor,), perm=draw(st.sampled_from(perms)))


@st.composite
def upscale(draw, growing, tensor):
    """Twice the size, by repetition or from the channels."""
    if growing.shape(tensor)[0] % 4 == 0 and len(growing.shape(tensor)) == 3 and draw(st.booleans()):
        return Reorder(inputs=(tensor,), kind="DepthToSpace", mode=draw(st.sampled_from(["DCR", "CRD"])))
    return Resize(inputs=(tensor,))


def downscale(growing, tensor):
    """Half the size, into the channels."""
    return st.just(Reorder(inputs=(tensor,), kind="SpaceToDepth"))


def _always(growing, tensor):
    return True


def _has_space(growing, tensor):
    return len(growing.shape(tensor)) > 1


def _is_narrow(growing, tensor):
    return growing.shape(tensor)[0] < 17


def _is_vector(growing, tensor):
    return not _has_space(growing, tensor)


def _can_be_cut(growing, tensor):
    return max(growing.shape(tensor)) > 1


def _is_small(growing, tensor):
    return _has_space(growing, tensor) and max(growing.shape(tensor)) < 10


def _is_even(growing, tensor):
    shape = growing.shape(tensor)
    return len(shape) == 3 and shape[1] % 2 == shape[2] % 2 == 0


#: Strategies of layers, each with what it needs of the tensor, and how many chances it has.
_CHANCES = ((conv, _has_space, 8), (gemm, _is_vector, 4), (pool, _has_space, 3), (binary, _always, 1),
            (concat, _is_narrow, 1), (function, _always, 2), (channelwise, _always, 1),
            (global_pool, _has_space, 1), (part, _can_be_cut, 1), (pad, _has_space, 1), (reshape, _has_space, 1),
            (transpose, _has_space, 1), (upscale, _is_small, 1), (downscale, _is_even, 1),
            (conv_transpose, _is_small, 2))

#: As many times as it has chances.
CHOICES = tuple((strategy, fits) for strategy, fits, chances in _CHANCES for _ in range(chances))
