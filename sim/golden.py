"""The golden model: every op of the graph in NumPy, bit for bit; the definition of a right answer."""

import numpy as np

from almac.compiler.graph import (
    Add,
    Conv,
    Dequantize,
    MaxPool,
    Pool,
    Quantize,
    Requantize,
    Reshape,
    SumPool,
    Table,
    Transpose,
)
from almac.sim.rounding import saturate, shift_half_even

__all__ = ["apply", "convolve", "evaluate", "folded"]

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
        Every value: codes as int8, accumulators as int64, real numbers as float32.
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
            return convolve(op, args[0]).reshape(-1, *value.shape)
        case Requantize():
            channel = (-1, *(1,) * (args[0].ndim - 2))
            multiplier, offset, shift = (
                np.asarray(v, np.int64).reshape(channel)
                for v in (op.multiplier, op.offset, op.shift))
            codes = shift_half_even(args[0] * multiplier + offset, shift) + op.zero_point
            return saturate(codes, op.low, op.high)
        case MaxPool():
            return _windows(op, args[0], -_CODE, value.shape).max(axis=(-2, -1))
        case SumPool():
            windows = _windows(op, args[0], op.pad_code, value.shape)
            return windows.sum(axis=(-2, -1), dtype=np.int64)
        case Add():
            a, b = (codes.astype(np.int64) for codes in args)
            total = (a << op.left) * op.multipliers[0] + b * op.multipliers[1] + op.offset
            return saturate(shift_half_even(total, op.shift) + op.zero_point, op.low, op.high)
        case Table():
            return np.array(op.table, np.int8)[args[0].astype(np.int16) + _CODE]
        case Reshape():
            return args[0].reshape(-1, *value.shape)
        case Transpose(order=order):
            return args[0].transpose(0, *(k + 1 for k in order))
    raise TypeError(f"golden model does not implement {op!r}")


def _quantize(op, value, x):
    if op.exact:
        codes = (x ^ np.uint8(128)).view(np.int8) if value.unsigned else x
    else:
        codes = np.rint(x.astype(np.float32) / np.float32(value.scale)) + value.zero_point
        codes = saturate(codes, -128, 127)
    return folded(op, codes)


def folded(op, codes):
    """Codes of a batch with kernel positions laid into the channels, if ``op`` says so."""
    if op.fold is None:
        return codes
    windows = _windows(op.fold, codes, op.fold.pad_code, None)
    count, channels, height, width, rows, columns = windows.shape
    return windows.transpose(0, 4, 5, 1, 2, 3).reshape(
        count, rows * columns * channels, height, width)


def _dequantize(op, source, codes):
    if op.exact:
        return codes.view(np.uint8) ^ np.uint8(128) if source.unsigned else codes
    channel = (1, -1, *(1,) * (codes.ndim - 2))
    scale, bias = (np.asarray(v, np.float32).reshape(channel) for v in (op.scale, op.bias))
    # Wide: a code less its zero point has nine bits.
    steps = codes.astype(np.int64) - op.zero_point
    return (steps.astype(np.float32) * scale + bias).astype(np.float32)


def _windows(op, x, pad, shape):
    """Windows of an image: [N, C, P, Q, R, S]; as many positions as ``shape`` says, or as fit."""
    x = x.reshape(x.shape[0], x.shape[1], *(1, 1, *x.shape[2:])[-2:])
    (sh, sw), (dh, dw), (top, left, bottom, right) = op.strides, op.dilations, op.pads
    rows, columns = op.kernel
    span = (dh * (rows - 1) + 1, dw * (columns - 1) + 1)
    if shape is not None:
        # Positions may hang over the pads (ceil_mode).
        positions = (1, 1, *shape[1:])[-2:]
        bottom = max(bottom, (positions[0] - 1) * sh + span[0] - top - x.shape[2])
        right = max(right, (positions[1] - 1) * sw + span[1] - left - x.shape[3])
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=pad)
    windows = np.lib.stride_tricks.sliding_window_view(padded, span, axis=(2, 3))
    windows = windows[:, :, ::sh, ::sw, ::dh, ::dw]
    return windows if shape is None else windows[:, :, :positions[0], :positions[1]]


def convolve(op, x, weight=None):
    """Accumulators of a batch of codes, through matrix products of floats that are wide enough to be exact.

    Parameters
    ----------
    weight : int64[K, C, R, S] or None
        Other weights than those of ``op``.

    Returns
    -------
    int64[N, K, P, Q]
    """
    weight = op.weight.dense() if weight is None else weight
    count, per_group, rows, columns = weight.shape
    greatest = int(np.abs(weight).sum(axis=(1, 2, 3)).max()) * 2 * _CODE
    dtype = np.float32 if greatest < 1 << 24 else np.float64
    assert greatest < 1 << 53, f"{op.output!r}: sums up to {greatest} are not exact in float64"

    window = Pool(inputs=op.inputs, output=op.output, kernel=(rows, columns), strides=op.strides,
                  dilations=op.dilations, pads=op.pads)
    windows = _windows(window, x, op.pad_code, None)
    batch, _, height, width = windows.shape[:4]
    group_rows = count // op.groups
    parts = []
    for group in range(op.groups):
        channels = slice(group * per_group, (group + 1) * per_group)
        columns_ = windows[:, channels].transpose(0, 2, 3, 1, 4, 5).reshape(
            -1, per_group * rows * columns).astype(dtype)
        matrix = weight[group * group_rows:(group + 1) * group_rows].reshape(group_rows, -1)
        parts.append(columns_ @ matrix.T.astype(dtype))
    acc = np.concatenate(parts, axis=1).reshape(batch, height, width, count)
    return acc.transpose(0, 3, 1, 2).astype(np.int64)

