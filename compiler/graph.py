"""The compiler's graph: immutable, integer, in execution order, executable by the golden model.

Arithmetic is that of the device: every activation is a signed 8-bit code (a ``uint8`` tensor of the model is stored
as its code minus 128), every weight a sum of ternary planes with integer group scales, every accumulator exact.
Only :class:`Quantize`, :class:`Dequantize` and :class:`Host` know real numbers; they run on the host. The golden
model runs all of them, wherever they stand; a program has them at its edges only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

__all__ = [
    "Add", "ChannelTable", "CompileError", "Concat", "Conv", "Dequantize", "Fold", "Graph", "Host", "Index",
    "MaxPool", "Move", "Mul", "Op", "Planes", "Pool", "Quantize", "Requantize", "Reshape", "SumPool", "Table",
    "Value", "verify",
]


class CompileError(Exception):
    """The model cannot be compiled; the message names the node and what to change."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """What a named value holds.

    Attributes
    ----------
    shape : tuple[int, ...]
        Shape for one image, without the batch: ``(C, H, W)`` or ``(K,)``.
    kind : str
        ``"code"`` (int8), ``"acc"`` (exact sums), or ``"real"`` (float32, on the host only).
    scale, zero_point : float32, int
        Real value of a code is ``scale * (code - zero_point)``; of no meaning for other kinds.
    unsigned : bool
        Whether the model's own tensor is unsigned: its values are the codes plus 128.
    low, high : int
        Limits of the codes of the model's own type (int4, uint2, ...).
    leading : int
        Size of the first axis for one image. Only real tensors that have lost their batch have another than 1.
    """

    shape: tuple[int, ...]
    kind: str = "code"
    scale: float = 1.0
    zero_point: int = 0
    unsigned: bool = False
    low: int = -128
    high: int = 127
    leading: int = 1


class Index:
    """Where the elements of a tensor come from: ``output.flat[i] = input.flat[index[i]]``, ``pad`` where it is -1.

    Attributes
    ----------
    index : int32[...]
        In the shape of the output, for one image; positions in the model's (channels first) order.
    pad : int
    """

    def __init__(self, index: np.ndarray, pad: int = 0) -> None:
        self.index = index
        self.pad = pad

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.pad == other.pad and np.array_equal(self.index, other.index)

    __hash__ = None  # type: ignore[assignment]

    def is_order(self, count: int) -> bool:
        """Whether it leaves ``count`` elements as they are, up to their shape."""
        return self.index.size == count and np.array_equal(self.index.reshape(-1), np.arange(count))

    def after(self, first: "Index") -> "Index | None":
        """Both in one, ``first`` before this one; None if they pad with different codes."""
        pads = {item.pad for item in (first, self) if (item.index < 0).any()}
        if len(pads) > 1:
            return None
        index = np.where(self.index < 0, -1, first.index.reshape(-1)[self.index])
        return Index(index.astype(np.int32), pads.pop() if pads else 0)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Move the elements of a batch: [N, ...] to [N, *index.shape]."""
        moved = x.reshape(len(x), -1)[:, self.index]
        if (self.index < 0).any():
            moved[:, self.index < 0] = self.pad
        return moved


