"""Layers as standard operators on real numbers, or on codes where they only move them."""

import math

import numpy as np
from layers import (
    AveragePool,
    Binary,
    Channelwise,
    Concat,
    Conv,
    ConvTranspose,
    Function,
    Gemm,
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

__all__ = ["activated", "normalized", "operate", "window"]


def operate(nodes, recipe, k, layer, inputs, *, on_codes=False):
    """Append all of a layer without weights; returns its output.

    ``inputs`` are names of real tensors, or ``on_codes`` those of codes, for layers that compute nothing.
    """
    match layer:
        case AveragePool():
            return nodes.op("AveragePool", *inputs, ceil_mode=layer.ceil_mode, **window(layer),
                            count_include_pad=layer.count_include_pad)
        case MaxPool():
            return nodes.op("MaxPool", *inputs, ceil_mode=layer.ceil_mode, **window(layer))
        case GlobalPool() | Binary():
            return nodes.op(layer.kind, *inputs)
        case Concat():
            return nodes.op("Concat", *inputs, axis=1)
        case Transpose():
            return nodes.op("Transpose", *inputs, perm=layer.perm)
        case Reduce():
            return _reduce(nodes, layer, len(recipe.shape_of(layer.inputs[0])), *inputs)
        case Channelwise():
            return nodes.op(layer.kind, *inputs, nodes.real(_constants(recipe, k, layer)))
        case Function():
            return _function(nodes, recipe, k, layer, *inputs)
        case Slice():
            return nodes.op("Slice", *inputs, *(nodes.integers([value]) for value in (
                layer.start, layer.stop, layer.axis, layer.step)))
        case Split():
            output = nodes.op("Split", *inputs, nodes.integers(layer.sizes), axis=layer.axis)
            outputs = [nodes.name("unused"), output] if layer.part else [output, nodes.name("unused")]
            nodes.nodes[-1].output[:] = outputs
            return output
        case Pad():
            value = _pad_value(nodes, recipe, layer, on_codes)
            return nodes.op("Pad", *inputs, nodes.integers(_all_pads(layer)), value, mode=layer.mode)
        case Reshape(form="Flatten"):
            return nodes.op("Flatten", *inputs)
        case Reshape():
            return nodes.op("Reshape", *inputs, nodes.integers([layer.batch, *layer.shape]))
        case Resize():
            scales = nodes.real([1, 1] + [2] * (len(recipe.shape_of(layer.inputs[0])) - 1))
            return nodes.op("Resize", *inputs, "", scales, mode="nearest", nearest_mode="floor",
                            coordinate_transformation_mode="asymmetric")
        case Reorder(kind="DepthToSpace"):
            return nodes.op("DepthToSpace", *inputs, blocksize=2, mode=layer.mode)
        case Reorder():
            return nodes.op("SpaceToDepth", *inputs, blocksize=2)
    raise TypeError(f"no operator for {layer!r}")


def window(layer):
    """Attributes of a window that slides."""
    attributes = {"kernel_shape": layer.kernel, "strides": layer.strides}
    if isinstance(layer, ConvTranspose):
        attributes["output_padding"] = layer.output_padding
    if isinstance(layer, Conv):
        attributes |= {"dilations": layer.dilations, "group": layer.groups}
        if layer.auto_pad != "NOTSET":
            return attributes | {"auto_pad": layer.auto_pad}
    return attributes | {"pads": layer.pads}


def normalized(nodes, layer, parameters, real):
    """What follows a convolution before its activation."""
    if isinstance(layer, Conv) and layer.batch_norm:
        return nodes.op("BatchNormalization", real, *(nodes.real(array) for array in parameters.batch_norm))
    return real


def activated(nodes, layer: Gemm, real):
    """Activation of a layer with weights."""
    match layer.activation:
        case "relu":
            return nodes.op("Relu", real)
        case "clip":
            return nodes.op("Clip", real, *(nodes.real(bound) for bound in layer.bounds))
    return real


def _reduce(nodes, layer, rank, real):
    axes = list(range(2, rank + 1))
    if nodes.opset < 18 and layer.kind != "ReduceSum":
        return nodes.op(layer.kind, real, axes=axes, keepdims=layer.keepdims)
    return nodes.op(layer.kind, real, nodes.integers(axes), keepdims=layer.keepdims)


def _function(nodes, recipe, k, layer, real):
    match layer.kind:
        case "Clip":
            return nodes.op("Clip", real, nodes.real(layer.alpha), nodes.real(layer.beta))
        case "LeakyRelu":
            return nodes.op("LeakyRelu", real, alpha=layer.alpha)
        case "HardSigmoid":
            return nodes.op("HardSigmoid", real, alpha=layer.alpha, beta=layer.beta)
        case "PRelu":
            return nodes.op("PRelu", real, nodes.real(_slopes(recipe, k, layer)))
        case "SiLU":
            return nodes.op("Mul", real, nodes.op("Sigmoid", real))
        case "HardSwish" if nodes.opset < 14:
            return nodes.op("Mul", real, nodes.op("HardSigmoid", real, alpha=1 / 6, beta=0.5))
        case "Gelu" if nodes.opset < 20:
            erf = nodes.op("Erf", nodes.op("Div", real, nodes.real(math.sqrt(2))))
            return nodes.op("Mul", nodes.op("Mul", real, nodes.op("Add", erf, nodes.real(1))), nodes.real(0.5))
    return nodes.op(layer.kind, real)


def _constants(recipe, k, layer):
    rng, channels = recipe.rng(k), recipe.shape_of(layer.inputs[0])[0]
    values = rng.uniform(0.3, 1, channels) * rng.choice([-1, 1], channels) * layer.size
    return _spatial(values, recipe.shape_of(layer.inputs[0]))


def _slopes(recipe, k, layer):
    shape = recipe.shape_of(layer.inputs[0])
    return _spatial(recipe.rng(k).uniform(-0.3, 1.2, shape[0]), shape)


def _spatial(values, shape):
    """One value a channel, to be broadcast over what follows."""
    return values.reshape(-1, *(1,) * (len(shape) - 1))


def _all_pads(layer):
    rank = len(layer.pads) // 2
    return [0, 0, *layer.pads[:rank], 0, 0, *layer.pads[rank:]]


def _pad_value(nodes, recipe, layer, on_codes):
    if layer.mode != "constant":
        return ""
    quantization = recipe.quantization(layer.inputs[0])
    if on_codes:
        return nodes.constant(np.array(layer.code, quantization.dtype))
    return nodes.real(quantization.dequantize(layer.code))
