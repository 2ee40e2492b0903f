import re
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from almac.hdl.config import ArrayConfig

FIELDS = [field.name for field in fields(ArrayConfig)]

#: Least and greatest value of each field.
RANGES = {
    "lanes": (1, 64), "rows": (1, 64), "columns": (1, 64), "post_lanes": (0, 64),
    "act_depth": (2, 65536), "weight_depth": (2, 65536), "scale_depth": (2, 65536),
    "param_depth": (2, 65536), "tables": (1, 16), "command_depth": (32, 65536),
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", ["4", 4.0, None, True])
def test_fields_are_integers(name, value):
    with pytest.raises(TypeError, match=f"^{name} must be an integer, not {re.escape(repr(value))}$"):
        ArrayConfig(**{name: value})


@pytest.mark.parametrize("name", FIELDS)
def test_fields_have_ranges(name):
    low, high = RANGES[name]
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"^{name} must be within {low}..{high}, not {value}$"):
            ArrayConfig(**{name: value})
    fitting = {"lanes": 64, "rows": 64} if name == "post_lanes" else {}
    for value in (low, high):
        ArrayConfig(**fitting, **{name: value})


@pytest.mark.parametrize(("lanes", "rows", "post_lanes"), [(16, 16, 3), (4, 6, 4), (6, 4, 3), (8, 8, 16)])
def test_post_lanes_divide_lanes_and_rows(lanes, rows, post_lanes):
    with pytest.raises(ValueError, match=rf"^post_lanes must divide lanes and rows \({lanes} and {rows}\)"):
        ArrayConfig(lanes=lanes, rows=rows, post_lanes=post_lanes)


@given(st.integers(1, 64), st.integers(1, 64))
def test_default_post_lanes_are_the_most_that_take_four_cycles(lanes, rows):
    chosen = ArrayConfig(lanes=lanes, rows=rows).post_lanes
    common = [n for n in range(1, 65) if lanes % n == rows % n == 0]
    assert chosen in common
    assert chosen == 1 or rows // chosen >= 4
    assert all(n <= chosen or rows // n < 4 for n in common)


def test_written_size():
    config = ArrayConfig.parse("3x5x2", act_depth=64)
    assert (config.lanes, config.rows, config.columns, config.act_depth) == (3, 5, 2, 64)
    assert str(config) == "3x5x2"
    assert config.macs == 30


@pytest.mark.parametrize("text", ["", "16", "16x16", "16x16x1x1", "16X16X1", "axbxc", "-4x4x1", " 4x4x1"])
def test_other_sizes_are_refused(text):
    with pytest.raises(ValueError, match=r"^Size must be written lanes x rows x columns \(16x16x1\), not "):
        ArrayConfig.parse(text)


def test_size_beyond_the_range_is_refused():
    with pytest.raises(ValueError, match=r"^rows must be within 1\.\.64, not 65$"):
        ArrayConfig.parse("1x65x1")


@pytest.mark.parametrize("name", FIELDS)
def test_digest_differs_with_every_field(name):
    config = ArrayConfig(lanes=16, rows=16, post_lanes=4)
    other = replace(config, **{name: 2 * getattr(config, name)})
    assert other.digest != config.digest
    assert len(config.digest) == 8


def test_digest_is_that_of_the_contents():
    assert ArrayConfig().digest == ArrayConfig(lanes=16, rows=16, post_lanes=4).digest
