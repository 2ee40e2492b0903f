"""The golden model: every op of the graph in NumPy, bit for bit; the definition of a right answer."""

import numpy as np

from almac.compiler.graph import (
    Add,
    ChannelTable,
    Concat,
    Conv,
    Dequantize,
    Host,
    MaxPool,
    Move,
    Mul,
    Quantize,
    Requantize,
    Reshape,
    SumPool,
    Table,
)
from almac.compiler.onnx_run import run_model
from almac.sim.convolve import convolve, windows
from almac.sim.rounding import round_sum, saturate

__all__ = ["apply", "evaluate", "folded"]

#: Greatest magnitude of a code.
_CODE = 128


def evaluate(graph, inputs):
    """Run ``graph`` on a batch.

    Parameters
    ----------
    graph : Graph
    inputs : dict[str, ndarray[N, ...]]
        The inputs of the model, by name.

    Returns
    -------
    dict[str, ndarray[N, ...]]
        Every value: codes as int8, accumulators as int32, real numbers as float32.
    """
    values = {name: np.asarray(batch) for name, batch in inputs.items()}
    for op in graph.ops:
        values[op.output] = apply(graph, op, [values[name] for name in op.inputs])
    return values


def apply(graph, op, args):
    """Output of one op for a batch of its inputs."""
    value = graph.values[op.output]
    match op:
        case Quantize():
            return _quantize(op, value, args[0])
        case Dequantize():
            return _dequantize(op, graph.values[op.inputs[0]], args[0]).reshape(-1, *value.shape)
        case Conv():
            return convolve(op, args[0], shape=value.shape).reshape(-1, *value.shape)
        case Requantize():
            return _rounded(op, args, (op.multiplier,), op.offset)
        case MaxPool():
            return _pool(np.maximum, windows(op, args[0], -_CODE, value.shape), np.int8).reshape(-1, *value.shape)
        case SumPool():
            return _pool(np.add, windows(op, args[0], op.pad_code, value.shape), np.int32).reshape(-1, *value.shape)
        case Add(multipliers=(first, second)):
            return _rounded(op, args, (first << op.left, second), op.offset)
        case Table():
            # As unsigned, negative codes come last.
            return np.roll(np.array(op.table, np.int8), _CODE).take(args[0].view(np.uint8))
        case Reshape():
            return args[0].reshape(-1, *value.shape)
        case Move(move=move):
            return move.apply(args[0])
        case Concat(axis=axis):
            return np.concatenate(args, axis=axis + 1)
        case Mul():
            a, b = (codes.astype(np.int32) - zero for codes, zero in zip(args, op.zero_points, strict=True))
            return _rounded(op, (a * b,), (op.multiplier,), 0)
        case ChannelTable(tables=tables):
            channel = np.arange(len(tables)).reshape(1, -1, *(1,) * (args[0].ndim - 2))
            return tables[channel, args[0].astype(np.int16) + _CODE]
        case Host():
            return _on_host(graph, op, args)
    raise TypeError(f"golden model does not implement {op!r}")


def _rounded(op, terms, multipliers, offset):
    return round_sum(terms, multipliers, offset, op.shift, zero_point=op.zero_point, low=op.low, high=op.high)


def _pool(reduce, view, dtype):
    """Windows [N, C, P, Q, R, S] reduced to [N, C, P, Q]: many small ones a position of the kernel at a time."""
    height, width, rows, columns = view.shape[2:]
    if rows * columns > height * width:
        return reduce.reduce(view, axis=(4, 5), dtype=dtype)
    result = view[..., 0, 0].astype(dtype, order="C")
    for k in range(1, rows * columns):
        reduce(result, view[(..., *divmod(k, columns))], out=result)
    return result


def _quantize(op, value, x):
    if op.exact:
        codes = (x ^ np.uint8(128)).view(np.int8) if value.unsigned else x
    else:
        codes = np.rint(x.astype(np.float32) / np.float32(value.scale)) + value.zero_point
        codes = saturate(codes, op.low, op.high)
    return folded(op, codes if op.move is None else op.move.apply(codes))


def _on_host(graph, op, args):
    """Image by image, as the model has been exported for one."""
    known = [graph.values[name].leading or 1 for name in op.inputs]
    count = len(args[0]) // known[0]
    images = [run_model(op.model, [batch[k * size:(k + 1) * size] if graph.values[name].leading else batch[k]
                                   for name, batch, size in zip(op.inputs, args, known, strict=True)])
              for k in range(count)]
    return np.concatenate([np.atleast_1d(image) for image in images])


def folded(op, codes):
    """Codes of a batch with kernel positions laid into the channels, if ``op`` says so."""
    if op.fold is None:
        return codes
    view = windows(op.fold, codes, op.fold.pad_code)
    count, channels, height, width, rows, columns = view.shape
    return view.transpose(0, 4, 5, 1, 2, 3).reshape(
        count, rows * columns * channels, height, width)


def _dequantize(op, source, codes):
    if op.move is not None:
        codes = op.move.apply(codes)
    if op.exact:
        return codes.view(np.uint8) ^ np.uint8(128) if source.unsigned else codes
    channel = (1, -1, *(1,) * (codes.ndim - 2))
    scale, bias = (np.asarray(v, np.float32).reshape(channel) for v in (op.scale, op.bias))
    # Wide: a code less its zero point has nine bits.
    steps = codes.astype(np.int64) - op.zero_point
    real = (steps.astype(np.float32) * scale + bias).astype(np.float32)
    return np.clip(real, np.float32(op.low), np.float32(op.high))