@dataclass(frozen=True, kw_only=True, eq=False)
class Planes:
    """A weight tensor as a sum of ternary planes (NUMERICS.md section 2).

    ``weight[o, i] = sum over planes p of alpha[p, o, g(i)] * trits[p, o, i]``

    Attributes
    ----------
    trits : int8[P, K, C, R, S]
        Trits; ``C`` counts input channels per group of the convolution.
    alpha : int64[P, K, G]
        Group scales, at most 255 in magnitude; ``G`` groups of ``ceil(C / G)`` input channels each,
        the same at every kernel position.
    """

    trits: np.ndarray
    alpha: np.ndarray

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Planes) and np.array_equal(self.trits, other.trits)
                and np.array_equal(self.alpha, other.alpha))

    @property
    def count(self) -> int:
        """Number of planes."""
        return int(self.trits.shape[0])

    def scales(self) -> np.ndarray:
        """Group scale of every input channel: int64[P, K, C]."""
        channels = self.trits.shape[2]
        group = -(-channels // self.alpha.shape[2])
        return self.alpha[:, :, np.arange(channels) // group]

    def dense(self) -> np.ndarray:
        """The integer weights: int32[K, C, R, S]."""
        total = np.zeros(self.trits.shape[1:], np.int32)
        # One scale for all channels is not written out for each.
        scales = (self.alpha if self.alpha.shape[2] == 1 else self.scales()).astype(np.int32)
        for trits, scale in zip(self.trits, scales, strict=True):
            total += trits * scale[..., None, None]
        return total


@dataclass(frozen=True, kw_only=True)
class Op:
    """A node: produces the value ``output`` from the values ``inputs``.

    ``source`` is the name of the node of the model that it comes from, for messages and reports.
    """

    inputs: tuple[str, ...]
    output: str
    source: str = ""

    @property
    def title(self) -> str:
        """Operator, as messages call it."""
        return type(self).__name__


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Kernel positions laid into the channels of an input (see ``passes.fold_window``)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    pad_code: int


@dataclass(frozen=True, kw_only=True)
class Quantize(Op):
    """``output = clip(round_half_even(input / scale) + zero_point, low, high)``, on the host.

    ``scale`` and ``zero_point`` are those of the output value; division is in float32.
    An integer input of the model (already codes) is only stored as signed: ``exact`` is set. The host then
    moves the codes as ``move`` says, and with ``fold`` lays the window of the only convolution that reads them
    into the channels.
    """

    exact: bool = False
    low: int = -128
    high: int = 127
    move: Index | None = None
    fold: Fold | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Dequantize(Op):
    """``output = clip(scale * (input - zero_point) + bias, low, high)``, in float32, on the host.

    The codes or accumulators are first moved as ``move`` says.

    Attributes
    ----------
    scale, bias : float32[] or float32[K]
        Per tensor or per channel (axis 1 with the batch).
    zero_point : int
        Zero point of a code; 0 for accumulators.
    exact : bool
        The model's output is the code itself, ``int8`` or ``uint8``; nothing is computed.
    """

    scale: np.ndarray
    bias: np.ndarray
    zero_point: int = 0
    low: float = -np.inf
    high: float = np.inf
    exact: bool = False
    move: Index | None = None


@dataclass(frozen=True, kw_only=True)
class Conv(Op):
    """Convolution to accumulators, exact.

    ``output[k, p, q] = sum weight[k, c, r, s] * input[c, p*sh + r*dh - top, q*sw + s*dw - left]``,
    over the input channels of the group of ``k``; positions outside the input hold ``pad_code``.
    A matrix product is a convolution of kernel size 1 over a 1 x 1 image.
    """

    weight: Planes
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    groups: int = 1
    pad_code: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantize(Op):
    """Accumulators to codes (NUMERICS.md section 4), per output channel.

    ``output = clip(round_half_even((acc * multiplier + offset) / 2**shift) + zero_point, low, high)``

    ``offset`` is the bias in units of ``2**-shift`` output steps: ``bias * multiplier`` for an integer
    bias, and as exact for a real one (a folded batch normalization) as 64 bits allow.

    Attributes
    ----------
    multiplier, offset, shift : int64[K] or int64[K, P, Q]
        For every channel, or every position (averages over windows of different sizes).
        ``multiplier < 2**24``, ``abs(offset) < 2**62``, ``0 <= shift < 64``.
    """

    multiplier: np.ndarray
    offset: np.ndarray
    shift: np.ndarray
    zero_point: int = 0
    low: int = -128
    high: int = 127


@dataclass(frozen=True, kw_only=True)
class Pool(Op):
    """Window of a pooling operator; ``pads`` are top, left, bottom, right.

    A window may hang over the bottom and right pads (``ceil_mode``): the output's shape decides.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class MaxPool(Pool):
    """``output = max`` of the codes in the window; positions outside hold -128."""


@dataclass(frozen=True, kw_only=True)
class SumPool(Pool):
    """``output = sum`` of the codes in the window, exact; positions outside hold ``pad_code``."""

    pad_code: int = 0


@dataclass(frozen=True, kw_only=True)
class Add(Op):
    """Sum of two tensors of codes with different scales, one rounding.

    ``output = clip(round_half_even(((a << left) * multipliers[0] + b * multipliers[1] + offset)
    / 2**shift) + zero_point, low, high)``
    """

    multipliers: tuple[int, int]
    left: int
    offset: int
    shift: int
    zero_point: int = 0
    low: int = -128
    high: int = 127


@dataclass(frozen=True, kw_only=True)
class Mul(Op):
    """Product of two tensors of codes, one rounding.

    ``output = clip(round_half_even((a - zero_points[0]) * (b - zero_points[1]) * multiplier / 2**shift)
    + zero_point, low, high)``
    """

    zero_points: tuple[int, int]
    multiplier: int
    shift: int
    zero_point: int = 0
    low: int = -128
    high: int = 127


@dataclass(frozen=True, kw_only=True)
class Table(Op):
    """``output = table[input + 128]``: any function of one code.

    ``steps`` are the real results in steps of the output, before rounding, for whoever judges near-ties.
    """

    table: tuple[int, ...]
    steps: tuple[float, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelTable(Op):
    """``output[c] = tables[c, input[c] + 128]``: a function of one code for each channel.

    Attributes
    ----------
    tables, steps : int8[C, 256], float64[C, 256]
        As those of :class:`Table`.
    """

    tables: np.ndarray
    steps: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Concat(Op):
    """The inputs one behind the other along ``axis``, counted without the batch."""

    axis: int


@dataclass(frozen=True, kw_only=True)
class Reshape(Op):
    """The same codes in the shape of the output, in the model's (channels first) order."""


@dataclass(frozen=True, kw_only=True)
class Move(Op):
    """Codes in another order, some of them several times or not at all, and padding: no arithmetic.

    ``kind`` is the operator of the model that it comes from.
    """

    move: Index
    kind: str = "Move"

    @property
    def title(self) -> str:
        return self.kind


@dataclass(frozen=True, kw_only=True)
class Host(Op):
    """An operator on real tensors that the host computes, image by image, with onnxruntime.

    Attributes
    ----------
    model : bytes
        ONNX model of it, with the inputs in the order of ``inputs``, and one output.
    kind : str
        The operator.
    reason : str
        Why the array does not.
    opset : int
    """

    model: bytes = field(repr=False)
    kind: str
    reason: str
    opset: int

    @property
    def title(self) -> str:
        return self.kind


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A straight-line program over named values.

    Attributes
    ----------
    ops : tuple[Op, ...]
        Nodes, each after the producers of its inputs.
    values : Mapping[str, Value]
        What every named value holds. Values that are tensors of the model bear its names.
    inputs, outputs : tuple[str, ...]
        Names of the values that the user gives and gets.
    opset : int
        Of the model, for messages; 0 if there is none.
    dtypes : Mapping[str, str]
        Types of real values that are not float32.
    """

    ops: tuple[Op, ...]
    values: Mapping[str, Value] = field(hash=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int = 0
    dtypes: Mapping[str, str] = field(default_factory=dict, hash=False)

    def with_ops(self, ops: Iterable[Op], values: Mapping[str, Value] | None = None) -> "Graph":
        """Return the graph with other ops, without the values that nothing mentions any more."""
        ops = tuple(ops)
        known = {**self.values, **(values or {})}
        used = {name for op in ops for name in (*op.inputs, op.output)}
        used |= {*self.inputs, *self.outputs}
        kept = {name: value for name, value in known.items() if name in used}
        return replace(self, ops=ops, values=kept)

    def users(self, name: str) -> tuple[Op, ...]:
        """Return the ops that read the value ``name``."""
        return self._users.get(name, ())

    def producer(self, name: str) -> Op | None:
        """Return the op that makes the value ``name``; None for an input."""
        return self._producers.get(name)

    @cached_property
    def _users(self) -> dict[str, tuple[Op, ...]]:
        users: dict[str, list[Op]] = {}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                users.setdefault(name, []).append(op)
        return {name: tuple(ops) for name, ops in users.items()}

    @cached_property
    def _producers(self) -> dict[str, Op]:
        return {op.output: op for op in reversed(self.ops)}

    def is_private(self, name: str) -> bool:
        """Whether exactly one op reads ``name`` and the user does not."""
        return len(self.users(name)) == 1 and name not in self.outputs


def verify(graph: Graph) -> Graph:
    """Check the invariants that every pass may rely on and must keep."""
    known = set(graph.inputs)
    for op in graph.ops:
        if missing := set(op.inputs) - known:
            raise AssertionError(f"{op} uses {sorted(missing)} before they are produced")
        if op.output in known:
            raise AssertionError(f"{op} produces {op.output!r} a second time")
        known.add(op.output)
        _verify_op(graph, op)
    if missing := set(graph.outputs) - known:
        raise AssertionError(f"graph outputs {sorted(missing)} are never produced")
    if missing := known - set(graph.values):
        raise AssertionError(f"values {sorted(missing)} are not described")
    return graph


def _verify_op(graph: Graph, op: Op) -> None:
    kinds = [graph.values[name].kind for name in (*op.inputs, op.output)]
    expected = {
        Quantize: ["real", "code"], Conv: ["code", "acc"], Requantize: ["acc", "code"],
        MaxPool: ["code", "code"], SumPool: ["code", "acc"], Add: ["code", "code", "code"],
        Table: ["code", "code"], ChannelTable: ["code", "code"], Move: ["code", "code"], Reshape: ["code", "code"],
        Mul: ["code", "code", "code"],
    }.get(type(op))
    if expected is not None and kinds != expected:
        raise AssertionError(f"{type(op).__name__} {op.output!r} joins {kinds}, not {expected}")
    shapes = [graph.values[name].shape for name in (*op.inputs, op.output)]
    match op:
        case Conv(weight=weight):
            count, channels = weight.trits.shape[1:3]
            if shapes[0][0] != channels * op.groups or shapes[1][0] != count:
                raise AssertionError(f"Conv {op.output!r}: {weight.trits.shape} from {shapes}")
        case Add() | Mul() if len(set(shapes)) != 1:
            raise AssertionError(f"{op.title} {op.output!r} joins the shapes {shapes}")
        case Reshape() if np.prod(shapes[0]) != np.prod(shapes[1]):
            raise AssertionError(f"Reshape {op.output!r} from {shapes[0]} to {shapes[1]}")
        case Move(move=move) if move.index.shape != shapes[1] or move.index.max(initial=0) >= np.prod(shapes[0]):
            raise AssertionError(f"{op.title} {op.output!r} from {shapes[0]} to {shapes[1]}")
        case Concat(axis=axis) if sum(shape[axis] for shape in shapes[:-1]) != shapes[-1][axis]:
            raise AssertionError(f"Concat {op.output!r} from {shapes}")
