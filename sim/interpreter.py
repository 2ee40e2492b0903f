"""Executes programs in NumPy, command by command: what the RTL must do, without its time.

It reads the encoded command words and memory images, as the device does, so it checks the compiler's
emission against the golden model, and the RTL against itself word by word.
"""

import numpy as np

from almac.hdl.command import COMMAND, COMMAND_WORDS, PARAM, Opcode, Space
from almac.hdl.dot.code import decode, encode
from almac.hdl.shapes import ALPHA
from almac.sim.rounding import saturate, shift_half_even

__all__ = ["Interpreter", "decode_command"]


def decode_command(words):
    """Fields of a command, from its 32-bit words as uint8[COMMAND_WORDS, 4]."""
    return COMMAND.from_bits(
        int.from_bytes(np.asarray(words).tobytes(), "little") & ((1 << COMMAND.size) - 1))


class Interpreter:
    """The activations of one column, and the memories of a program.

    Parameters
    ----------
    program : Program

    Attributes
    ----------
    activations : int8[act_depth, lanes]
    """

    def __init__(self, program):
        self.program = program
        self.config = program.config
        self.activations = np.zeros((self.config.act_depth, self.config.lanes), np.int8)
        self._commands = program.images[Space.COMMAND.name].reshape(-1, COMMAND_WORDS, 4)
        self._tables = program.images[Space.TABLE.name].view(np.int8).reshape(-1, 256)
        self._memory = {space: dict(enumerate(program.images[space.name]))
                        for space in (Space.WEIGHT, Space.SCALE, Space.PARAM)}
        self._uploads = list(program.uploads)

    def run(self, after=None):
        """Execute all commands; ``after(index)`` sees the activations after each."""
        for index, words in enumerate(self._commands):
            self._upload(index)
            self._execute(decode_command(words))
            if after is not None:
                after(index)

    def _upload(self, index):
        """Stream in what the command ``index`` waits for."""
        for upload in self._uploads:
            if upload.grant == index + 1:
                space = Space[upload.space]
                image = self.program.images[upload.space]
                for k in range(upload.count):
                    self._memory[space][upload.address + k] = image[upload.first + k]

    def _execute(self, command):
        counts = np.array([int(n) + 1 for n in command.count])
        outputs, beats = counts[:3].prod(), counts[3:].prod()
        address = _follow(command.address, command.address_step, counts) % (1 << 16)
        y = _follow(command.y, command.y_step, counts)
        x = _follow(command.x, command.x_step, counts)
        inside = (y >= 0) & (y < command.height) & (x >= 0) & (x < command.width)
        words = self.activations[np.where(inside, address, 0)]
        words = np.where(inside[:, None], words, np.int8(command.pad)).astype(np.int64)
        words = words.reshape(outputs, beats, self.config.lanes)

        side = np.zeros((outputs, self.config.lanes), np.int64)
        match Opcode(command.opcode):
            case Opcode.CONV:
                acc = self._dot(command, words)
                side = np.zeros_like(acc)
            case Opcode.MAX:
                acc = words.max(axis=1)
            case Opcode.SUM:
                acc = words.sum(axis=1)
            case Opcode.ADD:
                acc, side = words[:, 0] << command.left, words[:, 1]
        self._store(command, acc, side)

    def _dot(self, command, words):
        """Accumulators of all rows: int64[outputs, rows], with the excess of the controls."""
        lanes, rows = self.config.lanes, self.config.rows
        beats = words.shape[1]
        bits = np.stack([self._word(Space.WEIGHT, command.weight + k, 2 * lanes * rows)
                         for k in range(beats)]).reshape(beats, rows, 2 * lanes)
        scales = np.stack([
            self._word(Space.SCALE, command.scale + k, ALPHA.width * rows)
            for k in range(-(-beats // command.scale_beats))]).reshape(-1, rows, ALPHA.width)
        value = (scales.astype(np.int64) << np.arange(ALPHA.width)).sum(axis=-1)
        alpha = np.where(scales[..., -1] == 1, value - (1 << ALPHA.width), value)
        alpha = np.repeat(alpha, command.scale_beats, axis=0)[:beats]
        trits = decode(bits)
        _, excess = encode(trits)
        weights = trits.astype(np.int64) * alpha[..., None]
        flat = words.reshape(len(words), -1)
        acc = flat @ weights.transpose(1, 0, 2).reshape(rows, -1).T
        return acc + (alpha * excess).sum(axis=0)

    def _store(self, command, acc, side):
        post_lanes, lanes = self.config.post_lanes, self.config.lanes
        for chunk in range(command.drain):
            span = slice(chunk * post_lanes, (chunk + 1) * post_lanes)
            bits = self._word(Space.PARAM, command.param + chunk * command.param_step,
                              PARAM.size * post_lanes).reshape(post_lanes, PARAM.size)
            params = [PARAM.from_bits(int.from_bytes(
                np.packbits(field, bitorder="little").tobytes(), "little")) for field in bits]
            total = (acc[:, span] * np.array([p.multiplier for p in params])
                     + side[:, span] * (command.side_multiplier
                                        if Opcode(command.opcode) is Opcode.ADD else 0)
                     + np.array([p.offset for p in params]))
            shift = np.array([p.shift for p in params])
            if command.raw:
                codes = (total >> shift).astype(np.uint8).view(np.int8)
            else:
                codes = saturate(shift_half_even(total, shift) + command.zero_point,
                                 command.low, command.high)
            if command.use_table:
                codes = self._tables[command.table][codes.astype(np.int64) + 128]
            word, part = divmod(command.part + chunk, lanes // post_lanes)
            rows = command.out + word + command.out_step * np.arange(len(acc))
            self.activations[rows % (1 << 16), part * post_lanes:(part + 1) * post_lanes] = codes

    def _word(self, space, address, count):
        return np.unpackbits(self._memory[space][address], bitorder="little")[:count]


def _follow(start, level_steps, counts):
    """Values of every beat, made as the hardware does: by adding the step of the level that advances."""
    total = int(counts.prod())
    index = np.arange(1, total)
    level = np.zeros(total - 1, np.int64)
    inner = 1
    # A level advances when the index is a multiple of all beats inside it; the outermost such wins.
    for depth in reversed(range(len(counts))):
        level[index % inner == 0] = depth
        inner *= int(counts[depth])
    return start + np.concatenate([[0], np.cumsum(np.array([int(step) for step in level_steps])[level])])
