"""Layers with weights."""

import math

from hypothesis import strategies as st
from layers import Conv, ConvTranspose, Gemm, Weights

__all__ = ["conv", "conv_transpose", "gemm"]


@st.composite
def weights(draw, growing, tensor, fan_in, *, per_channel=True):
    """Weights whose products are about as large as what they read, or far from it."""
    kind = draw(st.sampled_from(["ternary", "int2", "int4", "int7", "int8", "uint8"]))
    zero_point = draw(st.sampled_from([128, 0, 255, 121])) if kind == "uint8" else 0
    result = Weights(kind=kind, zero_point=zero_point, packed=draw(st.booleans()),
                     per_channel=per_channel and draw(st.booleans()))
    # Towards 1, so that deep networks do not leave float32.
    gain = 2.0 ** draw(st.integers(-4, 4) | st.floats(-4, 4)) / math.sqrt(growing.rms(tensor))
    scale = gain / (result.rms * math.sqrt(fan_in))
    if draw(st.booleans()):
        scale = 2.0 ** round(math.log2(scale))
    return Weights(**(vars(result) | {"scale": scale}))


@st.composite
def products(draw, growing, tensor, fan_in, **options):
    """Weights, bias and activation."""
    made = draw(weights(growing, tensor, fan_in, **options))
    size = growing.rms(tensor) * made.scale * made.rms * math.sqrt(fan_in)
    return {"weights": made, "bias": draw(st.sampled_from(["none", "int32", "float"])),
            "activation": draw(st.sampled_from(["none", "none", "relu", "clip"])),
            "bounds": draw(st.sampled_from([(0.0, size), (-size, size / 2), (0.0, 6.0), (0.0, 6 * size)]))}


@st.composite
def padding(draw, axes, most=2):
    """Pads as ONNX has them: all beginnings, all ends."""
    return tuple(draw(st.integers(0, most)) for _ in range(2 * axes))


@st.composite
def conv(draw, growing, tensor):
    """Conv, grouped, depthwise or neither."""
    channels, *size = growing.shape(tensor)
    auto_pad = draw(st.sampled_from(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    pads = draw(padding(len(size))) if auto_pad == "NOTSET" else (0,) * 2 * len(size)
    room = [n + pads[i] + pads[i + len(size)] for i, n in enumerate(size)]
    kernel = tuple(draw(st.integers(1, min(4, most))) for most in room)
    dilations = tuple(draw(st.integers(1, min(3, (most - 1) // (k - 1)))) if k > 1 else 1
                      for k, most in zip(kernel, room, strict=True))
    # onnxruntime takes no dilations with SAME.
    if auto_pad.startswith("SAME"):
        dilations = (1,) * len(size)
    groups = draw(st.sampled_from([1, channels] + [n for n in range(2, channels) if channels % n == 0]))
    fan_in = channels // groups * math.prod(kernel)
    return Conv(inputs=(tensor,), channels=groups * draw(st.integers(1, max(1, 9 // groups))), kernel=kernel,
                strides=tuple(draw(st.integers(1, 3)) for _ in size), dilations=dilations, pads=pads,
                auto_pad=auto_pad, groups=groups, batch_norm=draw(st.integers(0, 4)) == 4,
                **draw(products(growing, tensor, fan_in)))


@st.composite
def conv_transpose(draw, growing, tensor):
    """ConvTranspose; its pads take no more than what a single position makes."""
    channels, *size = growing.shape(tensor)
    kernel = tuple(draw(st.integers(1, 3)) for _ in size)
    strides = tuple(draw(st.integers(1, 3)) for _ in size)
    pads = tuple(draw(st.integers(0, (k - 1) // 2)) for k in kernel)
    extra = tuple(draw(st.integers(0, stride - 1)) for stride in strides)
    groups = draw(st.sampled_from([1, 1, channels]))
    fan_in = channels // groups * math.prod(kernel)
    # ONNX has a scale for each index of this axis of the weights, which groups share.
    known = draw(products(growing, tensor, fan_in, per_channel=groups == 1))
    return ConvTranspose(inputs=(tensor,), channels=groups * draw(st.integers(1, max(1, 6 // groups))),
                         kernel=kernel, strides=strides, dilations=(1,) * len(size), pads=pads + pads,
                         groups=groups, output_padding=extra, **known)


@st.composite
def gemm(draw, growing, tensor):
    """Gemm or MatMul of a vector."""
    [features] = growing.shape(tensor)
    return Gemm(inputs=(tensor,), channels=draw(st.integers(1, 9)), **draw(products(growing, tensor, features)),
                form=draw(st.sampled_from(["Gemm", "Gemm transposed", "MatMul"])))
