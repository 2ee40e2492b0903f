"""Small networks with random numbers, for tests of everything between the schedule and the results."""

import numpy as np

from almac.compiler.graph import (
    Add,
    Conv,
    Dequantize,
    Graph,
    MaxPool,
    Planes,
    Quantize,
    Requantize,
    SumPool,
    Table,
    Value,
    verify,
)
from almac.compiler.layout import from_words, to_words
from almac.sim.interpreter import Interpreter

__all__ = ["conv_network", "interpret", "mixed_network", "random_codes", "random_planes", "requantization",
           "result"]


def random_codes(rng, shape):
    """Codes over the whole range: int8[shape]."""
    return rng.integers(-128, 128, shape).astype(np.int8)


def random_planes(rng, shape, *, planes=1, scale_groups=1, most=255):
    """Weights of the shape (K, C, R, S)."""
    return Planes(trits=rng.integers(-1, 2, (planes, *shape)).astype(np.int8),
                  alpha=rng.integers(-most, most + 1, (planes, shape[0], scale_groups)))


def requantization(rng, count):
    """Parameters that spread accumulators of small layers over the codes."""
    return {"multiplier": rng.integers(1 << 23, 1 << 24, count), "shift": rng.integers(26, 32, count),
            "offset": rng.integers(-1 << 30, 1 << 30, count), "zero_point": int(rng.integers(-5, 5))}


def conv_network(rng, *, shape=(3, 4, 5), count=4, kernel=(1, 1), strides=(1, 1), dilations=(1, 1),
                 pads=(0, 0, 0, 0), groups=1, planes=1, scale_groups=1, raw=False):
    """One convolution: codes ``x`` to codes ``y``, or to accumulators ``sums`` if ``raw``."""
    weight = random_planes(rng, (count, shape[0] // groups, *kernel), planes=planes,
                           scale_groups=scale_groups)
    conv = Conv(inputs=("x",), output="sums", source="conv", weight=weight, strides=strides,
                dilations=dilations, pads=pads, groups=groups, pad_code=int(rng.integers(-128, 128)))
    return verify(_closed(shape, [conv], conv_shape(shape, conv), rng, raw=raw))


def mixed_network(rng, *, shape=(3, 4, 6), count=5, kernel=(3, 3), strides=(1, 1), dilations=(1, 1),
                  pads=(1, 1, 1, 1), planes=2):
    """Something of everything that the array does, one after the other."""
    conv = Conv(inputs=("x",), output="sums", source="conv", strides=strides, dilations=dilations,
                weight=random_planes(rng, (count, shape[0], *kernel), planes=planes), pads=pads, pad_code=3)
    middle = conv_shape(shape, conv)
    ops = (
        Quantize(inputs=("image",), output="x"),
        conv,
        Requantize(inputs=("sums",), output="y", **requantization(rng, count)),
        MaxPool(inputs=("y",), output="pooled", kernel=(3, 3), pads=(1, 1, 1, 1)),
        Add(inputs=("y", "pooled"), output="added", multipliers=(12345678, 9999999), left=2,
            offset=-77777777, shift=25, zero_point=-3, low=-100),
        Table(inputs=("added",), output="mapped", table=tuple(random_codes(rng, 256).tolist())),
        SumPool(inputs=("mapped",), output="total", kernel=middle[1:]),
        Requantize(inputs=("total",), output="mean", multiplier=np.array([(1 << 23) + 12345]),
                   offset=np.array([123456]), shift=np.array([27])),
        Conv(inputs=("mean",), output="scores", weight=random_planes(rng, (5, count, 1, 1), planes=2)),
        Dequantize(inputs=("scores",), output="result", scale=np.ones(5), bias=np.zeros(5)),
    )
    values = {
        "image": Value(shape=shape, kind="real"), "x": Value(shape=shape),
        "sums": Value(shape=middle, kind="acc"), "total": Value(shape=(count, 1, 1), kind="acc"),
        "mean": Value(shape=(count, 1, 1)), "scores": Value(shape=(5, 1, 1), kind="acc"),
        "result": Value(shape=(5, 1, 1), kind="real"),
        **{name: Value(shape=middle) for name in ("y", "pooled", "added", "mapped")},
    }
    return verify(Graph(ops=ops, values=values, inputs=("image",), outputs=("result",)))


def conv_shape(shape, conv):
    """Shape of the output of a convolution."""
    top, left, bottom, right = conv.pads
    kernel = conv.weight.trits.shape[3:]
    padded = (shape[1] + top + bottom, shape[2] + left + right)
    return (conv.weight.trits.shape[1], *(
        (size - dilation * (k - 1) - 1) // stride + 1
        for size, k, stride, dilation in zip(padded, kernel, conv.strides, conv.dilations, strict=True)))


def _closed(shape, ops, middle, rng, *, raw):
    """Graph of ops from ``x`` to ``sums``, with a quantizer before and a dequantizer behind."""
    last = "sums" if raw else "y"
    ops = [Quantize(inputs=("image",), output="x"), *ops]
    if not raw:
        ops.append(Requantize(inputs=("sums",), output="y", **requantization(rng, middle[0])))
    ops.append(Dequantize(inputs=(last,), output="result", scale=np.array(1.0), bias=np.array(0.0)))
    values = {"image": Value(shape=shape, kind="real"), "x": Value(shape=shape),
              "sums": Value(shape=middle, kind="acc"), "y": Value(shape=middle),
              "result": Value(shape=middle, kind="real")}
    graph = Graph(ops=(), values={}, inputs=("image",), outputs=("result",))
    return graph.with_ops(ops, values)


def interpret(program, codes):
    """Interpreter that has run a program on codes of its input ``x``."""
    interpreter = Interpreter(program)
    words = to_words(codes, program.config.lanes)
    interpreter.activations[program.placements["x"].address:][:len(words)] = words
    interpreter.run()
    return interpreter


def result(program, codes):
    """Output of a program: int8[C, H, W], or accumulators."""
    placement = program.placements[program.outputs[0].value]
    activations = interpret(program, codes).activations
    return from_words(activations[placement.address:][:placement.size * placement.parts], placement)
