"""Every spelling of a quantized network to one: QuantizeLinear and DequantizeLinear around float operators."""

import onnx_ir as ir

from almac.compiler.spellings import integer, qonnx, qoperator
from almac.compiler.spellings.emit import Rewrite, Rule
from almac.compiler.spellings.inputs import Declined

__all__ = ["canonical"]

_RULES: dict[tuple[str, str], Rule] = {**qoperator.RULES, **integer.RULES, **qonnx.RULES}


def canonical(model: ir.Model) -> dict[str, str]:
    """Rewrite ``model`` in place; what comes out is for the importer.

    The operators are those of opset 21, whatever the model declares. Tensors keep their names, and so does the
    node that does the work of the old one. A node without a name gets the one that messages give it:
    operator and position in the model.

    Returns
    -------
    dict[str, str]
        Why a node was left as it is, by its name.
    """
    graph = model.graph
    taken = {value.name for value in (*graph.inputs, *graph.initializers.values()) if value.name}
    taken |= {value.name for node in graph.all_nodes() for value in node.outputs if value.name}
    declined: dict[str, str] = {}
    for index, node in enumerate(tuple(graph)):
        node.name = node.name or f"{node.op_type}_{index}"
        rule = _RULES.get((node.domain, node.op_type))
        if rule is None or not node.outputs:
            continue
        rewrite = Rewrite(node, taken)
        try:
            result = rule(rewrite)
        except Declined as reason:
            declined[node.name] = str(reason)
            continue
        if result is not None:
            rewrite.finish(result)
    return declined
