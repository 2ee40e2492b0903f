"""Golden against onnxruntime, by the rule of NUMERICS.md section 6.

Each layer is computed from the oracle's own codes before it, so that a near-tie in one layer does not make
differences in the next ones. An element may differ from the oracle's by one code where the exact value lies nearer
to a tie than the oracle's float32 arithmetic can tell; those are counted apart.
"""

from dataclasses import dataclass, replace

import numpy as np

from almac.compiler.graph import Add, Conv, Dequantize, Quantize, Requantize, SumPool
from almac.sim.golden import apply, convolve, folded
from almac.sim.oracle import oracle_tensors

__all__ = ["Comparison", "compare_with_oracle"]

#: Half a unit in the last place of float32, relative.
_EPSILON = 2.0 ** -24

#: Roundings of the oracle beside those of the sum: scales, bias, division.
_OTHER_ROUNDINGS = 8


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
    oracle = oracle_tensors(model, inputs)
    known = dict(inputs)
    result = Comparison()
    for op in graph.ops:
        args = [known[name] for name in op.inputs]
        plain = replace(op, fold=None) if isinstance(op, Quantize) else op
        got = apply(graph, plain, args)
        want = _oracle_value(graph, op.output, oracle)
        if want is None:
            known[op.output] = folded(op, got) if isinstance(op, Quantize) else got
            continue
        want = want.reshape(got.shape)
        result.tensors += 1
        result.elements += got.size
        bound = _bound(graph, op, known, got, want)
        near = bound is not None and np.abs(got.astype(np.float64) - want) <= bound
        wrong = np.argwhere((got != want) & ~near)
        if len(wrong):
            index = tuple(int(i) for i in wrong[0])
            result.first_difference = {
                "layer": op.source or op.output, "tensor": op.output, "index": index,
                "expected": want[index].item(), "got": got[index].item(),
                "differing": len(wrong), "of": int(got.size)}
            return result
        if got.dtype == np.int8:
            result.near_ties += int((got != want).sum())
        known[op.output] = folded(op, want) if isinstance(op, Quantize) else want
    return result


def _oracle_value(graph, name, oracle):
    """The oracle's tensor as the device would hold it."""
    tensor = oracle.get(name.removesuffix("/codes"))
    value = graph.values[name]
    # A real tensor of the model may bear the name of the codes that it was made of.
    if tensor is None or value.kind == "acc" or (value.kind == "code" and tensor.dtype.kind == "f"):
        return None
    if value.kind == "code" and tensor.dtype == np.uint8:
        return (tensor ^ np.uint8(128)).view(np.int8)
    return tensor


def _bound(graph, op, known, got, want):
    """How far each element may be from the oracle's; None if all are equal or must be."""
    if np.array_equal(got, want):
        return None
    match op:
        case Requantize():
            acc = known[op.inputs[0]]
            total, terms = _magnitude(graph.producer(op.inputs[0]), known, acc)
            exact = (_channels(op.multiplier, total) * acc
                     + _channels(op.offset, total)) / 2.0 ** _channels(op.shift, total)
            scale = _channels(op.multiplier, total) / 2.0 ** _channels(op.shift, total)
            size = total * scale + np.abs(_channels(op.offset, total)
                                          / 2.0 ** _channels(op.shift, total))
            return _near_tie(exact, size, terms)
        case Add():
            a, b = (known[name].astype(np.float64) for name in op.inputs)
            first, second = a * 2.0 ** op.left * op.multipliers[0], b * op.multipliers[1]
            unit = 2.0 ** op.shift
            exact = (first + second + op.offset) / unit
            return _near_tie(exact, (abs(first) + abs(second) + abs(op.offset)) / unit, 2)
        case Dequantize() if graph.values[op.inputs[0]].kind == "acc":
            total, terms = _magnitude(graph.producer(op.inputs[0]), known, known[op.inputs[0]])
            size = total * _channels(op.scale, total) + np.abs(_channels(op.bias, total))
            error = (terms + _OTHER_ROUNDINGS) * _EPSILON * size
            return error.reshape(got.shape)
    return None


def _near_tie(exact, size, terms):
    """1 where rounding may go either way, else 0."""
    error = (terms + _OTHER_ROUNDINGS) * _EPSILON * size
    distance = np.abs(np.abs(exact - np.floor(exact)) - 0.5)
    return (distance <= error).astype(np.float64)


def _magnitude(op, known, acc):
    """Sum of the magnitudes of the terms of each of the accumulators ``acc``, and how many there are at most."""
    codes = known[op.inputs[0]].astype(np.int64)
    match op:
        case Conv(weight=weight):
            # All weights positive, on what the codes are from zero.
            total = convolve(replace(op, pad_code=0), np.abs(codes - op.pad_code), np.abs(weight.dense()))
            return total.reshape(acc.shape).astype(np.float64), int(np.prod(weight.trits.shape[2:]))
        case SumPool(kernel=(rows, columns)):
            return np.full(acc.shape, 255.0 * rows * columns), rows * columns
    raise TypeError(f"nothing known of the terms of {op!r}")


def _channels(values, like):
    array = np.asarray(values, np.float64).reshape(-1)
    return array.reshape(1, -1, *(1,) * (like.ndim - 2))
