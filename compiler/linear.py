"""Convolutions and matrix products, until they are quantized."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from almac.compiler.graph import CompileError, Conv, Index, Planes, SumPool
from almac.compiler.onnx_model import Node
from almac.compiler.states import Codes, State, Weight
from almac.compiler.weights import common_scale, grouped_planes, to_planes
from almac.compiler.windows import Window, conv_window, transposed_window

__all__ = ["Linear", "batch_norm", "convolution", "identity", "matrix_product", "per_channel",
           "transposed_convolution"]

#: A bias is a whole number of accumulator steps if its scale is that of the products up to rounding.
_SAME_SCALE = 3e-7

#: Beyond it every float32 number is a whole number of steps.
_MOST_STEPS = 1 << 20


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
    counts : int64[P, Q] or None
        What the sum at each position is still to be divided by (an average over windows of different sizes).
    rounding : str
        ``Floor`` or ``Ceil``, if that has been done to the result.
    """

    op: Conv | SumPool
    shape: tuple[int, ...]
    scale: np.ndarray
    constant: np.ndarray
    bias: np.ndarray | None = None
    low: float = -np.inf
    high: float = np.inf
    counts: np.ndarray | None = None
    rounding: str = ""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale).all() and (self.bias is None or np.isfinite(self.bias).all())):
            raise CompileError("its scales or biases multiply to what is not finite; quantize with other scales")

    def with_bias(self, bias: State) -> "Linear":
        """Add a bias: integers of this scale stay integers, everything else is real."""
        self._require_open()
        count = len(self.scale)
        match bias:
            case Weight():
                real = bias.real()
                exact = self.bias is None and bias.scale.size in (1, count) and np.allclose(
                    bias.scale.reshape(-1), self.scale, rtol=_SAME_SCALE, atol=0)
            case np.ndarray():
                real, exact = bias, False
                if self.bias is None and (steps := self._whole(bias)) is not None:
                    return replace(self, constant=self.constant + steps)
            case _:
                raise CompileError("its bias is not a constant")
        if real.size not in (1, count) or not np.isfinite(real.astype(np.float64)).all():
            raise CompileError(f"its bias has {real.size} elements for {count} output channels, or one that is "
                               "not a number")
        if exact:
            steps = np.broadcast_to(bias.along(bias.axis)[0].reshape(-1), (count,))
            return replace(self, constant=self.constant + steps)
        known = 0.0 if self.bias is None else self.bias
        return replace(self, bias=known + np.broadcast_to(real.reshape(-1).astype(np.float64), (count,)))

    def _whole(self, bias: np.ndarray) -> np.ndarray | None:
        """Steps of the accumulator that a real bias is, up to the rounding of float32; None if it is not whole.

        A spelling that writes the same bias in real numbers gives the same program.
        """
        real = np.asarray(bias, np.float64).reshape(-1)
        if real.size not in (1, len(self.scale)) or not (self.scale > 0).all():
            return None
        real = np.broadcast_to(real, self.scale.shape)
        steps = np.rint(real / self.scale.astype(np.float64))
        near = np.abs(steps * self.scale.astype(np.float64) - real) <= _SAME_SCALE * np.abs(real)
        return steps.astype(np.int64) if near.all() and (np.abs(steps) < _MOST_STEPS).all() else None

    def plus(self, constant: State, factor: float = 1.0) -> "Linear":
        """Add a constant that is broadcast along the channels, times a factor."""
        if not isinstance(constant, np.ndarray | Weight):
            raise CompileError("adds what is not a constant")
        per_channel(constant.codes if isinstance(constant, Weight) else constant, self.shape)
        if factor == 1.0:
            return self.with_bias(constant)
        real = constant.real() if isinstance(constant, Weight) else constant
        return self.with_bias(np.asarray(real, np.float64) * factor)

    def times(self, factor: np.ndarray) -> "Linear":
        """Multiply by a factor, or one for each channel: float64[].

        Scales stay positive: where a factor is negative, the weights change sign.
        """
        self._require_open()
        factor = np.broadcast_to(np.asarray(factor, np.float64).reshape(-1), self.scale.shape)
        if not np.isfinite(factor).all():
            raise CompileError("its factors are not finite")
        op, sign = self.op, np.where(factor < 0, -1, 1)
        if (factor < 0).any():
            if not isinstance(op, Conv):
                raise CompileError("multiplies an average by a negative number; supported: positive ones")
            trits = (op.weight.trits * sign[None, :, None, None, None]).astype(np.int8)
            op = replace(op, weight=replace(op.weight, trits=trits))
        return replace(self, op=op, constant=self.constant * sign,
                       scale=(self.scale.astype(np.float64) * np.abs(factor)).astype(np.float32),
                       bias=None if self.bias is None else self.bias * factor)

    def _require_open(self) -> None:
        if self.low > -np.inf or self.high < np.inf or self.rounding:
            raise CompileError("computes on what Relu or Clip has limited, before it is quantized; supported: "
                               "Relu and Clip last; quantize the tensor before it")


