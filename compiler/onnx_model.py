"""ONNX files as plain nodes and arrays; the only module that imports onnx, with its errors named."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes  # noqa: F401 - gives NumPy the 2- and 4-bit integers of initializers
import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from almac.compiler.graph import CompileError

__all__ = ["Model", "Node", "Source", "TensorInfo", "fold_constants", "load", "run_nodes"]

#: Opsets whose operators mean what the importer believes.
OPSETS = range(13, 26)

_TWO_BIT = {getattr(onnx.TensorProto, "INT2", -1), getattr(onnx.TensorProto, "UINT2", -1)}
_INT2_OPSET = 25

#: A file, or a model in memory.
Source: TypeAlias = str | Path | onnx.ModelProto


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """One operator of the model."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, default))


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """Type and shape of an input or output; None for a dimension that has no number."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A loaded model."""

    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    opset: int
    shapes: Mapping[str, tuple[int | None, ...]]


def load(source: Source) -> Model:
    """Read an ONNX file, or take the model that is given.

    Raises
    ------
    CompileError
        If there is none, or it is not one that this version reads.
    """
    title, proto = ("the model", source) if isinstance(source, onnx.ModelProto) else _read(Path(source))
    if not proto.graph.node:
        raise CompileError(f"{title} holds no ONNX graph")
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        raise CompileError(f"{title} is of opset {opset}; supported: {OPSETS[0]} to {OPSETS[-1]}; "
                           "convert it with onnx.version_converter")
    _check_text(proto.graph, title)
    _check_names(proto.graph)
    constants = {tensor.name: _array(tensor, opset) for tensor in proto.graph.initializer}
    try:
        inferred = shape_inference.infer_shapes(proto)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        # Shapes of inner tensors are for messages only.
        inferred = proto
    infos = [*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output]
    return Model(
        nodes=_in_order([_node(index, node, opset) for index, node in enumerate(proto.graph.node)],
                        {*constants, *(value.name for value in proto.graph.input)}),
        constants=constants,
        inputs=tuple(_info(value) for value in proto.graph.input if value.name not in constants),
        outputs=tuple(_info(value) for value in proto.graph.output),
        opset=opset,
        shapes={value.name: _info(value).shape for value in infos})


def fold_constants(node: Node, opset: int, inputs: Sequence[np.ndarray | None]) -> np.ndarray:
    """First output of a node all of whose inputs are constants."""
    given = {name: array for name, array in zip(node.inputs, inputs, strict=True)
             if name and array is not None}
    return _run([node], opset, {}, given)


def run_nodes(nodes: Sequence[Node], opset: int, starts: Mapping[str, np.ndarray],
              constants: Mapping[str, np.ndarray]) -> np.ndarray:
    """Output of the last of ``nodes``, which compute on the float32 tensors ``starts``."""
    needed = {name for node in nodes for name in node.inputs} - {*starts}
    used = {name: array for name, array in constants.items() if name in needed}
    return _run(nodes, opset, used, starts).astype(np.float32)


def _run(nodes: Sequence[Node], opset: int, constants: Mapping[str, np.ndarray],
         given: Mapping[str, np.ndarray]) -> np.ndarray:
    feeds: dict[str, Any] = dict(given)
    try:
        with np.errstate(all="ignore"):
            results: Any = _evaluator(nodes, opset, constants, given).run(None, feeds)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # What the reference evaluator says about a node that is not as its operator demands.
        raise CompileError(f"cannot be computed ({error})") from None
    return np.asarray(results[0])


def _evaluator(nodes: Sequence[Node], opset: int, constants: Mapping[str, np.ndarray],
               given: Mapping[str, np.ndarray]) -> ReferenceEvaluator:
    graph = onnx.helper.make_graph(
        [node.proto for node in nodes], "part",
        [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), None)
         for name, array in given.items()],
        [onnx.helper.make_tensor_value_info(nodes[-1].outputs[0], onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()])
    return ReferenceEvaluator(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)]))


def _read(path: Path) -> tuple[str, onnx.ModelProto]:
    if not path.is_file():
        raise CompileError(f"{path} does not exist" if not path.exists() else f"{path} is not a file")
    try:
        return str(path), onnx.load(path)
    except (DecodeError, OSError, ValueError, onnx.checker.ValidationError) as error:
        raise CompileError(f"{path} is not a whole ONNX file ({error})") from None


