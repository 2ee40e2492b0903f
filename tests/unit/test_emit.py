import itertools
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import networks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import conv_network, mixed_network, random_codes, result

from almac.compiler.emit import emit
from almac.compiler.graph import CompileError, Requantize, SumPool, Table
from almac.compiler.schedule import schedule
from almac.hdl.config import ArrayConfig

DIGEST_OF_A_PROGRAM = """
import numpy as np
from networks import mixed_network
from almac.compiler.emit import emit
from almac.compiler.schedule import schedule
from almac.hdl.config import ArrayConfig
graph = mixed_network(np.random.default_rng(7))
print(emit(schedule(graph, ArrayConfig(lanes=4, rows=4)), graph).digest)
"""


def compiled(graph, size="4x4x1", **depths):
    return emit(schedule(graph, ArrayConfig.parse(size, **depths)), graph)


def convolution(conv, codes):
    """Accumulators, position by position: int64[K, P, Q]."""
    weight = conv.weight.dense()
    count, per_group, *kernel = weight.shape
    padded = np.pad(codes.astype(np.int64), ((0, 0), conv.pads[0::2], conv.pads[1::2]),
                    constant_values=conv.pad_code)
    rows, columns = networks.conv_shape(codes.shape, conv)[1:]
    sums = np.zeros((count, rows, columns), np.int64)
    for k, p, q, r, s in itertools.product(range(count), range(rows), range(columns), *map(range, kernel)):
        first = k // (count // conv.groups) * per_group
        y = p * conv.strides[0] + r * conv.dilations[0]
        x = q * conv.strides[1] + s * conv.dilations[1]
        sums[k, p, q] += weight[k, :, r, s] @ padded[first:first + per_group, y, x]
    return sums


def requantized(requantize, sums):
    """Codes of accumulators, in fractions: Python rounds ties to even."""
    codes = np.zeros(sums.shape, np.int64)
    for place in np.ndindex(sums.shape):
        values = [np.broadcast_to(values, len(sums))[place[0]] for values in
                  (requantize.multiplier, requantize.offset, requantize.shift)]
        multiplier, offset, shift = map(int, values)
        exact = Fraction(int(sums[place]) * multiplier + offset, 1 << shift)
        codes[place] = min(max(round(exact) + requantize.zero_point, requantize.low), requantize.high)
    return codes


def check_convolution(graph, codes, program):
    """Compare a program for a graph of one convolution with the plain sums."""
    expected = convolution(graph.ops[1], codes)
    if isinstance(graph.ops[2], Requantize):
        expected = requantized(graph.ops[2], expected)
    np.testing.assert_array_equal(result(program, codes), expected)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2 ** 32), size=st.sampled_from(["1x1x1", "3x5x1", "4x4x1", "4x8x1", "8x4x1"]),
    channels=st.integers(1, 9), count=st.integers(1, 9), planes=st.integers(1, 2),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4), raw=st.booleans())
def test_convolutions(seed, size, channels, count, planes, kernel, strides, dilations, pads, raw):
    rng = np.random.default_rng(seed)
    graph = conv_network(rng, shape=(channels, 5, 6), count=count, kernel=kernel, strides=strides,
                         dilations=dilations, pads=pads, planes=planes, raw=raw)
    check_convolution(graph, random_codes(rng, (channels, 5, 6)), compiled(graph, size))


@pytest.mark.parametrize("size", ["1x1x1", "4x4x1", "3x5x1", "8x4x1"])
@pytest.mark.parametrize(("channels", "count", "groups"), [
    (6, 6, 6), (6, 12, 6), (8, 4, 2), (6, 9, 3), (10, 10, 5)])
def test_grouped_convolutions(size, channels, count, groups):
    rng = np.random.default_rng(groups)
    graph = conv_network(rng, shape=(channels, 4, 4), count=count, groups=groups, kernel=(3, 3),
                         pads=(1, 1, 1, 1), planes=2)
    check_convolution(graph, random_codes(rng, (channels, 4, 4)), compiled(graph, size))


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16])
@pytest.mark.parametrize(("channels", "scale_groups"), [(8, 2), (8, 4), (8, 8), (7, 3), (12, 2), (12, 4)])
def test_group_scales_narrower_and_wider_than_a_word(lanes, channels, scale_groups):
    rng = np.random.default_rng(scale_groups)
    graph = conv_network(rng, shape=(channels, 3, 3), count=5, kernel=(2, 2), planes=2,
                         scale_groups=scale_groups, raw=True)
    check_convolution(graph, random_codes(rng, (channels, 3, 3)), compiled(graph, f"{lanes}x4x1"))