def per_channel(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A constant that is broadcast along the channels of a tensor of ``shape`` = (C, ...): [C] or [1].

    Raises
    ------
    CompileError
        If it varies along anything else.
    """
    sizes = (1,) * (len(shape) + 1 - array.ndim) + array.shape
    if len(sizes) != len(shape) + 1 or array.size not in (1, sizes[1]) or sizes[1] not in (1, shape[0]):
        raise CompileError(f"its constant has the shape {array.shape}; supported: one number, or one for each "
                           f"of the {shape[0]} channels")
    return array.reshape(-1)


def convolution(node: Node, x: Codes, weight: Weight, shape: tuple[int, ...]) -> Linear:
    """A Conv node on codes of the shape ``shape`` = (C, H, W) or (C, W)."""
    if weight.codes.ndim not in (3, 4) or len(shape) != weight.codes.ndim - 1:
        raise CompileError(f"its weights have {weight.codes.ndim} dimensions, its input has the shape "
                           f"{shape}; supported: 1-D and 2-D")
    planes, scale = _planes(weight)
    groups = node.integer("group", 1)
    count, channels = planes.trits.shape[1:3]
    if groups < 1 or shape[0] != channels * groups or count % groups:
        raise CompileError(f"its input has {shape[0]} channels, its weights {channels} for each of {groups} "
                           f"groups, and {count} outputs")
    window = conv_window(node, shape, planes.trits.shape[3:])
    return _linear(node, x, planes, scale, groups, window)


def transposed_convolution(node: Node, x: Codes, weight: Weight, shape: tuple[int, ...],
                           moved: Callable[[Codes, str, Index, str, str], Codes]) -> tuple[Codes, Linear]:
    """A ConvTranspose node: a convolution with the kernel turned around over the input with zeros in between.

    ``moved`` puts the zeros there, that is the input's zero point, and crops what the pads take away.
    """
    if weight.codes.ndim not in (3, 4) or len(shape) != weight.codes.ndim - 1:
        raise CompileError(f"its weights have {weight.codes.ndim} dimensions, its input has the shape "
                           f"{shape}; supported: 1-D and 2-D")
    if weight.block or weight.rest:
        raise CompileError("its weights are in blocks or planes; supported: one scale for each output channel")
    groups = node.integer("group", 1)
    channels, per_group, *kernel = weight.codes.shape
    if groups < 1 or shape[0] != channels or channels % groups:
        raise CompileError(f"its input has {shape[0]} channels, its weights {channels} in {groups} groups")
    integers, scale = weight.along(1)
    # [C, K / groups, ...] to [K, C / groups, ...], the kernel from its end.
    flipped = np.flip(integers, axis=tuple(range(2, integers.ndim)))
    split = flipped.reshape(groups, channels // groups, per_group, *kernel).swapaxes(1, 2)
    turned = _image(split.reshape(groups * per_group, channels // groups, *kernel))
    window, stuffed = transposed_window(node, shape, turned.shape[2:])
    if stuffed is not None:
        x = moved(x, f"{node.outputs[0]}/stuffed", Index(stuffed, x.zero_point), node.name, node.op)
    return x, _linear(node, x, to_planes(turned), np.tile(scale, groups), groups, window)


def identity(node: Node, x: Codes, shape: tuple[int, ...]) -> Linear:
    """Codes as accumulators of themselves, one channel each: what follows may scale channels differently."""
    ones = Planes(trits=np.ones((1, shape[0], 1, 1, 1), np.int8), alpha=np.ones((1, shape[0], 1), np.int64))
    window = Window(kernel=(1, 1), strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0), shape=shape[1:])
    return _linear(node, x, ones, np.ones(shape[0], np.float32), shape[0], window)


def matrix_product(node: Node, x: Codes, weight: Weight, shape: tuple[int, ...], rest: list[State]) -> Linear:
    """A Gemm or MatMul node with constant weights, on codes of the shape (C,); ``rest`` may hold its bias."""
    if len(shape) != 1:
        raise CompileError(f"its input has the shape {shape}; supported: a vector; flatten it first")
    if weight.codes.ndim != 2:
        raise CompileError(f"its weights have {weight.codes.ndim} dimensions; supported: 2")
    if node.integer("transA", 0):
        raise CompileError("transA = 1; supported: 0")
    planes, scale = _planes(weight if node.integer("transB", 0) else weight.transposed((1, 0)))
    channels = planes.trits.shape[2]
    if channels != shape[0]:
        raise CompileError(f"its input has {shape[0]} elements, its weights take {channels}")
    window = Window(kernel=(1, 1), strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0), shape=())
    linear = _linear(node, x, planes, scale, 1, window)
    alpha, beta = (float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    linear = linear.times(np.array(alpha)) if alpha != 1.0 else linear
    return linear.plus(rest[0], beta) if rest and rest[0] is not None else linear


def batch_norm(linear: Linear, node: Node, parameters: list[State]) -> Linear:
    """``gamma * (y - mean) / sqrt(var + epsilon) + beta``: a new scale and a real bias."""
    count = len(linear.scale)
    if len(parameters) != 4 or not all(
            isinstance(item, np.ndarray) and item.shape == (count,) for item in parameters):
        raise CompileError(f"its parameters are not four constants for {count} channels")
    gamma, beta, mean, var = (item.astype(np.float64) for item in parameters)
    with np.errstate(invalid="ignore"):
        deviation = np.sqrt(var + float(node.attributes.get("epsilon", 1e-5)))
    if not (np.isfinite(deviation).all() and (deviation > 0).all()):
        raise CompileError("its variance plus epsilon is not greater than zero")
    return linear.times(gamma / deviation).with_bias(beta - mean * (gamma / deviation))


def _planes(weight: Weight) -> tuple[Planes, np.ndarray]:
    """Planes, and the scale of each output channel, of weights [K, C, ...]."""
    if not weight.block and not weight.rest:
        integers, scale = weight.along(0)
        return to_planes(_image(integers)), scale
    parts = (replace(weight, rest=()), *weight.rest)
    count, channels = weight.codes.shape[:2]
    # The scale of every input channel, and from it the groups: float32[parts, K, C].
    scales = np.array([_channel_scales(part) for part in parts])
    block = next((part.block for part in parts if part.block), channels)
    groups = -(-channels // block)
    if -(-channels // groups) != block or any(part.block not in (0, block) for part in parts):
        block, groups = 1, channels
    unit, factors = common_scale(scales[:, :, ::block].transpose(1, 0, 2).reshape(count, -1))
    by_part = factors.reshape(count, len(parts), groups).transpose(1, 0, 2)
    weights = [_image(part.codes if part.block else part.along(0)[0]) for part in parts]
    return grouped_planes(list(zip(weights, by_part, strict=True))), unit


def _channel_scales(part: Weight) -> np.ndarray:
    count, channels = part.codes.shape[:2]
    if not part.block:
        return np.broadcast_to(part.along(0)[1][:, None], (count, channels))
    if part.axis % part.codes.ndim != 1 or part.zero_point.any():
        raise CompileError(f"its weights have blocks of axis {part.axis} or zero points; supported: blocks of "
                           "input channels, without zero points")
    scale = part.scale.reshape(count, part.scale.shape[1], -1)
    if (scale != scale[..., :1]).any():
        raise CompileError("the scales of its blocks differ between kernel positions; supported: the same "
                           "scale at all of them")
    return np.repeat(scale[..., 0], part.block, axis=1)[:, :channels]


def _image(integers: np.ndarray) -> np.ndarray:
    """Weights [K, C], [K, C, S] or [K, C, R, S] as the latter."""
    count, channels, *kernel = integers.shape
    return integers.reshape(count, channels, *(1, 1, *kernel)[-2:])


def _linear(node: Node, x: Codes, planes: Planes, scale: np.ndarray, groups: int, window: Window) -> Linear:
    op = Conv(inputs=(x.name,), output=node.outputs[0], source=node.name, weight=planes,
              strides=window.strides, dilations=window.dilations, pads=window.pads, groups=groups,
              pad_code=x.zero_point)
    with np.errstate(over="ignore"):
        product = np.float32(x.scale) * scale.astype(np.float32)
    return Linear(op=op, shape=(planes.trits.shape[1], *window.shape), scale=product,
                  constant=-x.zero_point * planes.dense().sum(axis=(1, 2, 3)))
