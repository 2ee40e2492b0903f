"""How fast the golden model is: ResNet-50 of 8-bit weights, against onnxruntime in float32 on the same cores.

``python -m almac.sim.benchmark`` prints the median times of one image, and their ratio. The float network is that
of the ``onnx`` package; the integer one has the same layers, random weights, and codes that use their range.
"""

import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from almac.compiler.graph import Add, Conv, Dequantize, Graph, MaxPool, Quantize, Requantize, SumPool, Value, verify
from almac.compiler.scales import fixed_point
from almac.compiler.weights import to_planes
from almac.sim.golden import apply, evaluate

__all__ = ["resnet50"]

#: Repetitions of either, alternating, after one to warm up.
_REPEATS = 15

#: Blocks, channels within and behind them, and stride of the first, for each stage.
_STAGES = ((3, 64, 256, 1), (4, 128, 512, 2), (6, 256, 1024, 2), (3, 512, 2048, 2))

#: Steps of the output that one standard deviation of a layer's sums spans.
_SPREAD = 40

#: Zero point behind a rectifier: saturation of codes at -128 is the rectifier.
_RECTIFIED = -128


def resnet50(image):
    """ResNet-50 with random 8-bit weights, requantized so that the codes of ``image`` use their range: Graph."""
    rng = np.random.default_rng(0)
    values = {"image": Value(shape=image.shape[1:], kind="real")}
    graph = Graph(ops=(), values=values, inputs=("image",), outputs=())
    known = {"image": image}

    def add(op, shape, kind="code", scale=1.0):
        nonlocal graph
        value = Value(shape=shape, kind=kind, scale=scale, zero_point=getattr(op, "zero_point", 0))
        graph = graph.with_ops((*graph.ops, op), {op.output: value})
        graph = replace(graph, outputs=(op.output,))
        known[op.output] = apply(graph, op, [known[name] for name in op.inputs])
        return op.output

    def requantize(acc, zero_point):
        bias = -np.rint(known[acc].mean(axis=(0, 2, 3))).astype(np.int64)
        spread = (known[acc] + bias[:, None, None]).std()
        multiplier, shift = fixed_point(np.full(len(bias), _SPREAD / spread, np.float32))
        return add(Requantize(inputs=(acc,), output=f"{acc}/codes", multiplier=multiplier, offset=bias * multiplier,
                              shift=shift, zero_point=zero_point), graph.values[acc].shape)

    def conv(x, count, kernel, stride=1):
        channels, size, _ = graph.values[x].shape
        weight = rng.integers(-127, 128, (count, channels, kernel, kernel))
        op = Conv(inputs=(x,), output=f"conv{len(graph.ops)}", weight=to_planes(weight), strides=(stride, stride),
                  pads=(kernel // 2,) * 4, pad_code=graph.values[x].zero_point)
        return add(op, (count, size // stride, size // stride), "acc")

    x = add(Quantize(inputs=("image",), output="x"), image.shape[1:], scale=1 / _SPREAD)
    x = requantize(conv(x, 64, 7, 2), _RECTIFIED)
    x = add(MaxPool(inputs=(x,), output="pool", kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)), (64, 56, 56))
    for blocks, inner, outer, first in _STAGES:
        for block in range(blocks):
            stride = first if block == 0 else 1
            branch = requantize(conv(x, inner, 1), _RECTIFIED)
            branch = requantize(conv(branch, inner, 3, stride), _RECTIFIED)
            branch = requantize(conv(branch, outer, 1), 0)
            straight = requantize(conv(x, outer, 1, stride), 0) if block == 0 else x
            shape = graph.values[branch].shape
            # About 0.7 of a step each.
            a, b = 11744051, 12345679
            x = add(Add(inputs=(branch, straight), output=f"add{len(graph.ops)}", multipliers=(a, b), left=0,
                        offset=-b * graph.values[straight].zero_point, shift=24, zero_point=_RECTIFIED), shape)
    total = add(SumPool(inputs=(x,), output="sum", kernel=(7, 7)), (2048, 1, 1), "acc")
    # Each channel has a single sum: the offset is not its own mean.
    x = add(Requantize(inputs=(total,), output="mean", multiplier=np.array([11184811]), offset=np.array([0]),
                       shift=np.array([29])), (2048, 1, 1))
    add(Dequantize(inputs=(conv(x, 1000, 1),), output="y", scale=np.float32(1e-4), bias=np.zeros(1, np.float32)),
        (1000,), "real")
    return verify(graph)


def _seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main():
    image = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    path = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    graph = resnet50(image)
    calls = (lambda: session.run(None, {name: image}), lambda: evaluate(graph, {"image": image}))
    times = [[_seconds(call) for call in calls] for _ in range(_REPEATS + 1)][1:]
    oracle, golden = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    print(f"onnxruntime, float32: {oracle:.0f} ms; golden: {golden:.0f} ms; ratio {golden / oracle:.2f}")


if __name__ == "__main__":
    main()
