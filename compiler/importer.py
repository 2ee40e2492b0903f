"""ONNX to the integer graph.

Walks the nodes once. Each tensor is, at any time, one of the states of :mod:`almac.compiler.states`: a constant,
codes, something on its way to the next quantizer, or a real tensor of the host. A quantizer closes what is open
before it. A node that does not fit is computed by the host, with the reason why; whether a device can do with
that is for the schedule to say. Only nodes that are not valid are refused here, all of them in one error.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from almac.compiler.builder import Builder
from almac.compiler.closing import close
from almac.compiler.elementwise import chain
from almac.compiler.epilogue import after_sum, bounds
from almac.compiler.graph import CompileError, Graph, Quantize, Table, Value
from almac.compiler.host_work import HostWork
from almac.compiler.layouts import concatenated, moved, pair, rearranged
from almac.compiler.linear import Linear, convolution, identity, matrix_product, transposed_convolution
from almac.compiler.messages import invalid, reason, shape_text
from almac.compiler.onnx_model import Model, Node, Source, load
from almac.compiler.onnx_run import fold_constants
from almac.compiler.operators import FUNCTIONS, MOVES
from almac.compiler.pooling import AVERAGES, MAXIMA, average, drops_columns, maximum
from almac.compiler.quantizers import parameters
from almac.compiler.states import (
    Chain,
    Codes,
    Joined,
    Motion,
    Moved,
    Product,
    Real,
    State,
    Sum,
    Unsupported,
    Weight,
)

__all__ = ["import_model"]

#: Operators on constants that are computed while importing.
_ON_CONSTANTS = {
    "Abs", "Add", "Cast", "Ceil", "Clip", "Concat", "ConstantOfShape", "Div", "Equal", "Exp", "Flatten", "Floor",
    "Gather", "Identity", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Pow", "Reciprocal", "ReduceProd", "Reshape",
    "Round", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Transpose", "Unsqueeze", "Where",
}

_CHANNEL_AFFINE = {"Add", "BatchNormalization", "Div", "Mul", "Sub"}

#: Operators that take codes as they are.
_ON_CODES = {"Concat", "MaxPool"}

_PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}

_REALS = (np.int32, np.float16, np.float32)


def import_model(source: Source) -> Graph:
    """Read an ONNX model, from a file or in memory.

    Raises
    ------
    CompileError
        Naming every node that is not valid.
    """
    return _Importer(load(source)).run()


class _Importer:
    """State of one walk over a model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.states: dict[str, State] = dict(model.constants)
        self.graph = Builder()
        self.host = HostWork(model, self.states, self.graph)
        self.problems: list[str] = []

    def run(self) -> Graph:
        for info in self.model.inputs:
            self._input(info.name, info.dtype, info.shape)
        for node in self.model.nodes:
            self._node(node)
        if self.problems:
            raise invalid(self.problems)
        for info in self.model.outputs:
            self._output(info.name)
        if self.problems:
            raise invalid(self.problems)
        return self.graph.finish([info.name for info in self.model.inputs],
                                 [info.name for info in self.model.outputs], self.model.opset)

    def _input(self, name: str, dtype: np.dtype[Any], sizes: tuple[int | None, ...]) -> None:
        shape = tuple(size for size in sizes[1:] if size is not None)
        if not sizes or len(shape) != len(sizes) - 1:
            raise CompileError(
                f"input {name!r} has the shape {shape_text(sizes)}; supported: a batch followed by fixed "
                "sizes; fix them with onnxruntime.tools.make_dynamic_shape_fixed")
        self.states[name] = Real(name=name, dtype=dtype, shape=shape)
        self.graph.dtypes[name] = dtype
        self.graph.values[name] = Value(shape=shape, kind="real")

    def _node(self, node: Node) -> None:
        inputs = [self.states.get(name) if name else None for name in node.inputs]
        if any(isinstance(state, Unsupported) for state in inputs):
            results: Sequence[State] = [Unsupported()] * len(node.outputs)
        else:
            results = self._lower(node, inputs)
        for name, result in zip(node.outputs, results, strict=False):
            self.states[name] = result

    def _lower(self, node: Node, inputs: list[State]) -> Sequence[State]:
        """States of the outputs of ``node``."""
        try:
            try:
                result = self._on_array(node, inputs)
            except RecursionError:
                return self.host.lower(node, inputs, "is behind too many nodes that wait for a quantizer; quantize "
                                       "the tensor before it")
            except CompileError as error:
                if node.op == "QuantizeLinear" and isinstance(inputs[0], Real) and inputs[0].dtype not in _REALS:
                    raise
                return self.host.lower(node, inputs, str(error))
        except CompileError as error:
            self.problems.append(f"{self.host.where(node)}: {error}")
            return [Unsupported()] * len(node.outputs)
        return result if isinstance(result, list) else [result]

    def _on_array(self, node: Node, inputs: list[State]) -> State:
        """State of the output of ``node``, or a list of those of all outputs, if an array may compute it."""
        if node.declined:
            raise CompileError(node.declined)
        if node.op in _ON_CODES:
            inputs = [self._entered(name, state) for name, state in zip(node.inputs, inputs, strict=True)]
        match node.op, inputs:
            case "Constant", _ if node.attributes:
                return np.asarray(next(iter(node.attributes.values())))
            case "Identity" | "Dropout", [state, *_] if state is not None and not isinstance(state, Chain):
                return state
            case "Cast", [Linear() | Sum() | Codes(real=True) as state] if node.integer("to", 0) == 1:
                return state
            case "Shape", [Real() | Codes() | Linear() as x]:
                return np.array([1, *self.graph.shape(x)][slice(
                    node.integer("start", 0), node.attributes.get("end"))], np.int64)
            case "QuantizeLinear", [np.ndarray() as x, *_]:
                return parameters(node, inputs).quantize(x)
            case "QuantizeLinear", [state, *_]:
                return self._quantize(node, state, inputs)
            case "almac.BipolarQuant", [state, *_]:
                return self._bipolar(node, state, inputs)
            case "DequantizeLinear", [state, *_]:
                return self._dequantize(node, state, inputs)
            case "Transpose", [Weight() as weight]:
                order = node.attributes.get("perm", range(weight.codes.ndim)[::-1])
                return weight.transposed(tuple(int(k) for k in order))
            case "Add", [Weight() as a, Weight() as b] if a.codes.shape == b.codes.shape:
                return replace(a, rest=(*a.rest, replace(b, rest=()), *b.rest))
            case op, _ if op in _ON_CONSTANTS and inputs and all(
                    isinstance(state, np.ndarray | None) for state in inputs):
                return fold_constants(node, self.model.opset, inputs)
            case _, [Codes() as x, *_] if drops_columns(self.graph, node, inputs):
                # The rows that are left become columns: a layout of their own.
                name = node.outputs[0]
                kept = replace(node, outputs=(f"{name}/kept",), attributes={**node.attributes, "keepdims": 1})
                channels, rows, _ = self.graph.shape(x)
                index = np.arange(channels * rows, dtype=np.int32).reshape(channels, rows)
                motion = Motion(node=node, index=index, pad=0.0)
                return moved(self.graph, motion, self._on_array(kept, inputs), name)
            case op, [Codes() as x, *_] if op in MAXIMA:
                return maximum(self.graph, node, x, inputs)
            case "Clip", [Codes(real=False) as x, *_]:
                return self._limit(node, x, inputs)
            case _, [Moved() as x, *rest] if _on_elements(node, rest):
                return replace(x, state=self._on_array(node, [x.state, *rest]))
            case _, [Joined() as x, *rest] if _on_elements(node, rest):
                return replace(x, parts=tuple(self._on_array(node, [part, *rest]) for part in x.parts))
            case op, [np.ndarray() | Weight(), *_] if op in MOVES:
                raise CompileError(reason(node, inputs))
            case op, [state, *_] if op in MOVES and state is not None:
                return rearranged(self.graph, self.model, node, state, inputs)
            case "Concat", _:
                return concatenated(self.graph, self.model, self.states, node, inputs)
            case "Sum", [_, _]:
                return self._on_array(replace(node, op="Add"), inputs)
            case _, [Linear() | Sum() | Product(), *_] | [_, Linear()]:
                return after_sum(node, inputs)
            case _, [Codes(real=True) | Chain(), *_] | [_, Codes(real=True) | Chain()]:
                return self._on_codes(node, inputs)
        raise CompileError(reason(node, inputs))

    def _on_codes(self, node: Node, inputs: list[State]) -> State:
        """A node on codes that have been dequantized."""
        if node.op not in _PRODUCTS:
            inputs = [state.real() if isinstance(state, Weight) else state for state in inputs]
        match node.op, inputs:
            case "Conv", [Codes() as x, Weight() as weight, *rest]:
                return _biased(convolution(node, x, weight, self.graph.shape(x)), rest)
            case "ConvTranspose", [Codes() as x, Weight() as weight, *rest]:
                x, linear = transposed_convolution(node, x, weight, self.graph.shape(x), self.graph.moved)
                return _biased(linear, rest)
            case "Gemm" | "MatMul", [Codes() as x, Weight() as weight, *rest]:
                return matrix_product(node, x, weight, self.graph.shape(x), rest)
            case "Gemm" | "MatMul", [Codes(), Codes(), *_]:
                raise CompileError("multiplies two tensors of the model; supported: one of them constant")
            case op, _ if op in _PRODUCTS:
                raise CompileError("its weights are not quantized; supported: integer weights behind "
                                   "DequantizeLinear; quantize the model first")
            case "Add" | "Sub", [Codes() as a, Codes() as b]:
                a, b = pair(self.graph, node, a, b)
                return Sum(a=a, b=b, sign=1 if node.op == "Add" else -1)
            case "Mul", [Codes() as a, Codes() as b] if a != b:
                a, b = pair(self.graph, node, a, b)
                return Product(a=a, b=b)
            case op, [Codes() as x, *_] if op in AVERAGES:
                return average(self.graph, node, x, inputs)
            case op, [Codes() as x, *rest] if op in _CHANNEL_AFFINE and _of_channels(op, rest, self.graph.shape(x)):
                return after_sum(node, [identity(node, x, self.graph.shape(x)), *rest])
            case "Add" | "Mul", [np.ndarray() as constant, Codes() as x] if _of_channels(
                    node.op, [constant], self.graph.shape(x)):
                return after_sum(node, [identity(node, x, self.graph.shape(x)), constant])
        return chain(node, inputs, self.graph.shape(inputs[0]) if inputs[0] is not None else ())

    # Quantizers and dequantizers.

    def _quantize(self, node: Node, state: State, inputs: list[State]) -> State:
        value = parameters(node, inputs).value()
        name = node.outputs[0]
        match state:
            case Real(dtype=dtype) if dtype in _REALS:
                self._enter(state, name, node.name, value, exact=False)
            case Real():
                raise CompileError(f"quantizes a tensor of {state.dtype}; supported: float32, float16, int32")
            case Codes(real=True) if state.is_value(value):
                self.graph.alias(state, name)
                return replace(state, real=False)
            case Codes(real=True) | Chain() | Linear() | Sum() | Product() | Joined() | Moved():
                close(self.graph, self.model, self.states, state, value, name, node.name)
            case _:
                raise CompileError(reason(node, [state]))
        return _codes(name, value, real=False)

    def _bipolar(self, node: Node, state: State, inputs: list[State]) -> State:
        """The sign, 1 for zero (QONNX)."""
        scale = inputs[1]
        if not isinstance(scale, np.ndarray) or scale.size != 1 or not scale.reshape(-1)[0] > 0:
            raise CompileError("its scale is not a constant number above zero")
        value = Value(shape=(), scale=float(scale.reshape(-1)[0]), low=-1, high=1)
        name = f"{node.outputs[0]}/codes"
        match state:
            case Codes(real=True) | Chain() | Linear():
                close(self.graph, self.model, self.states, state, value, name, node.name, bipolar=True)
            case _:
                real = self.host.sign(node, self.graph.shape(state), value.scale)
                self._enter(real, name, node.name, value, exact=False)
        return _codes(name, value, real=True)

    def _dequantize(self, node: Node, state: State, inputs: list[State]) -> State:
        match state:
            case np.ndarray():
                return parameters(node, inputs, state).weight(state)
            case Codes(real=False):
                dtype = np.uint8 if state.unsigned else np.int8
                value = parameters(node, inputs, np.empty(0, dtype), activation=True).value()
                return _codes(state.name, replace(value, unsigned=state.unsigned), real=True)
            case Real(dtype=dtype) if dtype in (np.int8, np.uint8):
                value = parameters(node, inputs, np.empty(0, dtype)).value()
                name = f"{node.inputs[0]}/codes"
                if name not in self.graph.values:
                    self._enter(state, name, node.name, value, exact=True)
                return _codes(name, value, real=True)
        raise CompileError(reason(node, [state]))

    def _entered(self, name: str, state: State) -> State:
        """A tensor of the host that holds codes already, as codes of no known meaning."""
        if not isinstance(state, Real) or state.dtype not in (np.int8, np.uint8):
            return state
        unsigned = state.dtype == np.uint8
        value = Value(shape=(), zero_point=-128 * unsigned, unsigned=unsigned)
        if f"{name}/codes" not in self.graph.values:
            self._enter(state, f"{name}/codes", name, value, exact=True)
        return _codes(f"{name}/codes", value, real=False)

    def _enter(self, state: Real, name: str, source: str, value: Value, *, exact: bool) -> None:
        """Quantize a tensor of the host, and bring the codes into the layout that the model wants."""
        steps = [f"{name}/{k}" for k in range(len(state.moves))] + [name]
        self.graph.emit(
            Quantize(inputs=(state.name,), output=steps[0], source=source, exact=exact, low=value.low,
                     high=value.high),
            replace(value, shape=self.graph.values[state.name].shape))
        for motion, before, after in zip(state.moves, steps, steps[1:], strict=False):
            self.graph.move(before, after, motion.of_codes(value.scale, value.zero_point), motion.node.name,
                            motion.node.op)

    # Operators that change no code, or add codes up.

    def _limit(self, node: Node, x: Codes, inputs: list[State]) -> Codes:
        """Codes within bounds that the model gives as codes (QCDQ)."""
        low, high = (limit - 128 * x.unsigned for limit in bounds(node, inputs))
        codes = np.clip(np.arange(-128, 128), low, high).astype(np.int64)
        name = node.outputs[0]
        self.graph.emit(Table(inputs=(x.name,), output=name, source=node.name, table=tuple(codes.tolist())),
                        self.graph.values[x.name])
        return replace(x, name=name)

    def _output(self, name: str) -> None:
        match self.states.get(name):
            case Linear(counts=None, rounding="") | Codes() as state:
                self.graph.output(name, state)
            case None | Unsupported():
                pass
            case np.ndarray() | Weight():
                self.problems.append(f"output {name!r}: it is a constant")
            case _:
                real = self.host.real(name)
                if real in self.graph.renamed or any(info.name == real for info in self.model.inputs):
                    # Another output, or an input of the model: this one needs a tensor of its own.
                    real = self.host.copy(name)
                self.graph.renamed[real] = name


def _biased(linear: Linear, rest: list[State]) -> Linear:
    return linear.with_bias(rest[0]) if rest and rest[0] is not None else linear


def _on_elements(node: Node, rest: list[State]) -> bool:
    """Whether the node is the same function of every element of its first input."""
    return node.op in FUNCTIONS and all(state is None or (isinstance(state, np.ndarray) and state.size == 1)
                                        for state in rest)


def _of_channels(op: str, constants: list[State], shape: tuple[int, ...]) -> bool:
    """Whether the constants of a node are one number for each channel."""
    if op == "BatchNormalization":
        return True
    return all(isinstance(constant, np.ndarray) and constant.size == shape[0] > 1
               and constant.ndim >= len(shape) and constant.shape[-len(shape)] == shape[0]
               for constant in constants)


def _codes(name: str, value: Value, *, real: bool) -> Codes:
    return Codes(name=name, scale=value.scale, zero_point=value.zero_point, unsigned=value.unsigned, real=real)
