import itertools

import numpy as np
import pytest
from amaranth import Shape
from amaranth.lib import data
from hypothesis import given
from hypothesis import strategies as st

from almac.hdl.command import (
    COMMAND,
    COMMAND_WORDS,
    LEVELS,
    PARAM,
    Opcode,
    Space,
    encode,
    steps,
    words_of,
)
from almac.hdl.config import ArrayConfig

LOOPS = st.integers(1, 5).flatmap(lambda depth: st.tuples(
    st.lists(st.integers(-50, 50), min_size=depth, max_size=depth),
    st.lists(st.integers(1, 4), min_size=depth, max_size=depth)))


def limits(shape):
    """Least and greatest value of a shape."""
    shape = Shape.cast(shape)
    span = 1 << shape.width
    return (-span // 2, span // 2 - 1) if shape.signed else (0, span - 1)


def numbers(layout):
    """Names, least and greatest values of the fields that hold numbers, and which of them are arrays."""
    for name, field in layout:
        if isinstance(field.shape, data.ArrayLayout):
            yield name, *limits(field.shape.elem_shape), field.shape.length
        elif field.shape is not Opcode:
            yield name, *limits(field.shape), None


FIELDS = [pytest.param(layout, *field, id=field[0])
          for layout in (COMMAND, PARAM) for field in numbers(layout)]


@pytest.mark.parametrize(("layout", "name", "low", "high", "length"), FIELDS)
def test_extremes_come_back(layout, name, low, high, length):
    for value in (low, high):
        given_value = value if length is None else [value] * length
        held = layout.from_bits(encode(layout, **{name: given_value}))[name]
        assert held == value if length is None else [int(item) for item in held] == given_value


@pytest.mark.parametrize(("layout", "name", "low", "high", "length"), FIELDS)
def test_what_does_not_fit_is_refused(layout, name, low, high, length):
    for value in (low - 1, high + 1):
        given_value = value if length is None else [*[0] * (length - 1), value]
        with pytest.raises(ValueError, match=rf"^{name} = \[?[-0-9, ]*\]? does not fit in "):
            encode(layout, **{name: given_value})


def test_short_list_is_refused():
    with pytest.raises(ValueError, match=r"^count = \[1, 2\] does not fit in "):
        encode(COMMAND, count=[1, 2])


def test_fields_do_not_overlap():
    rng = np.random.default_rng(0)
    fields = {name: int(rng.integers(low, high, endpoint=True)) if length is None
              else rng.integers(low, high, length, endpoint=True).tolist()
              for name, low, high, length in numbers(COMMAND)}
    word = COMMAND.from_bits(encode(COMMAND, opcode=Opcode.ADD, **fields))
    assert word.opcode is Opcode.ADD
    for name, value in fields.items():
        held = word[name]
        assert ([int(item) for item in held] if isinstance(value, list) else held) == value


@given(LOOPS)
def test_steps_follow_the_loops(drawn):
    strides, counts = drawn
    value, followed = 0, [0]
    advance = steps(strides, counts)
    nest = list(itertools.product(*(range(count) for count in counts)))
    for index in nest[:-1]:
        # The innermost loop that is not at its end.
        level = max(k for k, count in enumerate(counts) if index[k] < count - 1)
        value += advance[level]
        followed.append(value)
    assert followed == [int(np.dot(index, strides)) for index in nest]


@pytest.mark.parametrize("size", ["1x1x1", "3x5x2", "16x16x1"])
def test_words_of_every_memory(size):
    config = ArrayConfig.parse(size)
    assert {space for space in Space if words_of(space, config)} == set(Space)
    assert words_of(Space.WEIGHT, config) == (2 * config.lanes * config.rows, config.weight_depth)
    assert words_of(Space.ACTIVATION, config) == (8 * config.lanes, config.act_depth)
    assert 32 * (COMMAND_WORDS - 1) < COMMAND.size <= 32 * COMMAND_WORDS


def test_levels_are_those_of_the_command():
    assert COMMAND["count"].shape.length == len(LEVELS)
