"""Nodes that replace one node of a model; the graph changes only when all of them are known."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from almac.compiler.spellings.inputs import Declined, Operand, Scheme

__all__ = ["Rewrite", "Rule", "decline"]


class Rewrite:
    """What is made of ``node``.

    Every part has a name: the part ``p`` of the node ``n`` with the output ``y`` is the tensor ``y/p`` and the
    node ``n/p``. The part that does what ``n`` did is called ``n``, for messages.

    Parameters
    ----------
    node : ir.Node
        The node to replace.
    taken : set[str]
        Names of tensors that are in use; those of the parts are added.
    """

    def __init__(self, node: ir.Node, taken: set[str]) -> None:
        self.node = node
        self._taken = taken
        # Nodes are made in the end: one that is made and left lying would count as a reader of its inputs.
        self._nodes: list[Callable[[], ir.Node]] = []
        self._constants: list[ir.Value] = []

    def constant(self, value: np.ndarray, part: str) -> ir.Value:
        """An initializer."""
        name = self._name(part)
        tensor = ir.tensor(np.ascontiguousarray(value).reshape(value.shape), name=name)
        made = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype),
                        shape=ir.Shape(value.shape))
        self._constants.append(made)
        return made

    def op(self, op_type: str, inputs: Iterable[Operand], part: str, *, main: bool = False, domain: str = "",
           dtype: ir.DataType = ir.DataType.FLOAT, attributes: Mapping[str, Any] | None = None) -> ir.Value:
        """Output of one more node; ``main`` for the one that keeps the name."""
        output = ir.Value(name=self._name(part), type=ir.TensorType(dtype))
        self._nodes.append(partial(
            ir.node, op_type, list(inputs), attributes, domain=domain, outputs=[output],
            name=self.node.name if main else f"{self.node.name}/{part}"))
        return output

    def quantize(self, x: Operand, codes: Scheme, part: str = "codes", *, main: bool = False) -> ir.Value:
        """Codes of real numbers."""
        return self.op("QuantizeLinear", (x, *self._parameters(codes, part)), part, main=main,
                       dtype=ir.DataType.from_numpy(codes.zero_point.dtype), attributes=_axis(codes))

    def dequantize(self, x: Operand, codes: Scheme, part: str, *, main: bool = False) -> ir.Value:
        """Real numbers of codes."""
        return self.op("DequantizeLinear", (x, *self._parameters(codes, part)), part, main=main,
                       attributes=_axis(codes))

    def finish(self, result: ir.Value) -> None:
        """Put the parts in the place of the node; ``result`` gets the name of its output."""
        graph, old = self.node.graph, self.node.outputs[0]
        assert isinstance(graph, ir.Graph)
        for made in self._constants:
            graph.register_initializer(made)
        nodes = [make() for make in self._nodes]
        for node in nodes:
            graph.opset_imports.setdefault(node.domain, 1)
        dtype = result.type
        ir.convenience.replace_nodes_and_values(graph, self.node, [self.node], nodes, [old], [result])
        # What the model promises of its outputs stays; inner tensors have the type that they have now.
        if not result.is_graph_output():
            result.type = dtype

    def _parameters(self, codes: Scheme, part: str) -> tuple[ir.Value, ir.Value]:
        return (self.constant(codes.scale, f"{part}/scale"),
                self.constant(codes.zero_point, f"{part}/zero_point"))

    def _name(self, part: str) -> str:
        stem = name = f"{self.node.outputs[0].name}/{part}"
        count = 0
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name


#: Makes the parts of a node and returns the one that is its output, or None if the node may stay.
Rule: TypeAlias = Callable[[Rewrite], ir.Value | None]


def decline(reason: str) -> Rule:
    """The rule of an operator that is never rewritten."""
    def rule(rewrite: Rewrite) -> ir.Value | None:
        raise Declined(reason)
    return rule


def _axis(codes: Scheme) -> dict[str, int]:
    return {} if codes.axis is None else {"axis": codes.axis}