def test_extreme_accumulators_leave_whole():
    # 1024 channels of -128 times -255: 26 bits and the sign, every byte of it.
    graph = conv_network(np.random.default_rng(0), shape=(1024, 1, 1), count=2, raw=True)
    conv = graph.ops[1]
    weight = replace(conv.weight, trits=np.full_like(conv.weight.trits, -1),
                     alpha=np.array([255, -255]).reshape(1, 2, 1))
    graph = graph.with_ops([graph.ops[0], replace(conv, weight=weight), graph.ops[2]])
    codes = np.full((1024, 1, 1), -128, np.int8)
    assert result(compiled(graph, "16x16x1"), codes).reshape(-1).tolist() == [33423360, -33423360]


@pytest.mark.parametrize("alpha", [256, -256])
def test_wider_group_scales_are_refused(alpha):
    graph = conv_network(np.random.default_rng(0))
    conv = graph.ops[1]
    wide = replace(conv, weight=replace(conv.weight, alpha=np.full_like(conv.weight.alpha, alpha)))
    with pytest.raises(CompileError, match=r"^group scales of up to 256; supported: 255$"):
        compiled(graph.with_ops([graph.ops[0], wide, *graph.ops[2:]]))


def test_pool_with_a_scale_for_each_channel():
    rng = np.random.default_rng(3)
    graph = conv_network(rng, shape=(6, 4, 4), count=6)
    pool = SumPool(inputs=("x",), output="sums", kernel=(2, 2), pads=(1, 0, 0, 1), pad_code=-7)
    codes = random_codes(rng, (6, 4, 4))
    padded = np.pad(codes.astype(np.int64), ((0, 0), (1, 0), (0, 1)), constant_values=-7)
    sums = sum(padded[:, r:r + 4, s:s + 4] for r in range(2) for s in range(2))
    graph = graph.with_ops([graph.ops[0], pool, *graph.ops[2:]])
    np.testing.assert_array_equal(result(compiled(graph), codes), requantized(graph.ops[2], sums))


@pytest.mark.parametrize("seed", [1, 2])
def test_streamed_weights_give_the_same_numbers(seed):
    rng = np.random.default_rng(seed)
    graph = conv_network(rng, shape=(6, 4, 4), count=23, kernel=(3, 3), planes=2, pads=(1, 1, 1, 1))
    codes = random_codes(rng, (6, 4, 4))
    resident = compiled(graph)
    streamed = compiled(graph, weight_depth=72)
    assert not resident.uploads
    assert {upload.space for upload in streamed.uploads} == {"WEIGHT", "SCALE", "PARAM"}
    np.testing.assert_array_equal(result(streamed, codes), result(resident, codes))
    # Taking turns in the two halves, each while the tile before the last one is done.
    weights = [upload for upload in streamed.uploads if upload.space == "WEIGHT"]
    assert [upload.address for upload in weights] == [0, 36, 0, 36, 0, 36]
    assert [upload.after for upload in weights] == [0, 0, 1, 2, 3, 4]
    assert [upload.grant for upload in weights] == [1, 2, 3, 4, 5, 6]


def test_any_memory_that_is_short_makes_all_of_them_streamed():
    graph = conv_network(np.random.default_rng(0), count=23)
    for depths in ({"weight_depth": 2}, {"scale_depth": 2}, {"param_depth": 8}):
        assert {upload.space for upload in compiled(graph, **depths).uploads} == {"WEIGHT", "SCALE", "PARAM"}


