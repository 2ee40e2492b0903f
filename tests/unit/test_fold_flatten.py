from dataclasses import replace

import numpy as np
import pytest

from almac.compiler.graph import Conv, Graph, Planes, Reshape, Table, Value
from almac.compiler.importer import import_model
from almac.compiler.passes.fold_flatten import fold_flatten
from almac.compiler.pipeline import run
from almac.compiler.weights import to_planes
from almac.sim.golden import evaluate

WEIGHT = to_planes(np.random.default_rng(0).integers(-4, 5, (3, 12, 1, 1)))
FLATTEN = Reshape(inputs=("x",), output="f")
MATRIX = Conv(inputs=("f",), output="y", weight=WEIGHT)
VALUES = {"x": Value(shape=(2, 2, 3)), "f": Value(shape=(12,)), "y": Value(shape=(3,), kind="acc")}


def graph(*ops, outputs=("y",), values=VALUES):
    return Graph(ops=(), values={}, inputs=("x",), outputs=outputs).with_ops(ops, values)


def test_folds():
    after = run(graph(FLATTEN, MATRIX), [fold_flatten])
    kernel = Planes(trits=WEIGHT.trits.reshape(2, 3, 2, 2, 3), alpha=WEIGHT.alpha)
    assert after.ops == (replace(MATRIX, inputs=("x",), weight=kernel),)
    assert "f" not in after.values


@pytest.mark.parametrize("before", [
    graph(FLATTEN, replace(MATRIX, pads=(0, 0, 1, 1)), values={**VALUES, "y": Value(shape=(3, 2, 2), kind="acc")}),
    graph(FLATTEN, replace(MATRIX, weight=Planes(trits=WEIGHT.trits, alpha=np.repeat(WEIGHT.alpha, 3, axis=2)))),
    graph(FLATTEN, MATRIX, values={**VALUES, "x": Value(shape=(12,))}),
    graph(FLATTEN, Table(inputs=("f",), output="y", table=tuple(range(-128, 128))),
          values={**VALUES, "y": Value(shape=(12,))}),
    graph(MATRIX, values={**VALUES, "f": Value(shape=(12,))}).with_ops([replace(MATRIX, inputs=("x",))], {
        "x": Value(shape=(12,))}),
], ids=["padding", "group scales", "not an image", "not a product", "no reshape"])
def test_keeps(before):
    assert run(before, [fold_flatten]) == before


def test_keeps_a_reshape_with_another_reader():
    table = Table(inputs=("f",), output="z", table=tuple(range(-128, 128)))
    after = run(graph(FLATTEN, MATRIX, table, outputs=("y", "z"), values={**VALUES, "z": Value(shape=(12,))}),
                [fold_flatten])
    assert [op.inputs for op in after.ops] == [("x",), ("x",), ("f",)]


def test_preserves_meaning():
    before = graph(FLATTEN, MATRIX)
    x = np.random.default_rng(1).integers(-128, 128, (64, 2, 2, 3)).astype(np.int8)
    after = fold_flatten(before)
    np.testing.assert_array_equal(evaluate(before, {"x": x})["y"], evaluate(after, {"x": x})["y"])


def test_from_onnx(parse):
    model = parse("""g (int8[N,2,2,3] x) => (float[N,1] y) <float one = {1}> {
        d = DequantizeLinear(x, one)
        f = Flatten(d)
        v = DequantizeLinear(w, one)
        y = MatMul(f, v) }""", w=np.arange(-6, 6, dtype=np.int8).reshape(12, 1))
    after = run(import_model(model), [fold_flatten])
    assert [type(op).__name__ for op in after.ops] == ["Quantize", "Conv", "Dequantize"]
    assert after.ops[1].weight.dense().reshape(-1).tolist() == list(range(-6, 6))
