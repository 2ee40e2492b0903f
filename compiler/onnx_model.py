"""ONNX files as plain nodes and arrays; the only module that imports onnx, with its errors named."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy the 2- and 4-bit integers of initializers
import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper, shape_inference

from almac.compiler.graph import CompileError

__all__ = ["Model", "Node", "TensorInfo", "load", "run_nodes"]

#: Opsets whose operators mean what the importer believes.
OPSETS = range(13, 26)

#: Narrow integers, by the number of their ONNX type: exact as int8.
_NARROW = {onnx.TensorProto.INT4, onnx.TensorProto.UINT4,
           getattr(onnx.TensorProto, "INT2", -1), getattr(onnx.TensorProto, "UINT2", -1)}
_TWO_BIT = {getattr(onnx.TensorProto, "INT2", -1), getattr(onnx.TensorProto, "UINT2", -1)}
_INT2_OPSET = 25


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """One operator of the model."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto


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


def load(path: str | Path) -> Model:
    """Read an ONNX file.

    Raises
    ------
    CompileError
        If there is none, or it is not one that this version reads.
    """
    path = Path(path)
    try:
        proto = onnx.load(path)
    except FileNotFoundError:
        raise CompileError(f"{path} does not exist") from None
    except (DecodeError, OSError, ValueError, onnx.checker.ValidationError) as error:
        raise CompileError(f"{path} is not a whole ONNX file ({error})") from None
    if not proto.graph.node:
        raise CompileError(f"{path} holds no ONNX graph")
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        raise CompileError(f"{path} is of opset {opset}; supported: {OPSETS[0]} to {OPSETS[-1]}; "
                           "convert it with onnx.version_converter")
    constants = {}
    for tensor in proto.graph.initializer:
        if tensor.data_type in _TWO_BIT and opset < _INT2_OPSET:
            raise CompileError(f"initializer {tensor.name!r} is of a 2-bit type, which exists from opset "
                               f"{_INT2_OPSET} on; this model is of opset {opset}")
        constants[tensor.name] = _array(tensor)
    try:
        inferred = shape_inference.infer_shapes(proto)
    except Exception:
        inferred = proto
    infos = [*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output]
    return Model(
        nodes=_in_order([_node(index, node) for index, node in enumerate(proto.graph.node)],
                        {*constants, *(value.name for value in proto.graph.input)}),
        constants=constants,
        inputs=tuple(_info(value) for value in proto.graph.input if value.name not in constants),
        outputs=tuple(_info(value) for value in proto.graph.output),
        opset=opset,
        shapes={value.name: _info(value).shape for value in infos})


def run_nodes(nodes: list[Node], opset: int, name: str, x: np.ndarray,
              constants: Mapping[str, np.ndarray]) -> np.ndarray:
    """Output of a chain of nodes for the float32 values ``x`` of the tensor ``name``."""
    from onnx.reference import ReferenceEvaluator

    needed = {i for node in nodes for i in node.inputs} & set(constants)
    graph = onnx.helper.make_graph(
        [node.proto for node in nodes], "chain",
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(x.shape))],
        [onnx.helper.make_tensor_value_info(nodes[-1].outputs[0], onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(constants[item], item) for item in needed])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    results: Any = ReferenceEvaluator(model).run(None, {name: x.astype(np.float32)})
    return np.asarray(results[0], np.float32)


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    array = numpy_helper.to_array(tensor)
    return array.astype(np.int8) if tensor.data_type in _NARROW else array


def _node(index: int, proto: onnx.NodeProto) -> Node:
    attributes: dict[str, Any] = {item.name: onnx.helper.get_attribute_value(item) for item in proto.attribute}
    for name, value in list(attributes.items()):
        if isinstance(value, onnx.TensorProto):
            attributes[name] = _array(value)
        elif isinstance(value, bytes):
            attributes[name] = value.decode()
    op = proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
    return Node(op=op, name=proto.name or f"{proto.op_type}_{index}", inputs=tuple(proto.input),
                outputs=tuple(proto.output), attributes=attributes, proto=proto)


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
        for node in ready:
            known |= set(node.outputs)
        ordered += ready
        waiting = [node for node in waiting if node not in ready]
    return tuple(ordered)


def _info(value: onnx.ValueInfoProto) -> TensorInfo:
    tensor = value.type.tensor_type
    dtype = np.dtype(np.float32)
    if tensor.elem_type:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return TensorInfo(
        name=value.name, dtype=dtype,
        shape=tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None
                    for d in tensor.shape.dim))
