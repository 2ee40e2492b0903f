"""Recipes as ONNX models, in each of the ways in which tools say the same network."""

from integer_spellings import Integer, QOperator
from layers import Gemm
from nodes import Nodes
from onnx import TensorProto
from spellings import Qcdq, Qdq, Qonnx

__all__ = ["SPELLINGS", "supports", "write", "write_layer"]

#: By name; QDQ is the one that can say everything.
SPELLINGS = {"qdq": Qdq, "qcdq": Qcdq, "qoperator": QOperator, "integer": Integer, "qonnx": Qonnx}


def supports(recipe, spelling):
    """Whether a recipe can be said in a spelling, and differs there from its QDQ."""
    match spelling:
        case "qcdq":
            return (any(isinstance(layer, Gemm) for layer in recipe.layers)
                    or any(recipe.quantization(k).bits < 8 for k in range(len(recipe.layers) + 1)))
        case "qoperator" | "integer":
            return any(SPELLINGS[spelling].knows(recipe, layer) for layer in recipe.layers)
        case "qonnx":
            return recipe.real_edges
    return True


def write(recipe, spelling, opset=21):
    """Model of a recipe; its input is ``x`` (real) or ``t0`` (codes), the codes of layer ``k`` are ``t{k}``.

    In QONNX ``t{k}`` is the real output of a Quant.
    """
    nodes = Nodes(opset)
    writer = SPELLINGS[spelling](recipe, nodes)
    writer.start()
    for k, layer in enumerate(recipe.layers, 1):
        writer.layer(k, layer)
    outputs = writer.finish()
    name = "x" if recipe.real_edges else "t0"
    return nodes.model([(name, _data_type(recipe, name), ["N", *recipe.shape])],
                       [(output, _data_type(recipe, output, spelling), ["N", *recipe.shape_of(int(output[1:]))])
                        for output in outputs])


def write_layer(recipe, layer, opset=21):
    """The next layer of a recipe alone, on real inputs ``r0``, ``r1``; its output is ``y``."""
    nodes = Nodes(opset)
    names = [f"r{i}" for i in range(len(layer.inputs))]
    output = Qdq(recipe, nodes).operate(len(recipe.layers) + 1, layer, names)
    nodes.rename_output(output, "y")
    shapes = [["N", *recipe.shape_of(tensor)] for tensor in layer.inputs]
    return nodes.model([(name, TensorProto.FLOAT, shape) for name, shape in zip(names, shapes, strict=True)],
                       [("y", TensorProto.FLOAT, None)])


def _data_type(recipe, name, spelling="qdq"):
    if name[0] != "t" or spelling == "qonnx":
        return TensorProto.FLOAT
    return TensorProto.INT8 if recipe.quantization(int(name[1:])).dtype == "int8" else TensorProto.UINT8
