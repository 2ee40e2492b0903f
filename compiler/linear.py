"""Convolutions and matrix products, until they are quantized."""

from dataclasses import dataclass, replace

import numpy as np

from almac.compiler.graph import CompileError, Conv, SumPool
from almac.compiler.onnx_model import Node
from almac.compiler.states import Codes, State, Weight
from almac.compiler.weights import to_planes
from almac.compiler.windows import Window, conv_window

__all__ = ["Linear", "convolution", "fold_batch_norm", "matrix_product"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """Accumulators that stand for ``scale * (acc + constant) + bias``, clipped to ``low``..``high``.

    Attributes
    ----------
    scale : float32[K]
    constant : int64[K]
        What is known of the sum at compile time: zero points, an integer bias.
    bias : float64[K] or None
        A bias that is not a whole number of steps of the accumulator.
    """

    op: Conv | SumPool
    shape: tuple[int, ...]
    scale: np.ndarray
    constant: np.ndarray
    bias: np.ndarray | None = None
    low: float = -np.inf
    high: float = np.inf

    def with_bias(self, bias: State) -> "Linear":
        """Add a bias: integers of this scale stay integers, everything else is real."""
        count = len(self.scale)
        match bias:
            case Weight() if np.allclose(bias.scale.reshape(-1), self.scale, rtol=3e-7, atol=0) and (
                self.bias is None
            ):
                steps = np.broadcast_to((bias.codes - bias.zero_point).reshape(-1), (count,))
                return replace(self, constant=self.constant + steps)
            case Weight():
                real = bias.real()
            case np.ndarray():
                real = bias
            case _:
                raise CompileError("its bias is not a constant")
        if real.size not in (1, count):
            raise CompileError(f"its bias has {real.size} elements for {count} output channels")
        known = 0.0 if self.bias is None else self.bias
        return replace(self, bias=known + np.broadcast_to(real.reshape(-1).astype(np.float64), (count,)))


def convolution(node: Node, x: Codes, weight: Weight, shape: tuple[int, ...]) -> Linear:
    """A Conv node on codes of the shape ``shape`` = (C, H, W) or (C, W)."""
    integers, scale = weight.along(0)
    if integers.ndim == 3:
        integers = integers[:, :, None]
    if integers.ndim != 4:
        raise CompileError(f"its weights have {integers.ndim} dimensions; supported: 1-D and 2-D")
    groups = int(node.attributes.get("group", 1))
    if shape[0] != integers.shape[1] * groups:
        raise CompileError(f"its input has {shape[0]} channels, its weights {integers.shape[1]} for each "
                           f"of {groups} groups")
    window = conv_window(node, shape, integers.shape[2:])
    return _linear(node, x, integers, scale, groups, window)


def matrix_product(node: Node, x: Codes, weight: Weight, shape: tuple[int, ...]) -> Linear:
    """A Gemm or MatMul node with constant weights, on codes of the shape (C,)."""
    if len(shape) != 1:
        raise CompileError(f"its input has the shape {shape}; supported: a vector; flatten it first")
    transposed = node.op == "Gemm" and int(node.attributes.get("transB", 0))
    if node.op == "Gemm" and int(node.attributes.get("transA", 0)):
        raise CompileError("transA = 1; supported: 0")
    alpha, beta = (float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    if (alpha, beta) != (1.0, 1.0):
        raise CompileError(f"alpha = {alpha}, beta = {beta}; supported: 1; fold them into the weights")
    integers, scale = weight.along(0 if transposed else weight.codes.ndim - 1)
    matrix = integers if transposed else integers.T
    if matrix.shape[1] != shape[0]:
        raise CompileError(f"its input has {shape[0]} elements, its weights take {matrix.shape[1]}")
    window = Window(kernel=(1, 1), strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0), shape=())
    return _linear(node, x, matrix[:, :, None, None], scale, 1, window)


def _linear(node: Node, x: Codes, integers: np.ndarray, scale: np.ndarray, groups: int,
            window: Window) -> Linear:
    op = Conv(inputs=(x.name,), output=node.outputs[0], source=node.name, weight=to_planes(integers),
              strides=window.strides, dilations=window.dilations, pads=window.pads, groups=groups,
              pad_code=x.zero_point)
    return Linear(op=op, shape=(integers.shape[0], *window.shape),
                  scale=np.float32(x.scale) * scale.astype(np.float32),
                  constant=-x.zero_point * integers.sum(axis=(1, 2, 3)))


def fold_batch_norm(linear: Linear, node: Node, parameters: list[State | None]) -> Linear:
    """Batch normalization after a convolution: a new scale and a real bias.

    ``gamma * (y - mean) / sqrt(var + epsilon) + beta``; where gamma is negative the weights change sign, so
    that scales stay positive.
    """
    if linear.low > -np.inf or linear.high < np.inf or not isinstance(linear.op, Conv):
        raise CompileError("follows something other than a convolution; supported: directly behind one")
    if not all(isinstance(item, np.ndarray) for item in parameters):
        raise CompileError("its parameters are not constants")
    gamma, beta, mean, var = (np.asarray(item, np.float64) for item in parameters)
    factor = gamma / np.sqrt(var + float(node.attributes.get("epsilon", 1e-5)))
    known = 0.0 if linear.bias is None else linear.bias
    # The integer bias becomes real too; what the zero point adds stays with the weights.
    bias = (known - mean) * factor + beta
    negative = factor < 0
    sign = np.where(negative, -1, 1)
    weight = linear.op.weight
    flipped = replace(weight, trits=(weight.trits * sign[None, :, None, None, None]).astype(np.int8))
    return replace(
        linear, op=replace(linear.op, weight=flipped), bias=bias,
        scale=(linear.scale.astype(np.float64) * np.abs(factor)).astype(np.float32),
        constant=linear.constant * sign)
