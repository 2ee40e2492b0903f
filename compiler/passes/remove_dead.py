"""Remove what no output needs."""

from almac.compiler.graph import Graph

__all__ = ["remove_dead"]


def remove_dead(graph: Graph) -> Graph:
    """Remove every op whose output nothing reads.

    Before
    ------
    ::

        y = Conv(x); z = Table(x); outputs y

    After
    -----
    ::

        y = Conv(x); outputs y
    """
    needed = set(graph.outputs)
    kept = []
    for op in reversed(graph.ops):
        if op.output in needed:
            kept.append(op)
            needed |= set(op.inputs)
    return graph.with_ops(reversed(kept))
