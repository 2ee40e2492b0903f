import numpy as np
import pytest

from almac.compiler.program import Port
from almac.host.edges import dequantize, quantize
from almac.host.errors import InputError


def port(**fields):
    return Port(**{"name": "x", "value": "v", "shape": (4,), "scale": (0.5,), **fields})


def test_rounds_half_to_even_then_adds_the_zero_point():
    """Case U04."""
    x = np.array([[0.25, 0.75, -0.25, 1.25]], np.float32)
    assert quantize(port(zero_point=1), x).tolist() == [[1, 3, 1, 3]]


def test_divides_and_does_not_multiply_by_a_reciprocal():
    """Case E10."""
    scale = float(np.float32(5) / np.float32(255))
    x = np.array([[-2.5, 0, 0, 0]], np.float32)
    assert quantize(port(scale=(scale,)), x)[0, 0] == -127


def test_saturates():
    x = np.array([[1e9, -1e9, 63.5, -64]], np.float32)
    assert quantize(port(), x).tolist() == [[127, -128, 127, -128]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(InputError, match=r"^input 'x' holds values that are not finite$"):
        quantize(port(), np.array([[value, 0, 0, 0]], np.float32))


def test_codes_of_the_model_are_stored_as_signed():
    codes = np.array([[0, 127, 128, 255]], np.uint8)
    stored = quantize(port(exact=True, unsigned=True), codes)
    assert stored.tolist() == [[-128, -1, 0, 127]]
    np.testing.assert_array_equal(dequantize(port(exact=True, unsigned=True), stored), codes)


def test_codes_need_their_type():
    with pytest.raises(InputError, match=r"^input 'x' takes uint8 codes, not float32$"):
        quantize(port(exact=True, unsigned=True), np.zeros((1, 4), np.float32))


def test_codes_less_a_zero_point_do_not_wrap():
    real = dequantize(port(zero_point=100), np.array([[-128, 127, 100, 0]], np.int8))
    assert real.tolist() == [[-114.0, 13.5, 0.0, -50.0]]


def test_accumulators_have_scale_and_bias_of_their_channel():
    acc = np.array([[1 << 20, -3]], np.int64)
    real = dequantize(port(shape=(2,), scale=(0.5, 2.0), bias=(1.0, -1.0)), acc)
    assert real.tolist() == [[524289.0, -7.0]]
