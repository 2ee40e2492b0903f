"""A float model as it is quantized: in a recent opset, with everything constant computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx
from onnx import helper, version_converter

from almac.compiler.graph import CompileError
from almac.compiler.onnx_model import Model, Node, load
from almac.compiler.onnx_run import MOST_ELEMENTS, fold_constants
from almac.compiler.quantizers import parameters

__all__ = ["FloatModel", "prepare"]

#: Least opset of the models that are made, and the one that older models are brought to if they can be.
_OLDEST, _TARGET = 13, 21

#: Operators that are computed if all they read is constant: weights come from them.
_FOLDED = {
    "Abs", "Add", "Cast", "Ceil", "Clip", "Concat", "ConstantOfShape", "DequantizeLinear", "Div", "Equal", "Exp",
    "Expand", "Flatten", "Floor", "Gather", "Identity", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Pow",
    "QuantizeLinear", "Reciprocal", "ReduceProd", "Reshape", "Round", "Sign", "Slice", "Sqrt", "Squeeze", "Sub",
    "Sum", "Tile", "Transpose", "Unsqueeze", "Where",
}

#: Operators on constants whose inputs are broadcast, and so may make much more than they read.
_BROADCAST = {"Add", "Div", "Equal", "Max", "Min", "Mod", "Mul", "Pow", "Sub", "Sum", "Where"}


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatModel:
    """Nodes that compute on tensors, and the constants they read.

    ``proto`` gives the inputs, outputs and opsets; its nodes are not those here. In the nodes, ``Sum`` of two
    tensors is written as ``Add``.
    """

    model: Model
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    proto: onnx.ModelProto

    def to_proto(self, nodes: Sequence[onnx.NodeProto], constants: Mapping[str, np.ndarray],
                 outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """An ONNX model of other nodes, constants and outputs; of the constants, those that are needed."""
        result = onnx.ModelProto()
        for key in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
            setattr(result, key, getattr(self.proto, key))
        # The format that goes with the newest opset here; a reader of an older one cannot read that anyway.
        result.ir_version = max(self.proto.ir_version, 13 if self.model.opset > 24 else 10)
        result.opset_import.extend(self.proto.opset_import)
        result.metadata_props.extend(self.proto.metadata_props)
        result.graph.name = self.proto.graph.name
        result.graph.input.extend(self.inputs)
        result.graph.output.extend(outputs)
        result.graph.node.extend(nodes)
        used = {name for node in nodes for name in node.input} | {value.name for value in outputs}
        for name, array in constants.items():
            if name in used:
                result.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return result

    def rank(self, name: str) -> int:
        """Dimensions of a tensor, 0 if they are not known."""
        return len(self.shape(name))

    def shape(self, name: str) -> tuple[int | None, ...]:
        """What is known of the shape of a tensor, for a batch of one; empty if it is nothing."""
        info = self.model.tensors.get(name)
        return () if info is None else info.shape

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """Inputs of the model, without the constants that old files list among them."""
        names = {info.name for info in self.model.inputs}
        return [value for value in self.proto.graph.input if value.name in names]


def prepare(proto: onnx.ModelProto) -> FloatModel:
    """Bring a float model to opset 13 or later, and fold its constants.

    Raises
    ------
    CompileError
        If it is not valid, cannot be converted, or is quantized already.
    """
    proto = _converted(proto)
    model = load(proto)
    constants = dict(model.constants)
    nodes: list[Node] = []
    outputs = {info.name for info in model.outputs}
    for node in model.nodes:
        if not _is_constant(node, constants) or {*node.outputs} & outputs:
            nodes.append(_sum_as_add(node))
            continue
        inputs = [constants[name] if name else None for name in node.inputs]
        try:
            constants[node.outputs[0]] = _folded(node, model.opset, inputs)
        except CompileError as error:
            raise CompileError(f"node {node.name!r} ({node.op}): {error}") from None
    for node in nodes:
        if node.op in ("QuantizeLinear", "DequantizeLinear") or "." in node.op:
            raise CompileError(f"node {node.name!r} ({node.op}); supported: float models of ONNX's own operators; "
                               "a quantized model needs no calibration")
    return FloatModel(model=model, nodes=tuple(nodes), constants=constants, proto=proto)


def _converted(proto: onnx.ModelProto) -> onnx.ModelProto:
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    # Without an opset the model is refused when it is loaded.
    if opset >= _OLDEST or opset < 1:
        return proto
    problem = ""
    for target in (_TARGET, _OLDEST):
        try:
            return _resized_as_before(version_converter.convert_version(proto, target), opset)
        # What it raises has no common type.
        except Exception as error:
            problem = " ".join(str(error).split())
    raise CompileError(f"the model is of opset {opset} and cannot be converted to opset {_OLDEST} ({problem}); "
                       f"export it with opset {_OLDEST} or later")


def _resized_as_before(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Give Resize the coordinates it had before opset 11: the converter leaves it those of today's default."""
    for node in proto.graph.node:
        if node.op_type == "Resize" and opset < 11:
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", "floor"))
    return proto


def _is_constant(node: Node, constants: Mapping[str, np.ndarray]) -> bool:
    return (node.op in _FOLDED and len(node.outputs) == 1 and any(node.inputs)
            and all(not name or name in constants for name in node.inputs))


def _folded(node: Node, opset: int, inputs: list[np.ndarray | None]) -> np.ndarray:
    """What a node makes of constants."""
    _check_size(node, inputs)
    match node.op, inputs:
        case "DequantizeLinear", [np.ndarray() as codes, *_]:
            return parameters(node, inputs, codes).weight(codes).real()
        case "QuantizeLinear", [np.ndarray() as x, *_]:
            return parameters(node, inputs).quantize(x)
    return fold_constants(node, opset, inputs)


def _check_size(node: Node, inputs: Sequence[np.ndarray | None]) -> None:
    """Refuse what would make more than it may, before it does; ConstantOfShape is checked where it is computed."""
    try:
        count = _count(node.op, [array for array in inputs if array is not None])
    except (IndexError, TypeError, ValueError) as error:
        raise CompileError(f"cannot be computed ({error})") from None
    if count > MOST_ELEMENTS:
        raise CompileError(f"makes a constant of {count} elements; supported: {MOST_ELEMENTS}")


def _count(op: str, given: Sequence[np.ndarray]) -> int:
    """Elements that an operator makes of constants, or at least as many."""
    shapes = [array.shape for array in given]
    match op:
        case "Expand":
            return prod(_broadcast(shapes[0], [int(size) for size in given[1].reshape(-1)]))
        case "Tile":
            return prod(shapes[0]) * prod(int(count) for count in given[1].reshape(-1))
        case "Gather":
            return prod(shapes[0]) // max(shapes[0][0], 1) * prod(shapes[1]) if shapes[0] else 1
        case _ if op in _BROADCAST:
            return prod(_broadcast(*shapes))
    return sum(prod(shape) for shape in shapes)


def _broadcast(*shapes: Sequence[int]) -> list[int]:
    """The common shape, without the limits of NumPy's own."""
    rank = max(len(shape) for shape in shapes)
    return [max((*(1,) * (rank - len(shape)), *shape)[axis] for shape in shapes) for axis in range(rank)]


def _sum_as_add(node: Node) -> Node:
    if node.op != "Sum" or len(node.inputs) != 2:
        return node
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    proto.op_type = "Add"
    return replace(node, op="Add", proto=proto)
