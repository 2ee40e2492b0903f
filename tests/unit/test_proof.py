from dataclasses import replace

import numpy as np
import pytest

from almac.compiler.graph import CompileError, Conv, Graph, SumPool, Value
from almac.compiler.proof import accumulator_bits, prove_accumulators, signed_bits
from almac.compiler.weights import to_planes


def conv(weights):
    return Conv(inputs=("x",), output="y", source="conv7", weight=to_planes(np.asarray(weights)))


def graph(op, shape):
    return Graph(ops=(op,), values={"x": Value(shape=shape), "y": Value(shape=(1, 1, 1), kind="acc")},
                 inputs=("x",), outputs=("y",))


@pytest.mark.parametrize(("low", "high", "bits"), [
    (0, 0, 1), (-1, 0, 1), (0, 1, 2), (-128, 127, 8), (-128, 128, 9), (0, 1 << 17, 19), (-(1 << 17), 0, 18)])
def test_signed_bits(low, high, bits):
    assert signed_bits(low, high) == bits


def test_power_of_two_needs_another_bit():
    assert prove_accumulators(graph(conv(np.full((1, 1024, 1, 1), -1)), (1024, 1, 1))) == {"y": 19}


@pytest.mark.parametrize("seed", range(4))
def test_no_partial_sum_in_any_order_overflows(seed):
    op = conv(np.random.default_rng(seed).integers(-128, 128, (1, 16, 3, 3)))
    terms = op.weight.trits.astype(np.int64) * op.weight.scales()[..., None, None]
    # The worst subset: all terms of one sign, each at the end of the range that makes it greatest.
    worst = np.maximum(terms * -128, terms * 127).sum()
    assert worst < 1 << (accumulator_bits(op) - 1)


def test_pool():
    op = SumPool(inputs=("x",), output="y", kernel=(7, 7))
    assert prove_accumulators(graph(op, (1, 7, 7))) == {"y": signed_bits(-128 * 49, 127 * 49)}


def test_overflow_is_refused_by_name():
    # 127 in five planes is up to 121 in magnitudes and more: 2**31 is passed at some 130,000 channels.
    op = conv(np.full((1, 140_000, 1, 1), 127) - np.arange(140_000).reshape(1, -1, 1, 1) % 2)
    with pytest.raises(CompileError, match=r"^node 'conv7': its sums need 3\d bits, an accumulator has 32; split"):
        prove_accumulators(graph(op, (140_000, 1, 1)))


def test_without_sums_nothing_is_proved():
    assert prove_accumulators(replace(graph(conv([[[[1]]]]), (1, 1, 1)), ops=(), outputs=("x",))) == {}
