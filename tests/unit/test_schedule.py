import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import conv_network, mixed_network, random_planes

from almac.compiler.graph import CompileError, Conv, Dequantize, Graph, Quantize, Requantize, Reshape, Value
from almac.compiler.schedule import schedule
from almac.hdl.command import Opcode
from almac.hdl.config import ArrayConfig


def tiles_of(graph, config):
    """Tiles of the first layer."""
    return schedule(graph, config).layers[0].tiles


def weights_of(tile, words, lanes):
    """Weights that the array multiplies with, over a whole word of channels: int64[rows, C, R, S]."""
    kernel, used = tile.counts[4:6], tile.counts[6]
    alpha = np.repeat(tile.alpha, tile.scale_beats, axis=0)
    scaled = tile.trits.astype(np.int64) * alpha[:, :, None]
    scaled = scaled.reshape(-1, *kernel, used, tile.trits.shape[1], lanes).sum(axis=0)
    scaled = scaled.transpose(3, 2, 4, 0, 1).reshape(tile.trits.shape[1], used * lanes, *kernel)
    # Words of weights that are all zero are not read.
    before = tile.start[0] % words if words > 1 else 0
    return np.pad(scaled, ((0, 0), (before * lanes, (words - used - before) * lanes), (0, 0), (0, 0)))


