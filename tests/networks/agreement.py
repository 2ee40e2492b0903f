"""All spellings of a network agree with each other: what holds of the generator alone."""

from dataclasses import dataclass, field

import numpy as np
from qonnx_functions import with_functions
from runtime import run
from writers import SPELLINGS, supports, write

__all__ = ["Agreement", "check_spellings", "live_layers", "runnable"]

#: How near to a tie, in steps of the codes, the spellings may round differently.
_NEAR = 0.01


@dataclass
class Agreement:
    """What was compared, and the tensor that differs, if there is one."""

    spellings: list[str] = field(default_factory=list)
    elements: int = 0
    near_ties: int = 0
    difference: str | None = None


def runnable(recipe, spelling, opset=21):
    """Model that onnxruntime takes."""
    return with_functions(write(recipe, spelling, opset))


def check_spellings(recipe, opset=21):
    """All spellings of a recipe give the codes of its QDQ in onnxruntime, except near ties.

    After the first tensor with a near-tie the others of that spelling are not compared: differences go on.
    """
    model = write(recipe, "qdq", opset)
    names = [f"t{k}" for k in range(len(recipe.layers) + 1)]
    reals = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    oracle = run(model, recipe.feeds(), [*(name for name in names if name in reals), *set(reals.values()) - {"x"}])
    oracle |= recipe.feeds()
    result = Agreement(spellings=[spelling for spelling in SPELLINGS if supports(recipe, spelling)])
    for spelling in result.spellings[1:]:
        got = run(runnable(recipe, spelling, opset), recipe.feeds(), names) | recipe.feeds()
        for k, name in enumerate(names):
            want, codes = oracle[name], _codes(recipe.quantization(k), got[name])
            result.elements += codes.size
            differing = want != codes
            if not differing.any():
                continue
            off = np.abs(want.astype(int) - codes.astype(int)).max()
            steps = oracle[reals[name]][differing].astype(np.float64) / np.float32(recipe.quantization(k).scale)
            distance = np.abs(steps - np.floor(steps) - 0.5).max()
            if off > 1 or distance > _NEAR:
                result.difference = (f"{spelling} {name}: {differing.sum()} of {codes.size} differ, "
                                     f"by up to {off}, up to {distance:.3g} steps from a tie")
                return result
            result.near_ties += int(differing.sum())
            break
    return result


def live_layers(recipe, opset=21):
    """For each layer, whether its codes are of more than one value."""
    names = [f"t{k}" for k in range(1, len(recipe.layers) + 1)]
    tensors = run(write(recipe, "qdq", opset), recipe.feeds(), names)
    return [bool(np.ptp(tensors[name].astype(int))) for name in names]


def _codes(quantization, tensor):
    """Codes as they are, or of the real numbers of QONNX."""
    if tensor.dtype.kind != "f":
        return tensor
    return np.rint(tensor.astype(np.float64) / np.float32(quantization.scale) + quantization.zero_point).astype(int)
