"""ONNX files as plain nodes and arrays, cleaned up and in one spelling; with their errors named."""

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes  # noqa: F401 - gives NumPy the 2- and 4-bit integers of initializers
import numpy as np
import onnx
import onnx_ir
from google.protobuf.message import DecodeError, EncodeError
from onnx import numpy_helper
from onnx_ir.passes import common

from almac.compiler.graph import CompileError
from almac.compiler.operators import INFERRED
from almac.compiler.spellings.canonical import canonical

__all__ = ["MOST_ELEMENTS", "Model", "Node", "Source", "TensorInfo", "load", "load_proto", "save_proto"]

#: Opsets whose operators mean what the importer believes.
OPSETS = range(7, 26)

#: Elements that a tensor made while importing may have: no file makes the importer eat the machine's memory.
MOST_ELEMENTS = 1 << 27

#: Bytes of external data: what protobuf allows within a file.
_MOST_BYTES = 1 << 31

#: Nodes of a model, with those of its functions, and how deep these may call one another.
_MOST_NODES = 1 << 16
_MOST_CALLS = 100

#: Slices in a row whose shapes are inferred.
_MOST_SLICES = 16

#: What Einsum takes, without its spaces.
_TERM = rb"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(_TERM + rb"(," + _TERM + rb")*(->" + _TERM + rb")?")

_TWO_BIT = {getattr(onnx.TensorProto, "INT2", -1), getattr(onnx.TensorProto, "UINT2", -1)}
_INT2_OPSET = 25

#: A file, or a model in memory.
Source: TypeAlias = str | Path | onnx.ModelProto


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """One operator of the model.

    ``declined`` says why its spelling could not be turned into standard operators, if that was tried.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto
    declined: str = ""

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
    """A loaded model, for one image.

    Attributes
    ----------
    batch : int
        Images that the model's own inputs hold; 1 where that is symbolic.
    tensors : Mapping[str, TensorInfo]
        What is known of every tensor.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    opset: int
    batch: int
    tensors: Mapping[str, TensorInfo]


def load(source: Source) -> Model:
    """Read an ONNX file, or take the model that is given; in one spelling, without what nothing needs.

    Raises
    ------
    CompileError
        If there is none, or it is not one that this version reads.
    """
    title = "the model" if isinstance(source, onnx.ModelProto) else str(source)
    proto = onnx.ModelProto()
    proto.CopyFrom(load_proto(source))
    opset = _opset(proto, title)
    _check_text(proto.graph, title)
    _check_functions(proto)
    _check_names(proto.graph)
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        for index, node in enumerate(nodes):
            _check_node(index, node, opset)
    known = {entry.domain for entry in proto.opset_import}
    for domain in sorted({node.domain for node in proto.graph.node} - known - {"ai.onnx"}):
        # Some exporters forget to import what they use; shapes cannot be inferred then.
        proto.opset_import.add(domain=domain, version=1)
    names = {tensor.name for tensor in proto.graph.initializer}
    _check_origins(proto.graph, names)
    for tensor in proto.graph.initializer:
        _array(tensor, opset)
    inputs = tuple(_info(value) for value in proto.graph.input if value.name not in names)
    batch = _one_image(proto.graph, names)
    library = logging.getLogger("onnx_ir")
    level = library.level
    try:
        # It logs what it cannot infer, with a traceback.
        library.setLevel(logging.CRITICAL)
        model = onnx_ir.serde.deserialize_model(proto)
        _CLEAN_UP(model)
        declined = canonical(model)
        _infer_shapes(model)
        nodes = tuple(_node(node, opset, declined) for node in model.graph)
        tensors = {info.name: info for info in _tensors(model)}
        constants = {name: np.asarray(value.const_value.numpy())
                     for name, value in model.graph.initializers.items() if value.const_value is not None}
    except CompileError:
        raise
    # The library does not say which errors it has for models that are not valid.
    except Exception as error:
        raise CompileError(f"{title} is not a valid model ({error})") from None
    finally:
        library.setLevel(level)
    return Model(
        nodes=nodes,
        constants=constants,
        inputs=inputs,
        outputs=tuple(_info(value) for value in proto.graph.output),
        opset=opset, batch=batch, tensors=tensors)


