"""Model to program: the levels, one after the other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from almac.compiler.calibrate import quantized
from almac.compiler.emit import emit
from almac.compiler.graph import Graph, verify
from almac.compiler.importer import import_model
from almac.compiler.onnx_model import Source
from almac.compiler.passes.fold_window import fold_window
from almac.compiler.pipeline import PASSES, run
from almac.compiler.program import Program
from almac.compiler.proof import prove_accumulators
from almac.compiler.schedule import schedule
from almac.hdl.config import ArrayConfig

__all__ = ["Build", "build"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Build:
    """A program, the graph that it computes, and the quantized model that both come from."""

    graph: Graph
    program: Program
    model: Source


def build(model: Source, config: ArrayConfig, *, calibration: Mapping[str, np.ndarray] | None = None,
          progress: Callable[[int, int], None] = lambda done, total: None) -> Build:
    """Compile ``model`` for the array ``config``.

    Parameters
    ----------
    calibration : Mapping[str, np.ndarray] or None
        Samples of the inputs of a float model, which is quantized first (see ``compiler.calibrate``).
    progress : Callable[[int, int], None]
        Called with the number of samples that have been run, and of all.

    Raises
    ------
    CompileError
        Naming every node that is in the way, and what to do.
    """
    source = quantized(model, calibration, progress=progress)
    graph = run(import_model(source), (*PASSES, partial(fold_window, lanes=config.lanes)))
    prove_accumulators(verify(graph))
    return Build(graph=graph, program=emit(schedule(graph, config), graph), model=source)
