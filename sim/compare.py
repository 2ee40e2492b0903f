"""Golden against onnxruntime, by the rule of NUMERICS.md section 6.

Each layer is computed from the oracle's own codes before it, so that a near-tie in one layer does not make
differences in the next ones. An element may differ from the oracle's by one code where the exact value lies nearer
to a tie than the oracle's float32 arithmetic can tell; those are counted apart.
"""

from dataclasses import dataclass, replace

import numpy as np

from almac.compiler.graph import (
    Add,
    ChannelTable,
    Concat,
    Conv,
    Dequantize,
    Host,
    Index,
    Move,
    Mul,
    Quantize,
    Requantize,
    Reshape,
    SumPool,
    Table,
)
from almac.compiler.operators import HOST_WORK
from almac.sim.convolve import convolve
from almac.sim.golden import apply, folded
from almac.sim.oracle import oracle_tensors

__all__ = ["Comparison", "compare_with_oracle"]

#: Half a unit in the last place of float32, relative.
_EPSILON = 2.0 ** -24

#: Roundings of the oracle beside those of the sum: scales, bias, division.
_OTHER_ROUNDINGS = 8

#: Greatest magnitude of a code and its zero point.
_CODES = 255

#: How far two float32 sums in different orders may lie apart, relative to the greatest result.
_SUMS = 1e-5

#: Roundings of a chain of functions: some operators of onnxruntime approximate (Erf, Tanh, Exp) to a few units in
#: the last place of numbers around one.
_FUNCTION_ROUNDINGS = 24


@dataclass
class Comparison:
    """What was compared.

    Attributes
    ----------
    tensors, elements : int
        Compared with the oracle.
    near_ties : int
        Elements that differ by one code, as they may.
    first_difference : dict or None
        ``layer``, ``tensor``, ``index``, ``expected`` (the oracle's), ``got``.
    """

    tensors: int = 0
    elements: int = 0
    near_ties: int = 0
    first_difference: dict | None = None


def compare_with_oracle(graph, model, inputs):
    """Compare every tensor that the graph and the model have in common.

    Parameters
    ----------
    graph : Graph
    model : path or onnx.ModelProto
        The ONNX model that it comes from.
    inputs : dict[str, ndarray[N, ...]]
    """
    names = {_stem(graph, name) for name in graph.values}
    oracle = oracle_tensors(model, inputs, names, singly=any(isinstance(op, Host) for op in graph.ops))
    known = dict(inputs)
    result = Comparison()
    # Where values that the oracle does not show may be a code off, until something that it shows is made of them.
    slack = {}
    for op in graph.ops:
        args = [known[name] for name in op.inputs]
        plain = replace(op, fold=None) if isinstance(op, Quantize) else op
        got = apply(graph, plain, args)
        want = _oracle_value(graph, op.output, oracle)
        if want is None:
            if any(isinstance(user, Concat | Dequantize | Move | Reshape | Table)
                   for user in graph.users(op.output)):
                slack[op.output] = _bound(graph, op, known, slack, got, got)
            known[op.output] = folded(op, got) if isinstance(op, Quantize) else got
            continue
        want = want.reshape(got.shape)
        result.tensors += 1
        result.elements += got.size
        bound = None if np.array_equal(got, want) else _bound(graph, op, known, slack, got, want)
        near = bound is not None and np.abs(got.astype(np.float64) - want) <= bound
        wrong = np.argwhere((got != want) & ~near)
        if len(wrong):
            index = tuple(int(i) for i in wrong[0])
            result.first_difference = {
                "layer": op.source or op.output, "tensor": op.output, "index": index,
                "expected": want[index].item(), "got": got[index].item(),
                "differing": len(wrong), "of": int(got.size)}
            return result
        if got.dtype in (np.int8, np.uint8):
            result.near_ties += int((got != want).sum())
        known[op.output] = folded(op, want) if isinstance(op, Quantize) else want
    return result


def _stem(graph, name):
    """Tensor of the model that a value stands for."""
    return name.removesuffix("/real" if graph.values[name].kind == "real" else "/codes")


def _oracle_value(graph, name, oracle):
    """The oracle's tensor as the device would hold it."""
    tensor = oracle.get(_stem(graph, name))
    value = graph.values[name]
    if tensor is None or value.kind == "acc":
        return None
    if value.kind == "code" and tensor.dtype.kind == "f":
        # A real tensor of the model may bear the name of the codes that it was made of; QONNX has no others.
        if name == _stem(graph, name):
            return None
        codes = np.rint(tensor / np.float32(value.scale)) + value.zero_point
        return np.clip(codes, -128, 127).astype(np.int8)
    if value.kind == "code":
        return (tensor.astype(np.int16) - 128 * value.unsigned).astype(np.int8)
    return tensor


