"""Lay the kernel of a first layer into the lanes."""

from dataclasses import replace
from typing import Any

import numpy as np

from almac.compiler.graph import Conv, Fold, Graph, Op, Planes, Quantize

__all__ = ["fold_window"]


def fold_window(graph: Graph, *, lanes: int) -> Graph:
    """Fold the kernel, or its columns, of a convolution with few input channels into the channels.

    Before
    ------
    ::

        q = Quantize(x)   # (C, H, W)
        y = Conv(q)       # kernel R x S

    After
    -----
    ::

        q = Quantize(x, fold)   # (R*S*C, P, Q) where that fits into a word, else (S*C, H, Q)
        y = Conv(q)             # kernel 1 x 1, or R x 1

    An image of one or three channels leaves most lanes of a word idle: a word a position is read for every
    kernel position, and the 8-bit weights of a first layer multiply that by five or six planes. The host
    copies codes (it has them in hand anyway) and computes nothing. Only inputs of the model with one
    convolution as their only reader are folded, and only where the words become no wider than the lanes.
    """
    folded: dict[str, Op] = {}
    values = {}
    for op in graph.ops:
        match op, graph.producer(op.inputs[0]):
            case Conv(groups=1) as conv, Quantize() as quantize if (
                graph.is_private(quantize.output) and conv.weight.alpha.shape[2] == 1
            ):
                new = _fold(graph, conv, quantize, lanes)
                if new is not None:
                    folded[conv.output], folded[quantize.output], shape = new
                    values[quantize.output] = replace(graph.values[quantize.output], shape=shape)
    return graph.with_ops((folded.get(op.output, op) for op in graph.ops), values)


def _fold(graph: Graph, conv: Conv, quantize: Quantize, lanes: int,
          ) -> tuple[Conv, Quantize, tuple[int, int, int]] | None:
    planes, count, channels, rows, columns = conv.weight.trits.shape
    height = graph.values[quantize.output].shape[1:-1]
    positions = (1, 1, *graph.values[conv.output].shape[1:])[-2:]
    (sh, sw), (dh, dw), (top, left, bottom, right) = conv.strides, conv.dilations, conv.pads
    trits = conv.weight.trits.transpose(0, 1, 3, 4, 2)
    if 1 < rows * columns and rows * columns * channels <= lanes:
        fold = Fold(kernel=(rows, columns), strides=conv.strides, dilations=conv.dilations,
                    pads=conv.pads, pad_code=conv.pad_code)
        trits = trits.reshape(planes, count, rows * columns * channels, 1, 1)
        rest: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
        shape = (rows * columns * channels, *positions)
    elif 1 < columns and columns * channels <= lanes:
        fold = Fold(kernel=(1, columns), strides=(1, sw), dilations=(1, dw),
                    pads=(0, left, 0, right), pad_code=conv.pad_code)
        trits = trits.reshape(planes, count, rows, columns * channels).transpose(0, 1, 3, 2)[..., None]
        rest = {"strides": (sh, 1), "dilations": (dh, 1), "pads": (top, 0, bottom, 0)}
        shape = (columns * channels, (1, *height)[-1], positions[1])
    else:
        return None
    weight = Planes(trits=np.ascontiguousarray(trits), alpha=conv.weight.alpha)
    return replace(conv, weight=weight, **rest), replace(quantize, fold=fold), shape