def _check_text(graph: onnx.GraphProto, title: str) -> None:
    """Names are text: protobuf leaves what is not UTF-8 as bytes."""
    names = [tensor.name for tensor in (*graph.initializer, *graph.input, *graph.output, *graph.value_info)]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output,
                  *(item.name for item in node.attribute)]
    if any(isinstance(name, bytes) for name in names):
        raise CompileError(f"{title} is not a whole ONNX file (it has names that are not text)")


def _check_names(graph: onnx.GraphProto) -> None:
    """Every tensor has one origin, and leaves the model once; an initializer may be listed as an input."""
    inputs = [value.name for value in graph.input]
    constants = {tensor.name for tensor in graph.initializer} - {*inputs}
    made = [name for node in graph.node for name in node.output if name]
    for what, names in (("made", [*inputs, *constants, *made]),
                        ("listed as an output", [value.name for value in graph.output])):
        if twice := sorted(name for name, count in Counter(names).items() if count > 1):
            raise CompileError(f"the model is not valid: {', '.join(map(repr, twice))} is {what} more than once")


def _array(tensor: onnx.TensorProto, opset: int) -> np.ndarray:
    if tensor.data_type in _TWO_BIT and opset < _INT2_OPSET:
        raise CompileError(f"initializer {tensor.name!r} is of a 2-bit type, which exists from opset "
                           f"{_INT2_OPSET} on; this model is of opset {opset}")
    try:
        return numpy_helper.to_array(tensor)
    except (KeyError, TypeError, ValueError) as error:
        raise CompileError(f"initializer {tensor.name!r} cannot be read ({error})") from None


def _node(index: int, proto: onnx.NodeProto, opset: int) -> Node:
    attributes: dict[str, Any] = {}
    if not any(proto.output):
        raise CompileError(f"node {_name(index, proto)!r} ({proto.op_type}) has no output")
    _check_attributes(index, proto, opset)
    for item in proto.attribute:
        value = onnx.helper.get_attribute_value(item)
        if isinstance(value, onnx.TensorProto):
            value = _array(value, opset)
        attributes[item.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    op = proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
    return Node(op=op, name=_name(index, proto), inputs=tuple(proto.input),
                outputs=tuple(proto.output), attributes=attributes, proto=proto)


def _check_attributes(index: int, proto: onnx.NodeProto, opset: int) -> None:
    """Attributes exist, and have the types that ONNX gives them."""
    if proto.domain not in ("", "ai.onnx") or not onnx.defs.has(proto.op_type, max_inclusive_version=opset):
        return
    known = onnx.defs.get_schema(proto.op_type, opset).attributes
    for item in proto.attribute:
        where = f"node {_name(index, proto)!r} ({proto.op_type}): the attribute {item.name}"
        if item.name not in known:
            raise CompileError(f"{where} does not exist in opset {opset}")
        expected: Any = known[item.name].type
        if int(item.type) != expected.value:
            raise CompileError(f"{where} is not of the type {expected.name}")


def _name(index: int, proto: onnx.NodeProto) -> str:
    return proto.name or f"{proto.op_type}_{index}"


def _in_order(nodes: list[Node], known: set[str]) -> tuple[Node, ...]:
    """Nodes, each after those that it reads."""
    known = known | {""}
    ordered: list[Node] = []
    waiting = nodes
    while waiting:
        ready = [node for node in waiting if set(node.inputs) <= known]
        if not ready:
            node = waiting[0]
            missing = sorted(set(node.inputs) - known)
            raise CompileError(f"node {node.name!r} ({node.op}) reads {', '.join(missing)}, which "
                               "nothing makes, or which depends on the node itself")
        known |= {name for node in ready for name in node.outputs}
        ordered += ready
        waiting = [node for node in waiting if node not in ready]
    return tuple(ordered)


def _info(value: onnx.ValueInfoProto) -> TensorInfo:
    tensor = value.type.tensor_type
    dtype = np.dtype(np.float32)
    if tensor.elem_type:
        try:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except KeyError:
            raise CompileError(f"tensor {value.name!r} is of the unknown type {tensor.elem_type}") from None
    return TensorInfo(
        name=value.name, dtype=dtype,
        shape=tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None
                    for d in tensor.shape.dim))
