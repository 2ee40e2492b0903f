"""Controls of a ternary dot product: trits to two bits per lane, and back.

The dot product is a tree. Its leaves are pairs of lanes; a pair of trits has, up to a common sign, five
values (0, a, b, a + b, a - b), hence three control bits. Every node above adds or subtracts its right
child: one relative sign. The sign of the root is left to whoever scales the sum. With ``n`` lanes that is
``3 * (n // 2) + n % 2`` bits for the leaves, ``(n + 1) // 2 - 1`` for the nodes and 1 for the root: two bits
per lane, whatever ``n``.

The hardware computes ``-x`` as ``~x``, that is ``-x - 1``. What is missing depends on the controls alone;
:func:`encode` returns it as *excess*, and the compiler takes it out of the bias.

Bits, from the lowest: the leaves from lane 0 on, the nodes level by level upwards, the root.
"""

import numpy as np

__all__ = ["decode", "encode", "latency", "leaves", "levels"]


def leaves(lanes):
    """Bits of each leaf, and the lanes that it covers: ``[(first bit, first lane, lanes), ...]``."""
    pairs = [(3 * k, 2 * k, 2) for k in range(lanes // 2)]
    return pairs + [(3 * (lanes // 2), lanes - 1, 1)] * (lanes % 2)


def levels(lanes):
    """Nodes of each level above the leaves: ``[(first bit, nodes, children), ...]``.

    Node ``k`` joins children ``2k`` and ``2k + 1``; with an odd number of children the last one passes.
    """
    bit = 3 * (lanes // 2) + lanes % 2
    children = (lanes + 1) // 2
    result = []
    while children > 1:
        nodes = children // 2
        result.append((bit, nodes, children))
        bit += nodes
        children -= nodes
    return result


def latency(lanes):
    """Cycles from operands to sum: a register after the leaves and after every level."""
    return 1 + len(levels(lanes))


def encode(trits):
    """Controls for trits.

    Parameters
    ----------
    trits : int[..., lanes]
        Each -1, 0 or 1.

    Returns
    -------
    bits : uint8[..., 2 * lanes]
        Control bits, the lowest first.
    excess : int64[...]
        Signed sum that the hardware computes, less the true dot product.

    Raises
    ------
    ValueError
        If a value is not a trit.
    """
    trits = np.asarray(trits)
    if not np.isin(trits, (-1, 0, 1)).all():
        raise ValueError("Ternary weights must be -1, 0 or 1")
    trits = trits.astype(np.int64)
    lanes = trits.shape[-1]
    bits = np.zeros((*trits.shape[:-1], 2 * lanes), np.uint8)

    # Of every subtree: its sign (0 if all its trits are), and what ~ made of it.
    signs, errors = [], []
    for bit, lane, count in leaves(lanes):
        a = trits[..., lane]
        b = trits[..., lane + 1] if count == 2 else np.zeros_like(a)
        differ = a * b < 0
        bits[..., bit] = a != 0
        if count == 2:
            bits[..., bit + 1] = b != 0
            bits[..., bit + 2] = differ
        signs.append(np.where(a != 0, a, b))
        errors.append(-differ.astype(np.int64))

    for bit, nodes, children in levels(lanes):
        for k in range(nodes):
            left, right = 2 * k, 2 * k + 1
            differ = signs[left] * signs[right] < 0
            bits[..., bit + k] = differ
            errors[k] = errors[left] + np.where(differ, -errors[right] - 1, errors[right])
            signs[k] = np.where(signs[left] != 0, signs[left], signs[right])
        if children % 2:
            signs[nodes], errors[nodes] = signs[children - 1], errors[children - 1]
        del signs[children - nodes:], errors[children - nodes:]

    bits[..., -1] = signs[0] < 0
    return bits, np.where(signs[0] < 0, -errors[0], errors[0])


def decode(bits):
    """Trits for controls: the inverse of :func:`encode`.

    Parameters
    ----------
    bits : uint8[..., 2 * lanes]
        Control bits.

    Returns
    -------
    int8[..., lanes]
        Trits. Controls that :func:`encode` never makes give what the hardware would compute.
    """
    bits = np.asarray(bits).astype(np.int8)
    lanes = bits.shape[-1] // 2
    sign = 1 - 2 * bits
    trits = np.zeros((*bits.shape[:-1], lanes), np.int8)

    # From the leaves up: which lanes each subtree covers.
    spans = []
    for bit, lane, count in leaves(lanes):
        trits[..., lane] = bits[..., bit]
        if count == 2:
            trits[..., lane + 1] = bits[..., bit + 1] * sign[..., bit + 2]
        spans.append((lane, lane + count))
    for bit, nodes, children in levels(lanes):
        for k in range(nodes):
            (first, _), (middle, end) = spans[2 * k], spans[2 * k + 1]
            trits[..., middle:end] *= sign[..., bit + k, None]
            spans[k] = (first, end)
        if children % 2:
            spans[nodes] = spans[children - 1]
        del spans[children - nodes:]
    return trits * sign[..., -1, None]