#: The library's own passes; none of them touches what a quantizer means.
_CLEAN_UP = onnx_ir.passes.Sequential(
    common.InlinePass(), common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
    common.RemoveInitializersFromInputsPass(), common.RemoveUnusedNodesPass(), common.TopologicalSortPass())

#: Shapes of inner tensors; without them a node is asked what it makes of zeros.
_SHAPES = common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)


def _infer_shapes(model: onnx_ir.Model) -> None:
    """Shapes of inner tensors, where they are known.

    The library dies of a Slice of a size below zero, which damaged pads and scales make; so each is hidden from it
    until the shape that it reads is known. Operators that are seldom seen are hidden altogether.
    """
    others = [(node, node.op_type) for node in model.graph if node.op_type not in INFERRED and not node.domain]
    for node, op in others:
        node.op_type = f"Hidden{op}"
    _infer_slices(model)
    for node, op in others:
        node.op_type = op


def _infer_slices(model: onnx_ir.Model) -> None:
    hidden = [node for node in model.graph if node.op_type == "Slice" and node.domain == ""]
    for _ in range(_MOST_SLICES):
        for node in hidden:
            node.op_type = "HiddenSlice"
        _SHAPES(model)
        for node in hidden:
            node.op_type = "Slice"
        seen = [node for node in hidden if (value := node.inputs[0]) is not None and value.shape is not None
                and all(isinstance(size, int) and size >= 0 for size in value.shape)]
        if not seen:
            return
        hidden = [node for node in hidden if node not in seen]


