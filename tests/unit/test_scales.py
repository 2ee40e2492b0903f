from fractions import Fraction

import numpy as np
import pytest

from almac.compiler.scales import OFFSET_LIMIT, code_of, fixed_point, offset_of


def test_fixed_point_is_the_float32_number():
    rng = np.random.default_rng(0)
    scale = (rng.uniform(0.5, 1, 1000) * 2.0 ** rng.integers(-26, 24, 1000)).astype(np.float32)
    multiplier, shift = fixed_point(scale)
    assert ((multiplier >= 1 << 23) & (multiplier < 1 << 24)).all()
    for number, m, s in zip(scale, multiplier, shift, strict=True):
        assert Fraction(float(number)) == Fraction(int(m), 1 << int(s))


@pytest.mark.parametrize("scale", [1e-9, 1e-20, 1e-38, 1e-45])
def test_least_scales_keep_shifts_small(scale):
    multiplier, shift = fixed_point(np.array([scale], np.float32))
    assert 0 <= shift[0] <= 52
    # What an accumulator can make of the difference is far below a step.
    difference = Fraction(float(np.float32(scale))) - Fraction(int(multiplier[0]), 1 << int(shift[0]))
    assert 0 <= difference * (1 << 31) < Fraction(1, 1 << 20)


def test_zero_scale():
    multiplier, _ = fixed_point(np.zeros(1, np.float32))
    assert multiplier[0] == 0


@pytest.mark.parametrize("scale", [2.0 ** 24, np.inf, np.nan])
def test_refuses_great_scales(scale):
    with pytest.raises(ValueError, match=r"^scale must be below 2\*\*24, not "):
        fixed_point(np.array([0.5, scale], np.float32))


def test_offset_is_rounded_once_to_even():
    assert offset_of(0.5, 1.0, 0) == 0
    assert offset_of(1.5, 1.0, 0) == 2
    assert offset_of(-0.75, 0.25, 3) == -24
    bias, scale = float(np.float32(0.1)), float(np.float32(0.3))
    assert offset_of(bias, scale, 40) == round(Fraction(bias) / Fraction(scale) * 2 ** 40)


@pytest.mark.parametrize("sign", [-1, 1])
def test_offset_is_limited(sign):
    assert offset_of(sign * 1e30, 1e-3, 52) == sign * OFFSET_LIMIT


@pytest.mark.parametrize(("real", "code"), [
    (0.0, 3), (6.0, 27), (0.125, 3), (0.375, 5), (-np.inf, -128), (np.inf, 127), (1e9, 127), (-1e9, -128)])
def test_code_of_a_bound(real, code):
    assert code_of(real, 0.25, 3) == code
