"""Functions of codes: sums and products with one rounding, and tables."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from almac.compiler.graph import Add, CompileError, Mul, Value
from almac.compiler.messages import reason
from almac.compiler.onnx_model import Model, Node
from almac.compiler.onnx_run import run_functions
from almac.compiler.operators import FUNCTIONS
from almac.compiler.scales import code_of, fixed_point
from almac.compiler.states import Chain, Codes, Product, State, Sum

__all__ = ["add", "chain", "multiply", "sign_table", "tables"]

#: Functions in a row: each keeps all of those before it.
_MOST_NODES = 256

#: Greatest shift of the left operand of a sum.
_MOST_LEFT = 15


def add(state: Sum, value: Value, common: dict[str, Any]) -> Add:
    """Both scales with one exponent; the operand with the larger scale is shifted to it."""
    operands = []
    for codes, sign in ((state.a, 1), (state.b, state.sign)):
        multiplier, shift = _fixed(np.float32(codes.scale) / np.float32(value.scale))
        operands.append((codes, sign * multiplier, shift))
    # The least shift belongs to the largest scale.
    (a, a_multiplier, a_shift), (b, b_multiplier, b_shift) = sorted(operands, key=lambda item: item[2])
    left = b_shift - a_shift
    if left > _MOST_LEFT:
        raise CompileError(f"adds tensors whose scales differ 2**{left} times; supported: up to "
                           f"2**{_MOST_LEFT}; quantize both with similar scales")
    offset = -((a.zero_point << left) * a_multiplier + b.zero_point * b_multiplier)
    return Add(inputs=(a.name, b.name), multipliers=(a_multiplier, b_multiplier), left=left, offset=offset,
               shift=b_shift, **common, **_limits(state, value))


def multiply(state: Product, value: Value, common: dict[str, Any]) -> Mul:
    """The product of both scales, in float32, over that of the result."""
    with np.errstate(over="ignore"):
        scale = np.float32(state.a.scale) * np.float32(state.b.scale)
    multiplier, shift = _fixed(scale / np.float32(value.scale))
    return Mul(inputs=(state.a.name, state.b.name), zero_points=(state.a.zero_point, state.b.zero_point),
               multiplier=multiplier, shift=shift, **common, **_limits(state, value))


def _fixed(scale: np.float32) -> tuple[int, int]:
    try:
        multiplier, shift = fixed_point(np.array([scale], np.float32))
    except ValueError as error:
        raise CompileError(str(error)) from None
    return int(multiplier[0]), int(shift[0])


def _limits(state: Sum | Product, value: Value) -> dict[str, Any]:
    low, high = (code_of(limit, value.scale, value.zero_point) for limit in (state.low, state.high))
    return {"zero_point": value.zero_point, "low": max(low, value.low),
            "high": max(min(high, value.high), value.low)}


def chain(node: Node, inputs: list[State], shape: tuple[int, ...]) -> Chain:
    """One more function of one code, on a tensor of ``shape`` = (C, ...).

    Raises
    ------
    CompileError
        If the node is none, or of more than one tensor.
    """
    given = [state for state in inputs if state is not None and not isinstance(state, np.ndarray)]
    if node.op not in {*FUNCTIONS, "Identity", "Dropout"} or not all(
            isinstance(state, Codes | Chain) for state in given):
        raise CompileError(reason(node, inputs))
    chains = [state if isinstance(state, Chain) else Chain(codes=state, starts=(name,))
              for name, state in zip(node.inputs, inputs, strict=True) if isinstance(state, Codes | Chain)]
    if any(chain.codes != chains[0].codes for chain in chains):
        raise CompileError(f"{node.op} of two tensors; supported: Add, Sub and Mul of two that are quantized, and "
                           "functions of one; quantize what it reads")
    channels = any(chain.channels for chain in chains)
    for state in inputs:
        if isinstance(state, np.ndarray) and state.size != 1:
            sizes = (*(1,) * (len(shape) + 1 - state.ndim), *state.shape)
            if not shape or len(sizes) != len(shape) + 1 or sizes[1] != shape[0] or state.size != shape[0]:
                raise CompileError("its constant holds more than one number; supported on a tensor that is "
                                   "quantized: one, or one for each channel")
            channels = True
    # Each node once, in the order of the model.
    nodes = {before.name: before for chain in chains for before in chain.nodes}
    if len(nodes) >= _MOST_NODES:
        raise CompileError(f"is one of more than {_MOST_NODES} functions in a row; quantize the tensor in between")
    starts = {start for chain in chains for start in chain.starts}
    return Chain(codes=chains[0].codes, starts=tuple(sorted(starts)), nodes=(*nodes.values(), node),
                 channels=channels)


def tables(state: Codes | Chain, value: Value, model: Model, constants: Mapping[str, np.ndarray], channels: int,
           ) -> tuple[np.ndarray, np.ndarray]:
    """The float32 definition, for all 256 codes, and the real results in steps of the output.

    Returns
    -------
    table, steps : int8[256], float64[256], or [C, 256] each if the channels differ
    """
    results = _real(state, model, constants, channels, np.float32)
    # Outside the domain of a function (Log, Sqrt) there is no code; the model has none there either.
    if np.isnan(results).any():
        raise CompileError("is not a number for every code; limit its input with Clip first")
    with np.errstate(all="ignore"):
        rounded = np.rint(results / np.float32(value.scale)) + value.zero_point
        exact = _real(state, model, constants, channels, np.float64) / float(np.float32(value.scale))
    return np.clip(rounded, value.low, value.high).astype(np.int8), exact


def sign_table(state: Codes | Chain, value: Value, model: Model, constants: Mapping[str, np.ndarray], channels: int,
               ) -> tuple[np.ndarray, np.ndarray]:
    """1 where the real result is not below zero, else -1, for all 256 codes; as :func:`tables`."""
    results = _real(state, model, constants, channels, np.float32)
    signs = np.where(results < 0, -1, 1).astype(np.int8)
    return signs, signs.astype(np.float64)


def _real(state: Codes | Chain, model: Model, constants: Mapping[str, np.ndarray], channels: int, kind: type,
          ) -> np.ndarray:
    """Real results of all codes: [256], or [C, 256]."""
    codes = state if isinstance(state, Codes) else state.codes
    steps = np.arange(-128, 128, dtype=np.int64) - codes.zero_point
    # Dequantization is in float32, whatever follows.
    real: np.ndarray = (steps.astype(np.float32) * np.float32(codes.scale)).astype(kind)
    if not isinstance(state, Chain):
        return real
    with np.errstate(all="ignore"):
        if not state.channels:
            numbers = {name: array.reshape(()) if array.size == 1 else array for name, array in constants.items()}
            real = run_functions(state.nodes, model.opset, dict.fromkeys(state.starts, real), numbers)
            if real.shape != steps.shape:
                raise CompileError(f"makes {list(real.shape)} of {list(steps.shape)}; supported: functions of each "
                                   "element")
            return real
        # An image of one position for each code; constants are broadcast along its channels.
        used = [constants[name].ndim for node in state.nodes for name in node.inputs if name in constants]
        places = (1,) * max(max(used, default=2) - 1, 0)
        image = np.broadcast_to(real.reshape(-1, 1), (256, channels)).reshape(256, channels, *places)
        made = run_functions(state.nodes, model.opset, dict.fromkeys(state.starts, image), constants)
        return made.reshape(256, channels).T
