"""Latencies of the engine, shared by the components that have them and the compiler that predicts.

A command that is accepted in cycle 0 issues its first beat in cycle 1. With ``n`` outputs of ``b`` beats and
``d`` drain cycles each, the last beat is issued in cycle ``b + (n - 1) * max(b, d)`` at the earliest (an
output may not be complete before the previous one has been drained), and the command is finished, its last
result in memory, ``latency(opcode) + d`` cycles later.
"""

from almac.hdl.command import COMMAND_WORDS, Opcode
from almac.hdl.dot.code import latency as dot_latency

__all__ = [
    "ARRAY_EXTRA", "FETCH_CYCLES", "FIRST_FETCH_CYCLES", "POST_LATENCY", "READ_LATENCY",
    "VECTOR_LATENCY", "command_cycles", "run_cycles",
]

#: Beat issued to operands at the array: memory, then the register that the padding goes into.
READ_LATENCY = 2

#: Sum of a beat to accumulator: scaling, accumulation.
ARRAY_EXTRA = 2

#: Word to result of the vector unit.
VECTOR_LATENCY = 1

#: Codes leave the drain to codes written: parameters, product, sum, shift, round, table, write.
POST_LATENCY = 7

#: Commands follow each other no faster than they are read from memory.
FETCH_CYCLES = COMMAND_WORDS + 2

#: Run accepted to first command accepted.
FIRST_FETCH_CYCLES = COMMAND_WORDS + 1


def command_cycles(config, opcode, *, beats, outputs, drain):
    """Cycles from the acceptance of a command until its last result is in memory."""
    body = VECTOR_LATENCY if opcode is not Opcode.CONV else dot_latency(config.lanes) + ARRAY_EXTRA
    issue = beats + (outputs - 1) * max(beats, drain)
    return issue + READ_LATENCY + body + drain + POST_LATENCY


def run_cycles(config, commands):
    """Cycle count at the end of every command of a run, as the device's own counter shows it.

    Parameters
    ----------
    commands : iterable of (opcode, beats, outputs, drain)
        In order of execution; the host is assumed to grant in time.

    Returns
    -------
    list[int]
    """
    ends = []
    accepted, finished = FIRST_FETCH_CYCLES, 0
    for opcode, beats, outputs, drain in commands:
        accepted = max(accepted, finished)
        finished = accepted + command_cycles(
            config, opcode, beats=beats, outputs=outputs, drain=drain)
        ends.append(finished)
        accepted += FETCH_CYCLES
    return ends
