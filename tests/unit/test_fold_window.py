from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from networks import conv_network, interpret, random_codes

from almac.compiler.emit import emit
from almac.compiler.graph import Fold, Planes, Quantize, Table, Value, verify
from almac.compiler.importer import import_model
from almac.compiler.layout import fold_words, from_words
from almac.compiler.passes.fold_window import fold_window
from almac.compiler.pipeline import run
from almac.compiler.schedule import schedule
from almac.hdl.config import ArrayConfig
from almac.sim.golden import evaluate

WINDOW = {"kernel": (3, 2), "strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 2, 1)}
IDENTITY = tuple(range(-128, 128))


def network(shape=(2, 5, 6), seed=0, **fields):
    return conv_network(np.random.default_rng(seed), shape=shape, planes=2, **{**WINDOW, **fields})


def fold(graph, lanes=16):
    return run(graph, [partial(fold_window, lanes=lanes)])


def test_folds_the_whole_kernel():
    before = network()
    conv = before.ops[1]
    after = fold(before, 12)
    trits = np.stack([conv.weight.trits[:, :, c, r, s] for r in range(3) for s in range(2) for c in range(2)],
                     axis=2)
    weight = Planes(trits=trits[..., None, None], alpha=conv.weight.alpha)
    assert after.ops[0] == Quantize(
        inputs=("image",), output="x", fold=Fold(**WINDOW, pad_code=conv.pad_code))
    assert after.ops[1] == replace(conv, weight=weight, strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0))
    assert after.values["x"] == replace(before.values["x"], shape=(12, 3, 5))


def test_folds_the_columns_where_the_kernel_is_too_wide():
    before = network()
    conv = before.ops[1]
    after = fold(before, 11)
    trits = np.stack([conv.weight.trits[:, :, c, :, s] for s in range(2) for c in range(2)], axis=2)
    assert after.ops[0].fold == Fold(kernel=(1, 2), strides=(1, 1), dilations=(1, 2), pads=(0, 0, 0, 1),
                                     pad_code=conv.pad_code)
    assert after.ops[1] == replace(conv, weight=Planes(trits=trits[..., None], alpha=conv.weight.alpha),
                                   strides=(2, 1), dilations=(1, 1), pads=(1, 0, 2, 0))
    assert after.values["x"].shape == (4, 5, 5)


def second_reader():
    graph = network()
    table = Table(inputs=("x",), output="t", table=IDENTITY)
    return graph.with_ops([graph.ops[0], table, *graph.ops[1:]], {"t": graph.values["x"]})


def not_an_input():
    graph = network()
    table = Table(inputs=("x",), output="t", table=IDENTITY)
    return graph.with_ops([graph.ops[0], table, replace(graph.ops[1], inputs=("t",)), *graph.ops[2:]],
                          {"t": graph.values["x"]})


def output_of_the_user():
    return replace(network(), outputs=("result", "x"))


@pytest.mark.parametrize("before", [
    second_reader(), not_an_input(), output_of_the_user(), network(scale_groups=2), network(groups=2),
    network(kernel=(1, 1)), network(shape=(9, 5, 6)),
], ids=["second reader", "not an input", "output of the user", "group scales", "groups", "1 x 1", "too wide"])
def test_keeps(before):
    verify(before)
    assert fold(before) == before


@pytest.mark.parametrize("lanes", [4, 11, 12, 64])
@pytest.mark.parametrize("seed", range(4))
def test_preserves_meaning(lanes, seed):
    before = network(seed=seed)
    after = fold(before, lanes)
    assert after != before
    x = np.random.default_rng(seed).normal(0, 60, (5, 2, 5, 6)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(before, {"image": x})["result"], evaluate(after, {"image": x})["result"])


@pytest.mark.parametrize(("lanes", "kernel"), [(12, (3, 2)), (4, (1, 2))])
def test_the_host_lays_codes_as_the_golden_model_does(lanes, kernel):
    graph = fold(network(seed=7), lanes)
    config = ArrayConfig(lanes=lanes, rows=4)
    program = emit(schedule(graph, config), graph)
    assert program.inputs[0].fold.kernel == kernel
    codes = random_codes(np.random.default_rng(2), (2, 5, 6))
    words = fold_words(codes, program.inputs[0])
    expected = evaluate(graph, {"image": codes[None].astype(np.float32)})
    np.testing.assert_array_equal(words, expected["x"][0])
    placement = program.placements["y"]
    activations = interpret(program, words).activations
    np.testing.assert_array_equal(
        from_words(activations[placement.address:][:placement.size], placement), expected["y"][0])


def test_signal():
    """One dimension: an image of one row."""
    before = network(shape=(2, 1, 9), kernel=(1, 3), strides=(1, 2), dilations=(1, 2), pads=(0, 1, 0, 1))
    flat = {"x": Value(shape=(2, 9)), "image": Value(shape=(2, 9), kind="real")}
    before = verify(replace(before, values={**before.values, **flat}))
    after = fold(before)
    assert after.values["x"].shape == (6, 1, 4)
    x = np.random.default_rng(0).normal(0, 60, (3, 2, 9)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(before, {"image": x})["result"], evaluate(after, {"image": x})["result"])


def test_from_onnx(parse):
    model = parse("""g (float[N,1,4,4] x) => (int8[N,2,4,4] y) <float s = {1}, int8 z = {-5}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, s)
        c = Conv<pads = [1, 1, 1, 1]>(d, v)
        y = QuantizeLinear(c, s, z) }""", w=np.arange(-9, 9, dtype=np.int8).reshape(2, 1, 3, 3))
    before = import_model(model)
    after = fold(before)
    assert after.ops[0].fold == Fold(kernel=(3, 3), strides=(1, 1), dilations=(1, 1), pads=(1, 1, 1, 1),
                                     pad_code=-5)
    x = np.random.default_rng(0).normal(0, 9, (4, 1, 4, 4)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(before, {"x": x})["y"], evaluate(after, {"x": x})["y"])
