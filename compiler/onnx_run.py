"""Nodes of a model, executed: on constants, on codes, and on what the host computes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from almac.compiler.graph import CompileError
from almac.compiler.onnx_model import MOST_ELEMENTS, Node

__all__ = ["MOST_ELEMENTS", "check_model", "fold_constants", "node_model", "run_functions", "run_model"]

#: Elements of what is made of less than that, while importing.
_MOST_MADE = 1 << 25

#: Newest format of files whose operators are of opset 24 and below.
_IR_VERSION = 10

#: Operators whose meaning has not changed from the oldest opset that is read to the newest.
_ALWAYS_THE_SAME = {
    "Abs", "Add", "Cast", "Concat", "Conv", "Div", "Erf", "Exp", "Flatten", "Floor", "Identity", "LRN", "LeakyRelu",
    "Log", "MatMul", "Mul", "Neg", "Relu", "Reshape", "Sigmoid", "Sqrt", "Sub", "Tanh", "Transpose",
}
_USUAL_OPSET = 21

_ERRORS: Any = (
    AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError, OverflowError, RuntimeError,
    TypeError, ValueError, ZeroDivisionError, onnx.checker.ValidationError)


def fold_constants(node: Node, opset: int, inputs: Sequence[np.ndarray | None]) -> np.ndarray:
    """First output of a node all of whose inputs are constants."""
    if node.op == "ConstantOfShape":
        # The only operator here whose result may be much larger than what it reads; and a quick one.
        if np.asarray(inputs[0]).dtype.kind not in "iu":
            raise CompileError("makes a constant whose shape is not of integers")
        shape = [int(size) for size in np.asarray(inputs[0]).reshape(-1)]
        if min(shape, default=1) < 0 or prod(shape) > _MOST_MADE:
            raise CompileError(f"makes a constant of the shape {shape}; supported: {_MOST_MADE} elements")
        value = np.asarray(node.attributes.get("value", np.zeros(1, np.float32))).reshape(-1)
        if value.size != 1:
            raise CompileError(f"fills a constant with {value.size} numbers; its operator takes one")
        return np.full(shape, value[0], value.dtype)
    given = {name: array for name, array in zip(node.inputs, inputs, strict=True)
             if name and array is not None}
    return _reference([node], opset, given)


def run_functions(nodes: Sequence[Node], opset: int, starts: Mapping[str, np.ndarray],
                  constants: Mapping[str, np.ndarray]) -> np.ndarray:
    """Output of the last of ``nodes``, element by element functions of the tensors ``starts``, in their type."""
    needed = {name for node in nodes for name in node.inputs} - {*starts}
    kind = next(iter(starts.values())).dtype
    used = {name: array.astype(kind) if array.dtype.kind == "f" else array
            for name, array in constants.items() if name in needed}
    return _reference(nodes, opset, {**starts, **used}).astype(kind)


def _reference(nodes: Sequence[Node], opset: int, given: Mapping[str, np.ndarray]) -> np.ndarray:
    try:
        graph = helper.make_graph(
            [node.proto for node in nodes], "part",
            [_input(name, array.dtype, array.shape) for name, array in given.items()],
            [onnx.ValueInfoProto(name=nodes[-1].outputs[0])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        _check_sizes(model, sum(array.size for array in given.values()))
        with np.errstate(all="ignore"):
            results: Any = ReferenceEvaluator(model).run(None, dict(given))
    except CompileError:
        raise
    except _ERRORS as error:
        # What the reference evaluator says about a node that is not as its operator demands.
        raise CompileError(f"cannot be computed ({error})") from None
    return np.asarray(results[0])


def node_model(nodes: Sequence[onnx.NodeProto], opset: int, inputs: Mapping[str, np.dtype[Any]],
               constants: Mapping[str, np.ndarray], output: str) -> bytes:
    """ONNX model of ``nodes``, with one output.

    Its tensors are numbered, and operators that mean the same in every opset are those of one: models that differ
    in nothing but names and opset are the same bytes.
    """
    if all(node.op_type in _ALWAYS_THE_SAME for node in nodes):
        opset = _USUAL_OPSET
    made = [name for node in nodes for name in node.output if name]
    names = {name: f"{kind}{k}" for kind, group in (("input", inputs), ("constant", constants), ("made", made))
             for k, name in enumerate(group)}
    renamed = []
    for node in nodes:
        proto = onnx.NodeProto()
        proto.CopyFrom(node)
        proto.ClearField("name")
        proto.ClearField("doc_string")
        del proto.metadata_props[:], proto.input[:], proto.output[:]
        proto.input.extend(names.get(name, name) for name in node.input)
        proto.output.extend(names.get(name, name) for name in node.output)
        renamed.append(proto)
    try:
        graph = helper.make_graph(
            renamed, "part", [_input(names[name], dtype) for name, dtype in inputs.items()],
            [onnx.ValueInfoProto(name=names.get(output, output))],
            [numpy_helper.from_array(np.asarray(array), names[name]) for name, array in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                  ir_version=13 if opset > 24 else _IR_VERSION)
        return model.SerializeToString()
    except _ERRORS as error:
        raise CompileError(f"cannot be a model of its own ({error})") from None


def run_model(model: bytes, args: Sequence[np.ndarray]) -> np.ndarray:
    """Output of a model of :func:`node_model` for one image, by onnxruntime.

    Raises
    ------
    CompileError
        If the nodes are not as their operators demand.
    """
    _check_growth(model, tuple(arg.shape for arg in args))
    try:
        session = _session(model)
        names = [item.name for item in session.get_inputs()]
        results: Any = session.run(None, dict(zip(names, args, strict=True)))
    # Its exceptions have no common type.
    except Exception as error:
        text = " ".join(str(error).split())
        raise CompileError(f"cannot be computed ({text})") from None
    if not isinstance(results[0], np.ndarray):
        raise CompileError("makes a sequence or nothing; supported: tensors")
    return results[0]


@lru_cache(maxsize=256)
def _check_growth(model: bytes, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Refuse a model that makes large tensors of inputs of these shapes, before it takes the memory for them."""
    proto = onnx.load_from_string(model)
    for value, shape in zip(proto.graph.input, shapes, strict=True):
        value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape))
    _check_sizes(proto, sum(prod(shape) for shape in shapes))


def _check_sizes(model: onnx.ModelProto, known_elements: int) -> None:
    """Refuse what gets large, and larger than all that it is made of."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    # A model that is not valid makes nothing; who runs it says why.
    except Exception:
        return
    known = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
             for value in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        if node.op_type == "OneHot":
            # Inference does not know the one size that a number of the model gives.
            depth = [numpy_helper.to_array(tensor) for tensor in graph.initializer if tensor.name == node.input[1]]
            known[node.output[0]] = [*known.get(node.input[0], ()), *(
                int(size) for array in depth if array.dtype.kind in "iuf"
                for size in array.flat if np.isfinite(size))]
    for shape in known.values():
        if prod(shape) > max(_MOST_MADE, known_elements):
            raise CompileError(f"makes a tensor of the shape {shape}; supported: {_MOST_MADE} elements")


def check_model(model: bytes) -> None:
    """Let onnxruntime read a model of :func:`node_model`, without running it.

    Raises
    ------
    CompileError
        If its operators do not take these types.
    """
    try:
        _session(model)
    # Its exceptions have no common type.
    except Exception as error:
        raise CompileError(f"cannot be computed ({' '.join(str(error).split())})") from None


@lru_cache(maxsize=256)
def _session(model: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    # Many small models are kept, and each would have threads and an arena of its own.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _input(name: str, dtype: np.dtype[Any], shape: Sequence[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
