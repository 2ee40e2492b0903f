"""Proof, from the actual weights, that no accumulator overflows."""

import numpy as np

from almac.compiler.graph import CompileError, Conv, Graph, Op, SumPool
from almac.hdl.shapes import ACC

__all__ = ["accumulator_bits", "prove_accumulators", "signed_bits"]

#: Codes are -128..127.
_LOWEST, _HIGHEST = -128, 127


def prove_accumulators(graph: Graph) -> dict[str, int]:
    """Signed bits that the accumulators of every layer need, whatever the input.

    Raises
    ------
    CompileError
        If a layer needs more bits than an accumulator has; names it.
    """
    bits = {op.output: accumulator_bits(op) for op in graph.ops if isinstance(op, Conv | SumPool)}
    for op in graph.ops:
        if bits.get(op.output, 0) > ACC.width:
            raise CompileError(
                f"node {op.source!r}: its sums need {bits[op.output]} bits, an accumulator has "
                f"{ACC.width}; split the layer's input channels in two and add the halves")
    return bits


def accumulator_bits(op: Op) -> int:
    """Signed bits that hold every partial sum of an op, in any order; 0 for an op without sums.

    A partial sum may be of any subset of the terms (the planes of a weight come one after the other, with
    intermediate sums larger than the final one), so the magnitudes of all planes are added. A trit
    contributes at most one more than a code: what complementing leaves.
    """
    match op:
        case Conv(weight=weight):
            terms = (np.abs(weight.trits.astype(np.int64))
                     * np.abs(weight.scales())[..., None, None]).sum(axis=(0, 2, 3, 4))
            greatest = int(terms.max(initial=0)) * (1 - _LOWEST)
            return signed_bits(-greatest, greatest)
        case SumPool(kernel=(rows, columns)):
            return signed_bits(rows * columns * _LOWEST, rows * columns * _HIGHEST)
    return 0


def signed_bits(low: int, high: int) -> int:
    """Bits of the narrowest two's complement that holds ``low``..``high``."""
    return max((-low - 1).bit_length() if low < 0 else 0, high.bit_length()) + 1
