"""Weights, biases and other constants of layers, from the seed of the recipe."""

from dataclasses import dataclass

import numpy as np
from layers import Conv, ConvTranspose

__all__ = ["Parameters", "parameters"]

#: About the root mean square of activation codes.
_ACTIVATION = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Parameters:
    """Constants of a Conv, ConvTranspose or Gemm.

    Attributes
    ----------
    codes : int8 or uint8, in ONNX's layout of weights
    real : float32
        What quantizes to ``codes``.
    scale : float32, a scalar or one a channel
    unit : float32
        Scale of a sum of products, and of an integer bias.
    axis : int
        Axis of the output channels.
    bias : int32 or float32, or None
    batch_norm : tuple of four float32[channels]
        Scale, bias, mean and variance.
    """

    codes: np.ndarray
    real: np.ndarray
    scale: np.ndarray
    unit: np.ndarray
    axis: int
    bias: np.ndarray | None
    batch_norm: tuple[np.ndarray, ...]


def parameters(recipe, k, layer):
    """Constants of ``layer``, which is the ``k``-th of ``recipe`` or is about to be."""
    rng = recipe.rng(k)
    weights = layer.weights
    shape, axis, fan_in = _weight_shape(layer, recipe.shape_of(layer.inputs[0])[0])
    low, high = weights.limits
    codes = rng.integers(low, high + 1, shape)
    scale = np.float32(weights.scale)
    if weights.per_channel:
        scale = (scale * rng.uniform(0.3, 2, layer.channels)).astype(np.float32)
    along = np.reshape(scale, [-1 if i == axis else 1 for i in range(len(shape))])
    real = (codes - weights.zero_point + rng.uniform(-0.4, 0.4, shape)) * along
    # Numbers beyond the range are what the Clip of QCDQ is for.
    real = np.where((codes == high) & (rng.random(shape) < 0.1), real + 3 * along, real)
    size = np.sqrt(fan_in) * weights.rms * _ACTIVATION
    bias = rng.uniform(-size, size, layer.channels)
    unit = np.float32(recipe.quantization(layer.inputs[0]).scale) * scale
    match layer.bias:
        case "none":
            bias = None
        case "int32":
            bias = np.rint(bias).astype(np.int32)
        case "float":
            bias = (bias * unit).astype(np.float32)
    spread = size * unit * np.ones(layer.channels)
    norm = (rng.uniform(0.5, 2, layer.channels) * rng.choice([1, 1, -1], layer.channels),
            rng.uniform(-1, 1, layer.channels), rng.uniform(-1, 1, layer.channels) * spread,
            rng.uniform(0.5, 2, layer.channels) * spread ** 2)
    return Parameters(codes=codes.astype("uint8" if weights.kind == "uint8" else "int8"),
                      real=real.astype(np.float32), scale=scale, unit=unit, axis=axis, bias=bias,
                      batch_norm=tuple(array.astype(np.float32) for array in norm))


def _weight_shape(layer, channels):
    """Shape in ONNX's layout, axis of the output channels, and how many products an output sums at most."""
    match layer:
        case ConvTranspose():
            shape = (channels, layer.channels // layer.groups, *layer.kernel)
            return shape, 1, channels // layer.groups * int(np.prod(layer.kernel))
        case Conv():
            shape = (layer.channels, channels // layer.groups, *layer.kernel)
            return shape, 0, int(np.prod(shape[1:]))
        case _ if layer.form == "Gemm transposed":
            return (layer.channels, channels), 0, channels
    return (channels, layer.channels), 1, channels
