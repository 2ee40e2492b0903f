"""Layers of recipes, and what their numbers mean. Shapes leave out the batch, unless an axis says otherwise."""

from dataclasses import dataclass

import numpy as np

__all__ = ["AveragePool", "Binary", "Channelwise", "Concat", "Conv", "ConvTranspose", "Function", "Gemm",
           "GlobalPool", "Layer", "MaxPool", "Pad", "Quantization", "Reduce", "Reorder", "Reshape", "Resize",
           "Slice", "Split", "Transpose", "Weights"]


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """How codes mean real numbers: ``scale * (code - zero_point)``, codes of ``bits`` bits in a ``dtype``."""

    scale: float = 1.0
    zero_point: int = 0
    dtype: str = "int8"
    bits: int = 8

    @property
    def low(self):
        """Lowest code."""
        return -(1 << self.bits - 1) if self.dtype == "int8" else 0

    @property
    def high(self):
        """Highest code."""
        return self.low + (1 << self.bits) - 1

    @property
    def zero(self):
        """Zero point, as the type of the codes."""
        return np.array(self.zero_point, self.dtype)

    def quantize(self, real):
        """Codes of real numbers."""
        codes = np.rint(real / np.float32(self.scale)) + self.zero_point
        return np.clip(codes, self.low, self.high).astype(self.dtype)

    def dequantize(self, codes):
        """What codes mean, float32."""
        return (np.asarray(codes, np.float32) - np.float32(self.zero_point)) * np.float32(self.scale)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Kind of a layer's weights.

    Parameters
    ----------
    kind : str
        ``ternary``, ``int2``, ``int4``, ``int7``, ``int8`` or ``uint8``; the last alone may have a zero point.
    scale : float
        Of the whole tensor, or about that of each channel.
    packed : bool
        Whether initializers are of ONNX's 2- or 4-bit type in opsets that have it.
    """

    kind: str = "ternary"
    scale: float = 1.0
    per_channel: bool = False
    zero_point: int = 0
    packed: bool = False

    @property
    def bits(self):
        """Bits of a weight."""
        return {"ternary": 2, "int2": 2, "int4": 4, "int7": 7}.get(self.kind, 8)

    @property
    def limits(self):
        """Lowest and highest weight code."""
        if self.kind == "uint8":
            return 0, 255
        return -1 if self.kind == "ternary" else -(1 << self.bits - 1), (1 << self.bits - 1) - 1

    @property
    def rms(self):
        """About the root mean square of the codes, from the zero point."""
        low, high = self.limits
        return float(np.sqrt((low - self.zero_point) ** 2 / 3 + (high - self.zero_point) ** 2 / 3))


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: the tensors that it reads, what its codes mean, its shape."""

    inputs: tuple[int, ...]
    out: Quantization = Quantization()
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Gemm(Layer):
    """Matrix product; written as Gemm, transposed or not, or as MatMul and Add.

    ``bias`` is ``none``, ``int32`` or ``float``; ``activation`` is ``none``, ``relu`` or ``clip`` to ``bounds``.
    """

    channels: int
    weights: Weights = Weights()
    bias: str = "none"
    activation: str = "none"
    bounds: tuple[float, float] = (0.0, 6.0)
    form: str = "Gemm"


@dataclass(frozen=True, kw_only=True)
class Conv(Gemm):
    """Convolution in one or two dimensions; ``pads`` count if ``auto_pad`` is NOTSET."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto_pad: str = "NOTSET"
    groups: int = 1
    batch_norm: bool = False


@dataclass(frozen=True, kw_only=True)
class ConvTranspose(Conv):
    """Transposed convolution."""

    output_padding: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class MaxPool(Layer):
    """Largest of each window."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    ceil_mode: int = 0


@dataclass(frozen=True, kw_only=True)
class AveragePool(MaxPool):
    """Mean of each window."""

    count_include_pad: int = 0


@dataclass(frozen=True, kw_only=True)
class GlobalPool(Layer):
    """``GlobalAveragePool`` or ``GlobalMaxPool``."""

    kind: str


@dataclass(frozen=True, kw_only=True)
class Reduce(Layer):
    """``ReduceMean``, ``ReduceSum`` or ``ReduceMax`` over all spatial axes."""

    kind: str
    keepdims: int


@dataclass(frozen=True, kw_only=True)
class Binary(Layer):
    """``Add``, ``Sub`` or ``Mul`` of two tensors of one shape."""

    kind: str


@dataclass(frozen=True, kw_only=True)
class Channelwise(Layer):
    """``Add``, ``Sub``, ``Mul`` or ``Div`` by a constant of about ``size`` for each channel."""

    kind: str
    size: float


@dataclass(frozen=True, kw_only=True)
class Function(Layer):
    """A function of one number: an operator's name, or ``SiLU``; ``PRelu`` has a slope for each channel.

    ``alpha`` and ``beta`` are the operator's attributes, and the bounds of ``Clip``.
    """

    kind: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Concat(Layer):
    """Two tensors, along the channels."""


@dataclass(frozen=True, kw_only=True)
class Slice(Layer):
    """A range of one axis, which counts from the batch."""

    axis: int
    start: int
    stop: int
    step: int = 1


@dataclass(frozen=True, kw_only=True)
class Split(Layer):
    """One part of an axis that is split in two; the other part is not used."""

    axis: int
    sizes: tuple[int, int]
    part: int


@dataclass(frozen=True, kw_only=True)
class Pad(Layer):
    """``constant`` (by a code), ``edge`` or ``reflect`` padding of the spatial axes."""

    pads: tuple[int, ...]
    mode: str
    code: int


@dataclass(frozen=True, kw_only=True)
class Reshape(Layer):
    """``form`` Flatten, or Reshape to the layer's shape with the batch as 0 or -1."""

    form: str
    batch: int = 0


@dataclass(frozen=True, kw_only=True)
class Transpose(Layer):
    """Permutation of the axes; the batch stays first."""

    perm: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Resize(Layer):
    """Twice the size in space, nearest neighbour."""


@dataclass(frozen=True, kw_only=True)
class Reorder(Layer):
    """``DepthToSpace`` (``mode`` DCR or CRD) or ``SpaceToDepth`` with blocks of two."""

    kind: str
    mode: str = "DCR"