def load_proto(source: Source) -> onnx.ModelProto:
    """The model as it is, with its external data.

    Raises
    ------
    CompileError
        If there is no such file, it is damaged, or names external data outside its folder.
    """
    if isinstance(source, onnx.ModelProto):
        return source
    path = Path(source)
    if not path.is_file():
        raise CompileError(f"{path} does not exist" if not path.exists() else f"{path} is not a file")
    try:
        model = onnx.load(path, load_external_data=False)
        _check_external(model, path.parent)
        onnx.load_external_data_for_model(model, str(path.parent))
        return model
    except (DecodeError, OSError, ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise CompileError(f"{path} is not a whole ONNX file ({error})") from None


def _check_external(model: onnx.ModelProto, folder: Path) -> None:
    """What is read of other files is no more than a file may hold: they may be devices, or mostly holes."""
    total = 0
    tensors = [*model.graph.initializer, *(item.t for node in model.graph.node for item in node.attribute)]
    for tensor in tensors:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if tensor.data_location != onnx.TensorProto.EXTERNAL or not entries.get("location"):
            continue
        path = folder / entries["location"]
        total += int(entries["length"]) if "length" in entries else path.stat().st_size if path.is_file() else 0
        if total > _MOST_BYTES:
            raise CompileError(f"initializer {tensor.name!r} brings the external data to {total} bytes; supported: "
                               f"{_MOST_BYTES}")


def save_proto(source: Source, path: Path) -> None:
    """Write the model as one file, with its external data in it where protobuf allows that."""
    proto = load_proto(source)
    try:
        path.write_bytes(proto.SerializeToString())
    except (ValueError, EncodeError):
        # Beyond 2 GB.
        onnx.save(proto, path, save_as_external_data=True, location=f"{path.name}.data")


def _opset(proto: onnx.ModelProto, title: str) -> int:
    if not proto.graph.node:
        raise CompileError(f"{title} holds no ONNX graph")
    opset = next((int(entry.version) for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset < OPSETS[0]:
        raise CompileError(f"{title} is of opset {opset}; supported: {OPSETS[0]} to {OPSETS[-1]}; "
                           "convert it with onnx.version_converter")
    if opset > OPSETS[-1]:
        warnings.warn(f"{title} is of opset {opset}; its operators are taken for those of {OPSETS[-1]}, the newest "
                      "known", stacklevel=3)
    return min(opset, OPSETS[-1])


def _one_image(graph: onnx.GraphProto, constants: set[str]) -> int:
    """Set the batch of every input to 1, and forget the shapes that were derived from it; the batch that was."""
    batches = set()
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim in dims:
            if dim.HasField("dim_value") and dim.dim_value < 0:
                dim.ClearField("dim_value")
        if value.name not in constants and len(dims):
            batches.add(int(dims[0].dim_value) if dims[0].HasField("dim_value") else 1)
            dims[0].dim_value = 1
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    return max(batches, default=1)


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


def _check_origins(graph: onnx.GraphProto, constants: set[str]) -> None:
    """Every tensor that is read is made before, in some order of the nodes."""
    known = {"", *constants, *(value.name for value in graph.input)}
    waiting = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    missing = {id(node): len({*node.input} - known) for node in graph.node}
    for node in graph.node:
        for name in {*node.input} - known:
            readers.setdefault(name, []).append(node)
    ready = [node for node in graph.node if not missing[id(node)]]
    count = len(ready)
    while ready:
        for name in ready.pop().output:
            waiting.pop(name, None)
            for reader in readers.pop(name, ()):
                missing[id(reader)] -= 1
                if not missing[id(reader)]:
                    ready.append(reader)
                    count += 1
    if count < len(graph.node):
        node = next(node for node in graph.node if missing[id(node)])
        lost = sorted({*node.input} & {*readers})
        raise CompileError(f"node {node.name!r} ({node.op_type}) reads {', '.join(lost)}, which nothing makes, or "
                           "which depends on the node itself")
    if direct := [value.name for value in graph.output if value.name in known - {""}]:
        raise CompileError(f"the output {direct[0]!r} is an input or a constant; remove it, or put a node before "
                           "it")
    made = known | {name for node in graph.node for name in node.output}
    if lost := [value.name for value in graph.output if not value.name or value.name not in made]:
        raise CompileError(f"the model is not valid: nothing makes the output {lost[0]!r}")


def _array(tensor: onnx.TensorProto, opset: int) -> np.ndarray:
    if tensor.data_type in _TWO_BIT and opset < _INT2_OPSET:
        raise CompileError(f"initializer {tensor.name!r} is of a 2-bit type, which exists from opset "
                           f"{_INT2_OPSET} on; this model is of opset {opset}")
    try:
        return numpy_helper.to_array(tensor)
    except (KeyError, TypeError, ValueError, MemoryError, OverflowError, OSError,
            onnx.checker.ValidationError) as error:
        raise CompileError(f"initializer {tensor.name!r} cannot be read ({error})") from None


def _check_node(index: int, proto: onnx.NodeProto, opset: int) -> None:
    """Outputs, and attributes of the types that ONNX gives them; a node without a name gets one."""
    proto.name = proto.name or f"{proto.op_type}_{index}"
    where = f"node {proto.name!r} ({proto.op_type})"
    if not any(proto.output):
        raise CompileError(f"{where} has no output")
    for item in proto.attribute:
        if item.type not in {*onnx.AttributeProto.AttributeType.values()} - {onnx.AttributeProto.UNDEFINED}:
            raise CompileError(f"{where}: the attribute {item.name} is of no known type")
    if any(item.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for item in proto.attribute):
        raise CompileError(f"{where} holds a graph of its own; supported: straight-line models; simplify the model "
                           "(onnxscript.optimizer unrolls what is constant)")
    if proto.domain not in ("", "ai.onnx") or not onnx.defs.has(proto.op_type, max_inclusive_version=opset):
        return
    schema: Any = onnx.defs.get_schema(proto.op_type, opset)
    _check_operands(proto, schema, where)
    known = schema.attributes
    names = [item.name for item in proto.attribute]
    if len(set(names)) < len(names):
        raise CompileError(f"{where} has two attributes of one name")
    for item in proto.attribute:
        # The library's inference divides by the one, and never ends with the other.
        if item.name == "group" and item.i < 1:
            raise CompileError(f"{where}: group is below 1")
        if item.name == "equation" and not _EQUATION.fullmatch(item.s.replace(b" ", b"")):
            raise CompileError(f"{where}: equation = {item.s.decode(errors='replace')!r} is none")
    for item in proto.attribute:
        if item.type == onnx.AttributeProto.TENSOR:
            _array(item.t, opset)
        if item.name not in known:
            raise CompileError(f"{where}: the attribute {item.name} does not exist in opset {opset}")
        expected: Any = known[item.name].type
        if int(item.type) != expected.value:
            raise CompileError(f"{where}: the attribute {item.name} is not of the type {expected.name}")


def _check_operands(proto: onnx.NodeProto, schema: Any, where: str) -> None:
    """As many inputs and outputs as the operator has: the library's inference dies of what is not there."""
    for what, count, low, high in (("inputs", len(proto.input), schema.min_input, schema.max_input),
                                   ("outputs", len(proto.output), schema.min_output, schema.max_output)):
        if not low <= count <= high:
            raise CompileError(f"{where} has {count} {what}; its operator has " + (
                f"{low}" if low == high else f"{low} to {high}" if high < 1 << 16 else f"{low} or more"))
    for index, name in enumerate(proto.input):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if not name and formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
            raise CompileError(f"{where} leaves out its input {index} ({formal.name}), which its operator needs")


def _check_functions(model: onnx.ModelProto) -> None:
    """Functions of the model end, and are of a bounded size when each call is replaced by its nodes."""
    def calls(nodes: Iterable[onnx.NodeProto]) -> list[tuple[str, str, str]]:
        return [key for node in nodes if (key := (node.domain, node.op_type, node.overload)) in functions]

    functions = {(function.domain, function.name, function.overload): function.node for function in model.functions}
    try:
        order = (*TopologicalSorter({key: calls(nodes) for key, nodes in functions.items()}).static_order(),)
    except CycleError as error:
        raise CompileError(f"the function {error.args[1][0][1]!r} of the model calls itself") from None
    sizes: dict[tuple[str, str, str], tuple[int, int]] = {}
    for key, nodes in (*((key, functions[key]) for key in order), (("", "", ""), model.graph.node)):
        inner = [sizes[name] for name in calls(nodes)]
        sizes[key] = (len(nodes) + sum(count for count, _ in inner),
                      1 + max((depth for _, depth in inner), default=0))
    count, depth = sizes["", "", ""]
    if count > _MOST_NODES or depth > _MOST_CALLS:
        raise CompileError(f"the model has {count} nodes when its functions, {depth} deep, are inlined; supported: "
                           f"{_MOST_NODES} nodes, {_MOST_CALLS} deep")


def _node(node: onnx_ir.Node, opset: int, declined: Mapping[str, str]) -> Node:
    proto = onnx_ir.serde.serialize_node(node)
    attributes: dict[str, Any] = {}
    for item in proto.attribute:
        value = onnx.helper.get_attribute_value(item)
        if isinstance(value, onnx.TensorProto):
            value = _array(value, opset)
        attributes[item.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    op = proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
    return Node(op=op, name=proto.name, inputs=tuple(proto.input), outputs=tuple(proto.output),
                attributes=attributes, proto=proto, declined=declined.get(proto.name, ""))


def _tensors(model: onnx_ir.Model) -> list[TensorInfo]:
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    return [TensorInfo(name=value.name or "", dtype=np.dtype(value.dtype.numpy()),
                       shape=tuple(size if isinstance(size, int) and size >= 0 else None for size in value.shape))
            for value in values
            if value.dtype not in (None, onnx_ir.DataType.UNDEFINED) and value.shape is not None]


def _info(value: onnx.ValueInfoProto) -> TensorInfo:
    tensor = value.type.tensor_type
    dtype = np.dtype(np.float32)
    if tensor.elem_type:
        try:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except KeyError:
            raise CompileError(f"tensor {value.name!r} is of the unknown type {tensor.elem_type}") from None
    shape = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in tensor.shape.dim)
    if prod(size or 1 for size in shape) > MOST_ELEMENTS:
        raise CompileError(f"tensor {value.name!r} has the shape {list(shape)}; supported: {MOST_ELEMENTS} "
                           "elements; use a smaller input")
    return TensorInfo(name=value.name, dtype=dtype, shape=shape)