def test_emission_is_the_same_in_every_process():
    paths = os.pathsep.join([str(Path(networks.__file__).parent), *sys.path])
    digests = {
        subprocess.run([sys.executable, "-c", DIGEST_OF_A_PROGRAM], check=True, capture_output=True, text=True,
                       env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": hash_seed}).stdout.strip()
        for hash_seed in ("1", "2")}
    assert digests == {compiled(mixed_network(np.random.default_rng(7))).digest}


def test_two_bits_a_weight():
    graph = conv_network(np.random.default_rng(0), shape=(16, 4, 4), count=16, kernel=(3, 3))
    assert compiled(graph, "16x16x1").weight_bytes == 16 * 16 * 9 * 2 // 8


def test_tile_that_is_too_large_is_refused():
    graph = conv_network(np.random.default_rng(0), shape=(6, 4, 4), kernel=(3, 3), planes=2)
    with pytest.raises(CompileError, match=(
            r"^layer 'y': a tile of 4 output channels takes 36 words of weight memory, half of it has 16; use a "
            r"target whose weight_depth is at least 72$")):
        compiled(graph, weight_depth=32)
    assert compiled(graph, weight_depth=72)


def table_network(*tables):
    """Tables, one behind the other."""
    graph = conv_network(np.random.default_rng(0))
    names = ["x", *(f"t{index}" for index in range(len(tables)))]
    ops = [Table(inputs=(source,), output=output, table=table)
           for source, output, table in zip(names, names[1:], tables, strict=False)]
    return graph.with_ops([graph.ops[0], *ops, replace(graph.ops[-1], inputs=(names[-1],))],
                          {name: graph.values["x"] for name in names})


def random_table(rng):
    return tuple(random_codes(rng, 256).tolist())


def test_tables_behind_each_other_are_all_looked_up():
    rng = np.random.default_rng(1)
    tables = [random_table(rng) for _ in range(3)]
    codes = random_codes(rng, (3, 4, 5))
    expected = codes
    for table in tables:
        expected = np.array(table)[expected.astype(int) + 128]
    np.testing.assert_array_equal(result(compiled(table_network(*tables), tables=3), codes), expected)


def test_too_many_tables_are_refused():
    rng = np.random.default_rng(0)
    graph = table_network(*(random_table(rng) for _ in range(3)))
    with pytest.raises(CompileError, match=r"^the model needs 3 tables, the array has 2; use a target with more"):
        compiled(graph, tables=2)
    assert len(compiled(graph, tables=3).images["TABLE"]) == 768


def test_equal_tables_are_stored_once():
    table = random_table(np.random.default_rng(0))
    assert len(compiled(table_network(table, table), tables=1).images["TABLE"]) == 256


def test_too_many_commands_are_refused():
    graph = conv_network(np.random.default_rng(0), count=40)
    with pytest.raises(CompileError, match=(
            r"^commands take \d+ words of command memory, the array has 32; use a target with a deeper one$")):
        compiled(graph, command_depth=32)


@pytest.mark.parametrize(("shape", "field"), [((1, 1, 2048), "width"), ((1, 2048, 1), "height")])
def test_image_that_is_too_large_for_a_command_is_refused(shape, field):
    graph = conv_network(np.random.default_rng(0), shape=shape, count=1)
    with pytest.raises(CompileError, match=rf"^layer 'y' is too large for one command: {field} = 2048 does not "):
        compiled(graph, "1x1x1", act_depth=65536)


def test_too_deep_is_refused():
    graph = conv_network(np.random.default_rng(0), shape=(4, 4, 4))
    with pytest.raises(CompileError, match=r"^layer 'conv' \(Conv\): 'y' takes 16 words of activation memory"):
        compiled(graph, act_depth=31)


def test_prediction_grows_with_every_command():
    program = compiled(mixed_network(np.random.default_rng(0)))
    assert list(program.ends) == sorted(set(program.ends))
    assert sum(layer.cycles for layer in program.layers) == program.cycles == program.ends[-1]
    assert 0 < program.utilisation < 1


def test_ports_name_what_the_user_gives_and_gets():
    program = compiled(conv_network(np.random.default_rng(0)))
    assert [(port.name, port.value) for port in program.inputs] == [("image", "x")]
    assert [(port.name, port.value) for port in program.outputs] == [("result", "y")]
