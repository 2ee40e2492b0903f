"""The rounding modes of QONNX: in NumPy for constants, in ONNX for activations."""

import numpy as np
import onnx_ir as ir

from almac.compiler.spellings.emit import Rewrite
from almac.compiler.spellings.inputs import Declined

__all__ = ["HALF_EVEN", "round_constant", "round_nodes", "steps_of"]

#: Functions applied in turn, some with a constant; what rounds away from zero or to it sees magnitudes only.
_Steps = tuple[tuple[str, float | None], ...]

HALF_EVEN: _Steps = (("Round", None),)

_MODES: dict[str, _Steps] = {
    "ROUND": HALF_EVEN,
    "HALF_EVEN": HALF_EVEN,
    "CEIL": (("Ceil", None),),
    "FLOOR": (("Floor", None),),
    "UP": (("Abs", None), ("Ceil", None)),
    "DOWN": (("Abs", None), ("Floor", None)),
    "HALF_UP": (("Abs", None), ("Add", 0.5), ("Floor", None)),
    "HALF_DOWN": (("Abs", None), ("Sub", 0.5), ("Ceil", None)),
}

_FUNCTIONS = {"Abs": np.abs, "Add": np.add, "Ceil": np.ceil, "Floor": np.floor, "Round": np.rint,
              "Sub": np.subtract}


def steps_of(mode: str) -> _Steps:
    """What ``rounding_mode = mode`` does.

    Raises
    ------
    Declined
        If there is no such mode.
    """
    if mode.upper() not in _MODES:
        raise Declined(f"rounding_mode = {mode}; supported: {', '.join(_MODES)}")
    return _MODES[mode.upper()]


def round_constant(steps: _Steps, x: np.ndarray) -> np.ndarray:
    """Whole numbers, in the type of ``x``."""
    result = x
    for op_type, constant in steps:
        result = _FUNCTIONS[op_type](*(result,) if constant is None else (result, x.dtype.type(constant)))
    return np.sign(x) * result if steps[0][0] == "Abs" else result


def round_nodes(rewrite: Rewrite, steps: _Steps, x: ir.Value, part: str) -> ir.Value:
    """The same by nodes, whose names begin with ``part``."""
    result = x
    for op_type, constant in steps:
        name = f"{part}/{op_type}"
        more = () if constant is None else [rewrite.constant(np.array(constant, np.float32), f"{name}/by")]
        result = rewrite.op(op_type, (result, *more), name)
    if steps[0][0] == "Abs":
        result = rewrite.op("Mul", (rewrite.op("Sign", (x,), f"{part}/Sign"), result), f"{part}/signed")
    return result
