"""What is claimed of every random network, in each of its spellings."""

from dataclasses import dataclass, field

import numpy as np
from runtime import run
from writers import SPELLINGS, supports, write

from almac.compiler.build import Build
from almac.compiler.emit import emit
from almac.compiler.graph import CompileError
from almac.compiler.importer import import_model
from almac.compiler.pipeline import run as run_passes
from almac.compiler.schedule import schedule
from almac.hdl.config import ArrayConfig
from almac.sim.compare import compare_with_oracle
from almac.verify import verify

__all__ = ["Seen", "check_network", "live_layers"]

#: Small enough for more channels than rows and words of several channels, deep enough for every network.
_CONFIG = ArrayConfig(lanes=4, rows=3, act_depth=1 << 14, weight_depth=1 << 14, scale_depth=1 << 14,
                      param_depth=1 << 14, tables=16, command_depth=1 << 16)


@dataclass
class Seen:
    """What was compared.

    Attributes
    ----------
    elements, near_ties : int
        Of golden with onnxruntime, over all spellings.
    programs : int
        Spellings that compile; their interpreter equals golden.
    """

    spellings: list[str] = field(default_factory=list)
    elements: int = 0
    near_ties: int = 0
    programs: int = 0


def check_network(recipe, opset=21):
    """Golden equals onnxruntime by NUMERICS.md section 6; interpreter equals golden; spellings are one program.

    Raises
    ------
    AssertionError
        Naming the spelling, and the first difference.
    """
    seen, programs, moved_by_host = Seen(), {}, False
    for spelling in (spelling for spelling in SPELLINGS if supports(recipe, spelling)):
        model = write(recipe, spelling, opset)
        graph = import_model(model)
        comparison = compare_with_oracle(graph, model, recipe.feeds())
        assert comparison.first_difference is None, f"{spelling}: {comparison.first_difference}"
        assert comparison.tensors > 0, f"{spelling}: nothing was compared"
        seen.spellings.append(spelling)
        seen.elements += comparison.elements
        seen.near_ties += comparison.near_ties
        graph = run_passes(graph)
        try:
            program = emit(schedule(graph, _CONFIG), graph)
        except CompileError:
            programs[spelling] = "refused"
            continue
        programs[spelling] = program.digest
        moved_by_host = moved_by_host or bool(program.before)
        seen.programs += 1
        done = verify(Build(graph=graph, program=program, model=model), model, recipe.feeds(), "program")
        assert done.first_difference is None, f"{spelling}: {done.first_difference}"
    # Fewer bits are limits on codes in one spelling, and a type of their own in another. Codes of an input that are
    # only moved are the host's, or are dequantized first, as the spelling says.
    if not moved_by_host and all(recipe.quantization(k).bits == 8 for k in range(len(recipe.layers) + 1)):
        assert len(set(programs.values())) == 1, f"the spellings are different programs: {programs}"
    return seen


def live_layers(recipe, opset=21):
    """For each layer, whether its codes are of more than one value."""
    names = [f"t{k}" for k in range(1, len(recipe.layers) + 1)]
    tensors = run(write(recipe, "qdq", opset), recipe.feeds(), names)
    return [bool(np.ptp(tensors[name].astype(int))) for name in names]
