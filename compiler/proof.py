"""Proof, from the actual weights, that no accumulator overflows."""

import numpy as np

from almac.compiler.graph import CompileError, Conv, Graph, SumPool
from almac.hdl.shapes import ACC

__all__ = ["prove_accumulators", "signed_bits"]

#: Codes are -128..127.
_LOWEST, _HIGHEST = -128, 127


def prove_accumulators(graph: Graph) -> dict[str, int]:
    """Signed bits that the accumulators of every layer need, whatever the input.

    A partial sum may be of any subset of the terms (the planes of a weight come one after the other, with
    intermediate sums larger than the final one), so positive and negative terms are bounded apart, plane by
    plane; the constant that complementing leaves (at most one for each trit) is included.

    Raises
    ------
    CompileError
        If a layer needs more bits than an accumulator has; names it.
    """
    bits = {}
    for op in graph.ops:
        match op:
            case Conv(weight=weight):
                terms = (np.abs(weight.trits.astype(np.int64))
                         * np.abs(weight.scales())[..., None, None]).sum(axis=(0, 2, 3, 4))
                greatest = int(terms.max(initial=0))
                low, high = greatest * (_LOWEST - 1), greatest * (-_LOWEST + 1)
            case SumPool(kernel=(rows, columns)):
                low, high = rows * columns * _LOWEST, rows * columns * _HIGHEST
            case _:
                continue
        need = signed_bits(low, high)
        if need > ACC.width:
            raise CompileError(
                f"node {op.source!r}: sums of up to {high} need {need} bits, an accumulator has "
                f"{ACC.width}; split the layer's input channels in two and add the halves")
        bits[op.output] = need
    return bits


def signed_bits(low: int, high: int) -> int:
    """Bits of the narrowest two's complement that holds ``low``..``high``."""
    return max((-low - 1).bit_length() if low < 0 else 0, high.bit_length()) + 1
