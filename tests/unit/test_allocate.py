from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almac.compiler.allocate import allocate
from almac.compiler.graph import CompileError, Dequantize, Quantize
from almac.compiler.schedule import Layer, Schedule
from almac.compiler.tiles import Layout, Params, Tile
from almac.hdl.command import Opcode
from almac.hdl.config import ArrayConfig

PARAMS = Params(multiplier=np.array([1]), offset=np.array([0]), shift=np.array([0]))


def tile(inputs, output):
    return Tile(opcode=Opcode.ADD, inputs=inputs, output=output, counts=(1,) * 7, address=(0,) * 7,
                y=(0,) * 7, x=(0,) * 7, height=1, width=1, params=PARAMS, out_step=1, drain=1)


def network(sizes, reads, outputs, *, inputs=1, depth=4096, aliases=None):
    """Schedule of values 0, 1, ... of these sizes; the first ``inputs`` are given, layers make the others.

    ``reads[k]`` are the values that layer ``k`` reads.
    """
    layers = tuple(
        Layer(name=f"layer{k}", kind="Add", output=f"v{k + inputs}", macs=0, acc_bits=0,
              tiles=(tile(tuple(f"v{n}" for n in read), f"v{k + inputs}"),))
        for k, read in enumerate(reads))
    return Schedule(
        config=ArrayConfig(lanes=4, rows=4, act_depth=depth), layers=layers, aliases=aliases or {},
        layouts={f"v{n}": Layout(shape=(4, 1, size), lanes=4) for n, size in enumerate(sizes)},
        inputs=tuple(Quantize(inputs=(f"i{n}",), output=f"v{n}") for n in range(inputs)),
        outputs=tuple(Dequantize(inputs=(name,), output=f"o{name}", scale=np.array(1.0), bias=np.array(0.0))
                      for name in outputs))


@st.composite
def networks(draw):
    """Sizes, what each layer reads, how many inputs there are, and which values are outputs."""
    inputs = draw(st.integers(1, 3))
    count = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.integers(1, 40), min_size=inputs + count, max_size=inputs + count))
    reads = [draw(st.lists(st.integers(0, k + inputs - 1), min_size=1, max_size=3)) for k in range(count)]
    outputs = draw(st.sets(st.integers(0, inputs + count - 1), max_size=3))
    return sizes, reads, inputs, {*outputs, inputs + count - 1}


def alive(layer, reads, inputs, outputs):
    """Values that must be whole while a layer runs: still read, being made, or wanted in the end."""
    made = {*range(inputs), *(k + inputs for k in range(layer))}
    wanted = {*outputs, *(n for read in reads[layer:] for n in read)}
    return (made & wanted) | {layer + inputs}


@given(networks())
def test_values_that_are_alive_do_not_overlap(drawn):
    sizes, reads, inputs, outputs = drawn
    at = allocate(network(sizes, reads, [f"v{n}" for n in outputs], inputs=inputs))
    for layer in range(len(reads)):
        for one, other in combinations(alive(layer, reads, inputs, outputs), 2):
            a, b = at[f"v{one}"], at[f"v{other}"]
            assert a + sizes[one] <= b or b + sizes[other] <= a, (layer, one, other)


def test_memory_is_used_again():
    at = allocate(network([10, 6, 10, 4], [(0,), (1,), (2,)], ["v3"]))
    assert at == {"v0": 0, "v1": 10, "v2": 0, "v3": 10}


def test_lowest_gap_that_is_large_enough():
    # v1 dies between v0 and v2: five words are free there, which v3 needs not, v4 does.
    at = allocate(network([10, 5, 5, 6, 5], [(0,), (0, 1), (0, 2), (3,)], ["v0", "v2", "v3", "v4"]))
    assert at == {"v0": 0, "v1": 10, "v2": 15, "v3": 20, "v4": 10}


def test_other_names_keep_a_value_alive():
    at = allocate(network([4, 4, 4], [(0,), (1,)], ["again", "v2"], aliases={"again": "v0"}))
    assert sorted(at.values()) == [0, 4, 8]


def test_exactly_full():
    assert allocate(network([6, 4], [(0,)], ["v1"], depth=10)) == {"v0": 0, "v1": 6}


def test_too_deep_is_refused():
    with pytest.raises(CompileError, match=(
            r"^layer 'layer0' \(Add\): 'v1' takes 5 words of activation memory, of 10 there are 4 free at that "
            r"time; .* act_depth of at least 11")):
        allocate(network([6, 5], [(0,)], ["v1"], depth=10))


def test_input_that_does_not_fit_is_refused():
    with pytest.raises(CompileError, match=r"^layer 'layer0' \(Add\): 'v0' takes 11 words"):
        allocate(network([11, 1], [(0,)], ["v1"], depth=10))
