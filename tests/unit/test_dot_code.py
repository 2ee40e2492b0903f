import itertools
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almac.hdl.dot.code import decode, encode, latency

TRIT = st.integers(-1, 1)
CODE = st.integers(-128, 127)


def tree_sum(bits, act):
    """Sum that the tree computes, read off the list of bits from the lowest on; ``~x`` is its ``-x``."""
    bits = iter(bits)
    sums = []
    for lane in range(0, len(act), 2):
        total = act[lane] * next(bits)
        if lane + 1 < len(act):
            take, flip = next(bits), next(bits)
            total += take * (~act[lane + 1] if flip else act[lane + 1])
        sums.append(total)
    while len(sums) > 1:
        joined = [left + (~right if next(bits) else right)
                  for left, right in zip(sums[::2], sums[1::2], strict=False)]
        sums = joined + sums[2 * len(joined):]
    [negative] = bits
    return -sums[0] if negative else sums[0]


@given(st.lists(TRIT, min_size=1, max_size=64))
def test_round_trip_in_two_bits_a_weight(trits):
    bits, _ = encode(trits)
    assert bits.shape == (2 * len(trits),)
    assert set(bits.tolist()) <= {0, 1}
    assert decode(bits).tolist() == trits


@given(st.lists(st.tuples(TRIT, CODE), min_size=1, max_size=64))
def test_excess_is_what_the_tree_adds(pairs):
    trits, act = zip(*pairs, strict=True)
    bits, excess = encode(trits)
    assert tree_sum(bits.tolist(), act) == np.dot(trits, act) + excess


@given(st.integers(1, 64).flatmap(lambda lanes: st.tuples(
    st.lists(st.integers(0, 1), min_size=2 * lanes, max_size=2 * lanes),
    st.lists(CODE, min_size=lanes, max_size=lanes))))
def test_any_bits_decode_to_what_the_tree_weighs_with(drawn):
    bits, act = drawn
    weighed = tree_sum(bits, act) - tree_sum(bits, [0] * len(act))
    assert weighed == np.dot(decode(bits), act)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5])
def test_every_vector(lanes):
    trits = np.array(list(itertools.product((-1, 0, 1), repeat=lanes)))
    bits, excess = encode(trits)
    assert len(np.unique(bits, axis=0)) == 3 ** lanes
    np.testing.assert_array_equal(decode(bits), trits)
    for act in itertools.product((-128, 0, 127), repeat=lanes):
        sums = [tree_sum(row, act) for row in bits.tolist()]
        np.testing.assert_array_equal(sums, trits @ act + excess)


def test_axes_before_the_lanes_are_kept():
    trits = np.random.default_rng(0).integers(-1, 2, (2, 3, 7))
    bits, excess = encode(trits)
    assert bits.shape == (2, 3, 14)
    assert excess.shape == (2, 3)
    np.testing.assert_array_equal(decode(bits), trits)
    np.testing.assert_array_equal(bits[1, 2], encode(trits[1, 2])[0])


@pytest.mark.parametrize("lanes", range(1, 65))
def test_latency_is_the_depth_of_the_tree(lanes):
    assert latency(lanes) == 1 + ceil(log2((lanes + 1) // 2))


@pytest.mark.parametrize("value", [-2, 2, 127, -128, 0.5, -1.25, float("nan")])
def test_other_weights_are_refused(value):
    with pytest.raises(ValueError, match=r"^Ternary weights must be -1, 0 or 1$"):
        encode([0, 1, value])
