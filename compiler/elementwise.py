"""Functions of codes: sums with one rounding, and tables."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from almac.compiler.graph import Add, CompileError, Value
from almac.compiler.messages import FUNCTIONS, reason
from almac.compiler.onnx_model import Model, Node, run_nodes
from almac.compiler.scales import code_of, fixed_point
from almac.compiler.states import Chain, Codes, State, Sum

__all__ = ["add", "chain", "table"]

#: Greatest shift of the left operand of a sum.
_MOST_LEFT = 15


def add(state: Sum, value: Value, common: dict[str, Any]) -> Add:
    """Both scales with one exponent; the operand with the larger scale is shifted to it."""
    operands = []
    for codes in (state.a, state.b):
        try:
            with np.errstate(over="ignore"):
                multiplier, shift = fixed_point(np.array([codes.scale], np.float32) / np.float32(value.scale))
        except ValueError as error:
            raise CompileError(str(error)) from None
        operands.append((codes, int(multiplier[0]), int(shift[0])))
    # The least shift belongs to the largest scale.
    (a, a_multiplier, a_shift), (b, b_multiplier, b_shift) = sorted(operands, key=lambda item: item[2])
    left = b_shift - a_shift
    if left > _MOST_LEFT:
        raise CompileError(f"adds tensors whose scales differ 2**{left} times; supported: up to "
                           f"2**{_MOST_LEFT}; quantize both with similar scales")
    offset = -((a.zero_point << left) * a_multiplier + b.zero_point * b_multiplier)
    return Add(inputs=(a.name, b.name),
               multipliers=(a_multiplier, b_multiplier), left=left, offset=offset, shift=b_shift,
               zero_point=value.zero_point, low=code_of(state.low, value.scale, value.zero_point),
               high=code_of(state.high, value.scale, value.zero_point), **common)


def chain(node: Node, inputs: list[State]) -> Chain:
    """One more function of one code.

    Raises
    ------
    CompileError
        If the node is none, or of more than one tensor.
    """
    given = [state for state in inputs if state is not None and not isinstance(state, np.ndarray)]
    if node.op not in {*FUNCTIONS, "Identity", "Dropout"} or not all(
            isinstance(state, Codes | Chain) for state in given):
        raise CompileError(reason(node, inputs))
    if any(state.size != 1 for state in inputs if isinstance(state, np.ndarray)):
        raise CompileError("its constant holds more than one number; supported on a tensor that is quantized: "
                           "one; behind a convolution, before QuantizeLinear: one for each channel")
    chains = [state if isinstance(state, Chain) else Chain(codes=state, starts=(name,))
              for name, state in zip(node.inputs, inputs, strict=True) if isinstance(state, Codes | Chain)]
    if any(chain.codes != chains[0].codes for chain in chains):
        raise CompileError(f"{node.op} of two tensors; supported: Add of two that are quantized, and functions "
                           "of one; quantize what it reads")
    # Each node once, in the order of the model.
    nodes = {before.name: before for chain in chains for before in chain.nodes}
    starts = {start for chain in chains for start in chain.starts}
    return Chain(codes=chains[0].codes, starts=tuple(sorted(starts)), nodes=(*nodes.values(), node))


def table(state: Codes | Chain, value: Value, model: Model, constants: Mapping[str, np.ndarray],
          ) -> tuple[int, ...]:
    """The float32 definition, for all 256 codes."""
    codes = state if isinstance(state, Codes) else state.codes
    steps = np.arange(-128, 128, dtype=np.int64) - codes.zero_point
    real = steps.astype(np.float32) * np.float32(codes.scale)
    # Outside the domain of a function (Log, Sqrt) there is no code; the model has none there either.
    with np.errstate(all="ignore"):
        if isinstance(state, Chain):
            real = run_nodes(state.nodes, model.opset, dict.fromkeys(state.starts, real), constants)
        if real.shape != steps.shape or np.isnan(real).any():
            raise CompileError("is not a number for every code; limit its input with Clip first")
        codes_out = np.rint(real / np.float32(value.scale)) + value.zero_point
    return tuple(int(code) for code in np.clip(codes_out, -128, 127))
