"""Model to program: the levels, one after the other."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from almac.compiler.emit import emit
from almac.compiler.graph import Graph, verify
from almac.compiler.importer import import_model
from almac.compiler.passes.fold_window import fold_window
from almac.compiler.pipeline import PASSES, run
from almac.compiler.program import Program
from almac.compiler.proof import prove_accumulators
from almac.compiler.schedule import schedule
from almac.hdl.config import ArrayConfig

__all__ = ["Build", "build"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Build:
    """A program, and the graph that it computes."""

    graph: Graph
    program: Program


def build(model: str | Path, config: ArrayConfig) -> Build:
    """Compile ``model`` for the array ``config``.

    Raises
    ------
    CompileError
        Naming every node that is in the way, and what to do.
    """
    graph = run(import_model(model), (*PASSES, partial(fold_window, lanes=config.lanes)))
    prove_accumulators(verify(graph))
    return Build(graph=graph, program=emit(schedule(graph, config), graph))
