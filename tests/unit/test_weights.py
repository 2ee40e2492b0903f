import numpy as np
import pytest

from almac.compiler.graph import CompileError
from almac.compiler.weights import common_scale, grouped_planes, to_planes


@pytest.mark.parametrize(("low", "high", "count"), [
    (-1, 1, 1), (-2, 1, 2), (-4, 4, 2), (-8, 7, 3), (-13, 13, 3), (-40, 40, 4), (-121, 121, 5), (-128, 127, 6),
    (-255, 255, 6), (-364, 364, 6), (0, 0, 1)])
def test_fewest_planes(low, high, count):
    weights = np.arange(low, high + 1).reshape(-1, 1, 1, 1)
    planes = to_planes(weights)
    assert planes.count == count
    assert set(np.unique(planes.trits)) <= {-1, 0, 1}
    assert np.abs(planes.alpha).max() <= 255
    np.testing.assert_array_equal(planes.dense(), weights)


@pytest.mark.parametrize("shape", [(8, 3, 3, 3), (5, 1, 1, 1), (1, 7, 1, 5)])
def test_random_weights(shape):
    weights = np.random.default_rng(0).integers(-128, 128, shape)
    np.testing.assert_array_equal(to_planes(weights).dense(), weights)


@pytest.mark.parametrize(("factor", "count"), [(2, 1), (127, 1), (255, 1), (256, 6)])
def test_common_factor_saves_planes(factor, count):
    weights = factor * np.array([-1, 0, 1]).reshape(1, 3, 1, 1)
    planes = to_planes(weights)
    assert planes.count == count
    np.testing.assert_array_equal(planes.dense(), weights)


def test_refuses_more_than_nine_bits():
    with pytest.raises(CompileError, match=r"^weights of up to 365 need 7 planes; supported: 6, that is"):
        to_planes(np.array([365, 1]).reshape(1, 2, 1, 1))


def test_groups_are_exact():
    rng = np.random.default_rng(0)
    parts = [(rng.integers(-1, 2, (4, 6, 3, 3)), rng.integers(1, 256, (4, 3))) for _ in range(2)]
    planes = grouped_planes(parts)
    assert planes.count == 2
    expected = sum(weights * np.repeat(factors, 2, axis=1)[..., None, None] for weights, factors in parts)
    np.testing.assert_array_equal(planes.dense(), expected)


def test_group_scales_have_eight_bits():
    weights = np.array([-4, 4]).reshape(1, 2, 1, 1) + np.array([0, -1]).reshape(1, 2, 1, 1)
    with pytest.raises(CompileError, match=r"^its group scales are up to 300 times the least one; .* 255$"):
        grouped_planes([(weights, np.array([[100, 1]]))])


def test_common_scale_finds_the_integers():
    factors = np.array([[1, 2, 3], [255, 254, 100], [7, 7, 7], [2, 3, 4]])
    unit = np.array([0.1, 1e-3, 3.3, 0.02], np.float32)
    found, integers = common_scale((unit[:, None] * factors.astype(np.float32)).astype(np.float32))
    # A row that has a factor in common is written with less.
    assert integers.tolist() == [[1, 2, 3], [255, 254, 100], [1, 1, 1], [2, 3, 4]]
    np.testing.assert_allclose(found, unit * [1, 1, 7, 1], rtol=1e-6)


def test_common_scale_refuses_what_is_not_integer():
    with pytest.raises(CompileError, match=r"^its group scales for output channel 1 are not integers"):
        common_scale(np.array([[1, 2], [1, np.pi]], np.float32))