@given(
    seed=st.integers(0, 2 ** 32), lanes=st.integers(1, 5), rows=st.integers(1, 5),
    channels=st.integers(1, 11), count=st.integers(1, 9), planes=st.integers(1, 3), data=st.data(),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_tiles_hold_the_weights(seed, lanes, rows, channels, count, planes, data, kernel):
    rng = np.random.default_rng(seed)
    scale_groups = data.draw(st.sampled_from([
        groups for groups in range(1, channels + 1) if -(-channels // -(-channels // groups)) == groups]))
    graph = conv_network(rng, shape=(channels, 4, 4), count=count, kernel=kernel, planes=planes,
                         scale_groups=scale_groups)
    words = -(-channels // lanes)
    got = np.concatenate([weights_of(tile, words, lanes)
                          for tile in tiles_of(graph, ArrayConfig(lanes=lanes, rows=rows))])
    expected = graph.ops[1].weight.dense()
    # Rows of a tile that have no output channel, lanes of a word that have no input channel.
    np.testing.assert_array_equal(got[:count, :channels], expected)
    assert not got[count:].any()
    assert not got[:, channels:].any()


def test_as_many_tiles_as_rows_need():
    rng = np.random.default_rng(0)
    tiles = tiles_of(conv_network(rng, count=11), ArrayConfig(lanes=4, rows=4))
    assert [len(tile.params.multiplier) for tile in tiles] == [4, 4, 3]
    assert [tile.out_offset for tile in tiles] == [0, 1, 2]
    assert {tile.out_step for tile in tiles} == {3}


def test_rows_that_fill_half_a_word():
    rng = np.random.default_rng(0)
    config = ArrayConfig(lanes=8, rows=4, post_lanes=1)
    tiles = tiles_of(conv_network(rng, count=12), config)
    assert [(tile.out_offset, tile.part) for tile in tiles] == [(0, 0), (0, 4), (1, 0)]


@pytest.mark.parametrize(("scale_groups", "beats", "scale_beats"), [
    (1, 2 * 9 * 2, 9 * 2),   # one scale for all channels: a word of scales for each plane
    (2, 2 * 9 * 2, 1),       # groups of four channels: a word each
    (4, 4 * 9 * 2, 1),       # groups of two channels: two in a word, twice the beats
    (8, 8 * 9 * 2, 1),
])
def test_groups_narrower_than_a_word_cost_beats(scale_groups, beats, scale_beats):
    graph = conv_network(np.random.default_rng(0), shape=(8, 4, 4), kernel=(3, 3), planes=2,
                         scale_groups=scale_groups)
    [tile] = tiles_of(graph, ArrayConfig(lanes=4, rows=4))
    assert (tile.beats, tile.scale_beats) == (beats, scale_beats)
    assert len(tile.alpha) * tile.scale_beats == tile.beats


def test_grouped_convolution_reads_only_its_channels():
    rng = np.random.default_rng(0)
    graph = conv_network(rng, shape=(8, 4, 4), count=8, groups=2)
    tiles = tiles_of(graph, ArrayConfig(lanes=4, rows=4))
    assert [(tile.start[0], tile.counts[6]) for tile in tiles] == [(0, 1), (1, 1)]


def test_layer_accounts():
    rng = np.random.default_rng(0)
    plan = schedule(mixed_network(rng), ArrayConfig(lanes=4, rows=4))
    assert [(layer.kind, layer.output) for layer in plan.layers] == [
        ("Conv", "y"), ("MaxPool", "pooled"), ("Add", "mapped"), ("SumPool", "mean"), ("Conv", "scores")]
    assert [layer.macs for layer in plan.layers] == [2 * 5 * 27 * 24, 0, 0, 0, 2 * 5 * 5]
    assert {tile.opcode for tile in plan.layers[2].tiles} == {Opcode.ADD}


def test_accumulators_leave_in_four_passes():
    tiles = tiles_of(conv_network(np.random.default_rng(0), raw=True), ArrayConfig(lanes=4, rows=4))
    assert [set(tile.params.shift) for tile in tiles] == [{0}, {8}, {16}, {24}]
    assert all(tile.raw for tile in tiles)


def image_graph(ops, shapes):
    """Graph from ``image`` to ``result``; values are codes but for those named like accumulators."""
    values = {name: Value(shape=shape, kind="acc" if name.startswith("acc") else "code")
              for name, shape in shapes.items()}
    values["image"] = Value(shape=shapes["x"], kind="real")
    values["result"] = Value(shape=(1,), kind="real")
    ops = (Quantize(inputs=("image",), output="x"), *ops)
    return Graph(ops=ops, values=values, inputs=("image",), outputs=("result",))


def out(name):
    return Dequantize(inputs=(name,), output="result", scale=np.array(1.0), bias=np.array(0.0))


ONE = {"multiplier": np.array([1]), "offset": np.array([0]), "shift": np.array([0])}


def test_reshape_that_moves_codes_is_refused():
    graph = image_graph([Reshape(inputs=("x",), output="y", source="flatten"), out("y")],
                        {"x": (3, 2, 2), "y": (12,)})
    with pytest.raises(CompileError, match=r"node 'flatten' \(Reshape, .*\): \(3, 2, 2\) to \(12,\) moves codes"):
        schedule(graph, ArrayConfig())


def test_reshape_of_one_position_is_another_name():
    graph = image_graph([Reshape(inputs=("x",), output="y"), Reshape(inputs=("y",), output="z"), out("z")],
                        {"x": (12, 1, 1), "y": (12,), "z": (12, 1)})
    assert schedule(graph, ArrayConfig()).aliases == {"y": "x", "z": "x"}


def test_shared_accumulators_are_refused():
    weight = random_planes(np.random.default_rng(0), (2, 3, 1, 1))
    graph = image_graph([
        Conv(inputs=("x",), output="acc", source="conv", weight=weight),
        Requantize(inputs=("acc",), output="y", **ONE), Requantize(inputs=("acc",), output="z", **ONE),
        out("y")], {"x": (3, 2, 2), "acc": (2, 2, 2), "y": (2, 2, 2), "z": (2, 2, 2)})
    with pytest.raises(CompileError, match=r"^1 node .*\nnode 'conv' .*: its sums have more than one reader"):
        schedule(graph, ArrayConfig())


def test_group_scales_in_grouped_convolutions_are_refused():
    graph = conv_network(np.random.default_rng(0), shape=(8, 4, 4), groups=2, scale_groups=2)
    with pytest.raises(CompileError, match=r"node 'conv' \(Conv, .*\): groups of channels and group scales"):
        schedule(graph, ArrayConfig())


def test_every_problem_is_named_at_once():
    graph = image_graph([
        Reshape(inputs=("x",), output="y", source="first"), Reshape(inputs=("y",), output="z", source="second"),
        out("z")], {"x": (3, 2, 2), "y": (12,), "z": (2, 2, 3)})
    with pytest.raises(CompileError) as caught:
        schedule(graph, ArrayConfig())
    assert [line.split()[1] for line in str(caught.value).splitlines()[1:]] == ["'first'", "'second'"]


def test_op_without_a_command_is_refused():
    graph = image_graph([Requantize(inputs=("x",), output="y", source="rescale", **ONE), out("y")],
                        {"x": (3, 2, 2), "y": (3, 2, 2)})
    with pytest.raises(CompileError, match=r"node 'rescale' \(Requantize, .*\): the device has no command for it$"):
        schedule(graph, ArrayConfig())
