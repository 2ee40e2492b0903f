"""Which real tensors the host makes before the array begins, and which after it has ended."""

from dataclasses import dataclass

from almac.compiler.graph import Dequantize, Graph, Host, Op, Quantize
from almac.compiler.operators import HOST_WORK, MOVES

__all__ = ["EMPTY", "Edges", "edges_of", "where"]

#: Not named behind a node that is: they would do behind one that is quantized.
_QUIET = {"Add", "BatchNormalization", "Cast", "Clip", "Concat", "DequantizeLinear", "Div", "Dropout", "Identity",
          "MaxPool", "Mul", "QuantizeLinear", "Relu", "Shape", "Softmax", "Sub", "Sum", *MOVES}


@dataclass(frozen=True, kw_only=True)
class Edges:
    """Host ops in execution order, and why the others cannot be, by the ops that are in the way."""

    before: tuple[Host, ...]
    after: tuple[Host, ...]
    problems: tuple[tuple[Op, str], ...]


_BETWEEN = "the host computes only before the first layer and behind the last one"

#: Nothing but quantizers and dequantizers.
EMPTY = Edges(before=(), after=(), problems=())


def edges_of(graph: Graph) -> Edges:
    """Sort the host's ops of ``graph``: a program is one run of the array, so none may stand in the middle."""
    behind = {name for op in graph.ops for name in (op.output,) if isinstance(op, Dequantize)}
    returning: set[str] = set()
    for op in graph.ops:
        if isinstance(op, Host) and behind & {*op.inputs}:
            behind.add(op.output)
    for op in reversed(graph.ops):
        if (isinstance(op, Quantize) and op.inputs[0] in behind) or op.output in returning:
            returning |= {*op.inputs} & behind
    before: list[Host] = []
    after: list[Host] = []
    problems: list[tuple[Op, str]] = []
    named: set[str] = set()
    for op in graph.ops:
        if not isinstance(op, Host):
            continue
        follows = bool(named & {*op.inputs})
        if follows and op.kind in _QUIET:
            named.add(op.output)
        elif follows or op.kind not in HOST_WORK or op.output in returning:
            # What has no reason is read by a node that has one.
            if op.reason:
                between = op.kind in HOST_WORK and not follows
                problems.append((op, f"{op.reason}; {_BETWEEN}" if between else op.reason))
                named.add(op.output)
        else:
            (after if op.output in behind else before).append(op)
    for op in graph.ops:
        if isinstance(op, Quantize) and op.inputs[0] in behind and not named:
            problems.append((op, "quantizes what the host makes of a layer; quantize the layer itself"))
    return Edges(before=tuple(before), after=tuple(after), problems=tuple(problems))


def where(graph: Graph, op: Op) -> str:
    """An op, as messages name it: node, operator, shapes."""
    shapes = []
    for name in (*op.inputs[:1], op.output):
        value = graph.values[name]
        shapes.append(str([value.leading, *value.shape]))
    opset = f"opset {graph.opset}, " if graph.opset else ""
    return f"node {op.source!r} ({op.title}, {opset}{' to '.join(shapes)})"
