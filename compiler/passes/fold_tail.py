"""Leave to the host what is quantized behind the last layer."""

import numpy as np
from onnx import helper

from almac.compiler.graph import Dequantize, Graph, Host, Op, Quantize
from almac.compiler.onnx_run import node_model

__all__ = ["fold_tail"]

_OPSET = 13


def fold_tail(graph: Graph) -> Graph:
    """Make one ``Host`` op of a ``Quantize`` that only ``Dequantize`` reads.

    Before
    ------
    ::

        p = Host(y); q = Quantize(p); z = Dequantize(q)      # a Softmax whose result is quantized

    After
    -----
    ::

        p = Host(y); z = Host(p)
    """
    ops: list[Op] = []
    joined: dict[str, Quantize] = {}
    for op in graph.ops:
        users = graph.users(op.output)
        source = graph.producer(op.inputs[0]) if op.inputs else None
        if (isinstance(op, Quantize) and isinstance(source, Host) and op.fold is None and op.move is None
                and users and all(isinstance(user, Dequantize) for user in users)):
            joined[op.output] = op
        elif isinstance(op, Dequantize) and op.inputs[0] in joined:
            ops.append(_rounded(graph, joined[op.inputs[0]], op))
        else:
            ops.append(op)
    return graph.with_ops(ops)


def _rounded(graph: Graph, quantize: Quantize, dequantize: Dequantize) -> Host:
    value = graph.values[quantize.output]
    dtype, shift = (np.uint8, 128) if value.unsigned else (np.int8, 0)
    constants: dict[str, np.ndarray] = {
        "scale": np.array(value.scale, np.float32), "zero": np.array(value.zero_point + shift, dtype),
        "wanted": np.array(dequantize.scale, np.float32).reshape(-1)[:1].reshape(()),
        "origin": np.array(dequantize.zero_point + shift, dtype)}
    codes = "x" if quantize.exact else "q"
    nodes = [] if quantize.exact else [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], [codes])]
    nodes.append(helper.make_node("Identity", [codes], ["y"]) if dequantize.exact else
                 helper.make_node("DequantizeLinear", [codes, "wanted", "origin"], ["y"]))
    model = node_model(nodes, _OPSET, {"x": np.dtype(dtype if quantize.exact else np.float32)}, constants, "y")
    return Host(inputs=quantize.inputs, output=dequantize.output, source=quantize.source, model=model,
                kind="QuantizeLinear", reason="stands behind the last layer", opset=graph.opset)
