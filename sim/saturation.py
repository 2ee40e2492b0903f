"""Weights as uint8 for onnxruntime, whose uint8 x int8 kernels saturate sums at 16 bits where there is no VNNI."""

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["without_saturation"]

#: Inputs of each operator: activation, weights, zero point of the weights.
_OPERANDS = {
    "ConvInteger": (0, 1, 3), "MatMulInteger": (0, 1, 3), "QGemm": (0, 3, 5), "QLinearConv": (0, 3, 5),
    "QLinearMatMul": (0, 3, 5),
}


def without_saturation(model):
    """Copy of a model whose constant int8 weights are uint8 numbers and zero points, 128 higher each.

    ``w - zero`` is the same number, so the results are, and the kernels for two unsigned operands add up in 32 bits
    on every processor. A model without such weights is returned as it is.
    """
    if not any(node.op_type in _OPERANDS for node in model.graph.node):
        return model
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type
             for value in (*inferred.input, *inferred.value_info, *inferred.output)}
    # There are no kernels for int8 activations and uint8 weights, and those for int8 and int8 do not saturate.
    nodes = [node for node in model.graph.node if node.op_type in _OPERANDS
             and types.get(_input(node, 0)) == onnx.TensorProto.UINT8
             and (weights := constants.get(_input(node, 1))) is not None
             and weights.data_type == onnx.TensorProto.INT8
             and (not _input(node, 2) or _input(node, 2) in constants)]
    if not nodes:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    named = {node.output[0]: node for node in result.graph.node}
    for original in nodes:
        node = named[original.output[0]]
        _, at, zero_at = _OPERANDS[node.op_type]
        weights = numpy_helper.to_array(constants[node.input[at]])
        zero = numpy_helper.to_array(constants[_input(node, 2)]) if _input(node, 2) else np.zeros((), np.int8)
        while len(node.input) <= zero_at:
            node.input.append("")
        for index, array in ((at, weights), (zero_at, zero)):
            name = f"{node.output[0]}/unsigned/{index}"
            raised = (array.astype(np.int16) + 128).astype(np.uint8)
            result.graph.initializer.append(numpy_helper.from_array(raised, name))
            node.input[index] = name
    return result


def _input(node, operand):
    index = _OPERANDS[node.op_type][operand]
    return node.input[index] if index < len(node.input) else ""