def _bound(graph, op, known, slack, got, want):
    """How far each element may be from the oracle's; None if all must be equal."""
    match op:
        case Concat() | Move() | Reshape():
            parts = [slack.get(name) for name in op.inputs]
            if all(part is None for part in parts):
                return None
            parts = [np.zeros(known[name].shape) if part is None else part
                     for name, part in zip(op.inputs, parts, strict=True)]
            return apply(graph, op, parts)
        case Requantize():
            acc = known[op.inputs[0]]
            total, terms = _magnitude(graph.producer(op.inputs[0]), known, acc)
            multiplier, offset, unit = (_channels(values, acc)
                                        for values in (op.multiplier, op.offset, 2.0 ** op.shift))
            exact = (multiplier * acc + offset) / unit
            return _near_tie(exact, total * multiplier / unit + np.abs(offset / unit), terms)
        case Add():
            a, b = (known[name].astype(np.float64) for name in op.inputs)
            first, second = a * 2.0 ** op.left * op.multipliers[0], b * op.multipliers[1]
            unit = 2.0 ** op.shift
            exact = (first + second + op.offset) / unit
            return _near_tie(exact, (abs(first) + abs(second) + abs(op.offset)) / unit, 2)
        case Host() if op.kind not in HOST_WORK:
            # A program never holds these. Their float32 sums are in the order that onnxruntime chooses for a node.
            return np.full(want.shape, _SUMS * np.abs(want).max(initial=0))
        case Mul():
            a, b = (known[name].astype(np.float64) - zero
                    for name, zero in zip(op.inputs, op.zero_points, strict=True))
            exact = a * b * op.multiplier / 2.0 ** op.shift
            return _near_tie(exact, abs(exact), 2)
        case Table() if not op.steps:
            # It limits codes: what is a code off before is at most that behind.
            return slack.get(op.inputs[0])
        case Table():
            at = known[op.inputs[0]].astype(np.int16) + 128
            exact = np.array(op.steps)[at]
            bound = _near_tie(exact, abs(exact) + 1, _FUNCTION_ROUNDINGS)
            if slack.get(op.inputs[0]) is None:
                return bound
            # Of a code that may be the next one, it may be what the table says of that.
            table = np.array(op.table)
            others = [table[np.clip(at + step, 0, 255)] for step in (-1, 1)]
            return bound + slack[op.inputs[0]] * np.abs(np.array(others) - table[at]).max(axis=0)
        case ChannelTable():
            codes = known[op.inputs[0]].astype(np.int16) + 128
            channel = np.arange(len(op.steps)).reshape(1, -1, *(1,) * (codes.ndim - 2))
            exact = op.steps[channel, codes]
            return _near_tie(exact, abs(exact) + 1, _FUNCTION_ROUNDINGS)
        case Dequantize() if slack.get(op.inputs[0]) is not None:
            error = slack[op.inputs[0]]
            # Real numbers a code apart: each is rounded to float32, by at most half a unit of 256 codes.
            error = error if op.exact else error * _channels(op.scale, error) * (1 + 256 * _EPSILON)
            return (error if op.move is None else Index(op.move.index).apply(error)).reshape(got.shape)
        case Dequantize() if graph.values[op.inputs[0]].kind == "acc":
            total, terms = _magnitude(graph.producer(op.inputs[0]), known, known[op.inputs[0]])
            size = total * _channels(op.scale, total) + np.abs(_channels(op.bias, total))
            error = (terms + _OTHER_ROUNDINGS) * _EPSILON * size
            return (error if op.move is None else op.move.apply(error)).reshape(got.shape)
    return None


def _near_tie(exact, size, terms):
    """1 where rounding may go either way, else 0."""
    # QONNX, and some QLinear kernels, add the zero point before they round: one more rounding, of a code's size.
    error = (terms + _OTHER_ROUNDINGS) * _EPSILON * size + _CODES * _EPSILON
    distance = np.abs(np.abs(exact - np.floor(exact)) - 0.5)
    return (distance <= error).astype(np.float64)


def _magnitude(op, known, acc):
    """Sum of the magnitudes of the terms of each of the accumulators ``acc``, and how many there are at most."""
    codes = known[op.inputs[0]].astype(np.int64)
    match op:
        case Conv(weight=weight):
            # All weights positive, on what the codes are from zero.
            total = convolve(replace(op, pad_code=0), np.abs(codes - op.pad_code), np.abs(weight.dense()),
                             acc.shape[1:])
            return total.reshape(acc.shape).astype(np.float64), int(np.prod(weight.trits.shape[2:]))
        case SumPool(kernel=(rows, columns)):
            return np.full(acc.shape, 255.0 * rows * columns), rows * columns
    raise TypeError(f"nothing known of the terms of {op!r}")


def _channels(values, like):
    """Parameters [K], or [K, P, Q], that broadcast against a batch."""
    array = np.asarray(values, np.float64)
    return array if array.ndim > 1 else array.reshape(1, -1, *(1,) * (like.ndim - 2))
