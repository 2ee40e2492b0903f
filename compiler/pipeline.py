"""The order of the passes, in one place."""

from collections.abc import Callable, Sequence

from almac.compiler.graph import Graph, verify
from almac.compiler.passes.fold_edges import fold_edges
from almac.compiler.passes.fold_flatten import fold_flatten
from almac.compiler.passes.fold_limits import fold_limits
from almac.compiler.passes.fold_tail import fold_tail
from almac.compiler.passes.lower_moves import lower_moves
from almac.compiler.passes.merge_moves import merge_moves
from almac.compiler.passes.remove_dead import remove_dead

__all__ = ["PASSES", "Pass", "run"]

Pass = Callable[[Graph], Graph]

PASSES: tuple[Pass, ...] = (
    merge_moves,
    fold_flatten,
    remove_dead,
    fold_edges,
    fold_tail,
    fold_limits,
    lower_moves,
    remove_dead,
)


def _ignore(pass_: Pass, graph: Graph) -> None:
    """Do nothing after a pass."""


def run(
    graph: Graph,
    passes: Sequence[Pass] = PASSES,
    *,
    after: Callable[[Pass, Graph], None] = _ignore,
) -> Graph:
    """Apply every pass in order, verifying the graph around each; ``after`` sees each result."""
    verify(graph)
    for pass_ in passes:
        graph = verify(pass_(graph))
        after(pass_, graph)
    return graph
