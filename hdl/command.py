"""What compiler, sequencer and interpreter agree on: commands and the words of every memory.

A command is one hardware loop nest over a tile. Its loops, outermost first, are the three of the
outputs (``LEVELS[:3]``: rows and columns of positions, words of a position) and the four of the
reduction (``LEVELS[3:]``: planes or operands, kernel rows, kernel columns, words of channels). A *beat*
is one iteration of all of them; an output is complete with the last beat of its reduction.

Three values follow the loops: the word address in activation memory and the row and the column of
the image. Each level has a step that is added when that level advances; it contains the way back of
the levels inside it (:func:`steps`), so one addition per beat suffices. A beat whose row or column
lies outside the image reads ``pad`` in every lane instead of the memory.
"""

from amaranth import signed
from amaranth.lib import data, enum

from almac.hdl.shapes import ALPHA, INT8, MULTIPLIER, OFFSET, SHIFT

__all__ = [
    "ADDRESS", "COMMAND", "COMMAND_WORDS", "COUNT", "LEVELS", "OUTER", "PARAM",
    "Opcode", "Space", "encode", "scale_layout", "steps", "weight_bits", "words_of",
]

#: Loops of a command, outermost first.
LEVELS = ("row", "column", "word", "plane", "kernel_row", "kernel_column", "channel")

#: How many of the loops are those of the outputs.
OUTER = 3

ADDRESS = 16
COUNT = 16
COORDINATE = 12


class Opcode(enum.Enum, shape=3):
    """Where the accumulators of a command come from."""

    #: Dot products of the array with the weights.
    CONV = 0
    #: Greatest code of the window, per lane.
    MAX = 1
    #: Sum of the codes of the window, per lane.
    SUM = 2
    #: The first word of the window shifted left by ``left``, and the second one beside it.
    ADD = 3


class Space(enum.Enum, shape=8):
    """Memories that the host writes."""

    ACTIVATION = 0
    WEIGHT = 1
    SCALE = 2
    PARAM = 3
    TABLE = 4
    COMMAND = 5
    #: Cycle count at the end of each command of a run; read only.
    TRACE = 6
    #: One word: how many grants the host has given in this run (``COMMAND.grant``).
    GRANT = 7


COMMAND = data.StructLayout({
    "opcode": Opcode,
    # The last command of the program.
    "last": 1,
    # Do not start before the host has granted this many times: streamed weights.
    "grant": 16,
    # Loops: iterations less one, and steps.
    "count": data.ArrayLayout(COUNT, len(LEVELS)),
    "address_step": data.ArrayLayout(signed(ADDRESS + 1), len(LEVELS)),
    "y_step": data.ArrayLayout(signed(COORDINATE), len(LEVELS)),
    "x_step": data.ArrayLayout(signed(COORDINATE), len(LEVELS)),
    "address": ADDRESS,
    "y": signed(COORDINATE),
    "x": signed(COORDINATE),
    "height": COORDINATE - 1,
    "width": COORDINATE - 1,
    "pad": INT8,
    # Weights: one word a beat, from `weight` on, the same for every output. Group scales: one word
    # every `scale_beats` beats.
    "weight": ADDRESS,
    "scale": ADDRESS,
    "scale_beats": COUNT,
    # Parameters: one word every cycle of the drain from `param` on, or always the same one.
    "param": ADDRESS,
    "param_step": 1,
    # Results: `drain` chunks of `post_lanes` codes each, the first one to part `part` of word `out`, the
    # following ones behind it. The next output begins `out_step` words further on.
    "out": ADDRESS,
    "out_step": ADDRESS,
    "part": 6,
    "drain": 7,
    # Requantization.
    "left": 5,
    "side_multiplier": MULTIPLIER,
    "raw": 1,
    "zero_point": INT8,
    "low": INT8,
    "high": INT8,
    "use_table": 1,
    "table": 4,
})

#: 32-bit words of command memory that a command takes, low word first.
COMMAND_WORDS = -(-COMMAND.size // 32)

#: Requantization parameters of one output channel.
PARAM = data.StructLayout({"multiplier": MULTIPLIER, "shift": SHIFT, "offset": OFFSET})


def weight_bits(config):
    """Bits of a weight word: exactly two for each lane and row."""
    return 2 * config.lanes * config.rows


def scale_layout(config):
    """Layout of a word of group scales, one for each row."""
    return data.ArrayLayout(ALPHA, config.rows)


def words_of(space, config):
    """Bits of a word and number of words of a memory that the host writes."""
    return {
        Space.ACTIVATION: (8 * config.lanes, config.act_depth),
        Space.WEIGHT: (weight_bits(config), config.weight_depth),
        Space.SCALE: (ALPHA.width * config.rows, config.scale_depth),
        Space.PARAM: (PARAM.size * config.post_lanes, config.param_depth),
        Space.TABLE: (8, 256 * config.tables),
        Space.COMMAND: (32, config.command_depth),
        Space.TRACE: (32, config.command_depth // COMMAND_WORDS),
        Space.GRANT: (16, 1),
    }[space]


def steps(strides, counts):
    """Step of every level, outermost first, for a value that has these strides.

    When a level advances, all levels inside it go back from their last iteration to the first.
    """
    back = 0
    result = []
    for stride, count in zip(reversed(strides), reversed(counts), strict=True):
        result.append(stride - back)
        back += stride * (count - 1)
    return result[::-1]


def encode(layout, **fields):
    """Pack ``fields`` into an integer, refusing a value that its field cannot hold."""
    word = layout.const(fields)
    for name, value in fields.items():
        held = word[name]
        held = [int(item) for item in held] if isinstance(value, list) else held
        if held != value:
            raise ValueError(f"{name} = {value!r} does not fit in {layout[name].shape!r}")
    return word.as_bits()
