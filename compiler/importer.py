"""ONNX with QuantizeLinear and DequantizeLinear to the integer graph.

Walks the nodes once. Each tensor is, at any time, one of the states of :mod:`almac.compiler.states`: a constant,
codes, or accumulators on their way to the next quantizer. A quantizer closes what is open before it. Every node
that does not fit is remembered, and all of them are named in one error.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from almac.compiler.builder import Builder, requantized
from almac.compiler.elementwise import add, chain, table
from almac.compiler.epilogue import after_sum, bounds, with_constant
from almac.compiler.graph import (
    CompileError,
    Graph,
    MaxPool,
    Op,
    Quantize,
    Reshape,
    SumPool,
    Table,
    Transpose,
    Value,
)
from almac.compiler.linear import Linear, convolution, matrix_product
from almac.compiler.messages import reason, shape_text, unsupported
from almac.compiler.onnx_model import Model, Node, Source, fold_constants, load
from almac.compiler.quantizers import parameters
from almac.compiler.reshapes import order_of, reshaped
from almac.compiler.states import Chain, Codes, Layout, Real, State, Sum, Unsupported, Weight
from almac.compiler.windows import pool_window

__all__ = ["import_model"]

#: Operators on constants that are computed while importing.
_ON_CONSTANTS = {
    "Add", "Cast", "Clip", "Concat", "ConstantOfShape", "Div", "Flatten", "Gather", "Mul", "Neg", "Reciprocal",
    "Reshape", "Round", "Slice", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
}

_RESHAPES = {"Flatten", "Reshape", "Squeeze", "Unsqueeze"}


def import_model(source: Source) -> Graph:
    """Read a quantized ONNX model, from a file or in memory.

    Raises
    ------
    CompileError
        Naming every node that is not supported, and what to do.
    """
    return _Importer(load(source)).run()


class _Importer:
    """State of one walk over a model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.states: dict[str, State] = dict(model.constants)
        self.graph = Builder()
        self.problems: list[str] = []

    def run(self) -> Graph:
        for info in self.model.inputs:
            self._input(info.name, info.dtype, info.shape)
        for node in self.model.nodes:
            self._node(node)
        for info in self.model.outputs:
            self._output(info.name)
        if self.problems:
            raise unsupported(self.problems, self.model)
        return self.graph.finish([info.name for info in self.model.inputs],
                                 [info.name for info in self.model.outputs])

    def _input(self, name: str, dtype: np.dtype[Any], sizes: tuple[int | None, ...]) -> None:
        shape = tuple(size for size in sizes[1:] if size is not None)
        if len(sizes) < 2 or len(shape) != len(sizes) - 1:
            raise CompileError(
                f"input {name!r} has the shape {shape_text(sizes)}; supported: a batch followed by fixed "
                "sizes; fix them with onnxruntime.tools.make_dynamic_shape_fixed")
        if (sizes[0] or 1) != 1:
            raise CompileError(f"input {name!r} has a batch of {sizes[0]}; supported: 1, or a symbolic one")
        self.states[name] = Real(name=name, dtype=dtype, shape=shape)
        self.graph.values[name] = Value(shape=shape, kind="real")

    def _node(self, node: Node) -> None:
        inputs = [self.states.get(name) if name else None for name in node.inputs]
        try:
            result = self._lower(node, inputs)
        except CompileError as error:
            shapes = [shape_text(self.model.shapes.get(name, ()))
                      for name in (*node.inputs[:1], *node.outputs[:1])]
            self.problems.append(f"node {node.name!r} ({node.op}, opset {self.model.opset}, "
                                 f"{' to '.join(shapes)}): {error}")
            result = Unsupported()
        for name in node.outputs:
            self.states[name] = result

    def _lower(self, node: Node, inputs: list[State]) -> State:
        """State of the outputs of ``node``."""
        match node.op, inputs:
            case "QuantizeLinear", [Unsupported(), *_]:
                return self._recover(node, inputs)
            case _, _ if any(isinstance(state, Unsupported) for state in inputs):
                return self._after_unsupported(node, inputs)
            case "Constant", _ if node.attributes:
                return np.asarray(next(iter(node.attributes.values())))
            case "Identity" | "Dropout", [state, *_] if state is not None and not isinstance(state, Chain):
                return state
            case "Shape", [Real() | Codes() as x]:
                return np.array([1, *self._shape(x)][slice(
                    node.integer("start", 0), node.attributes.get("end"))], np.int64)
            case "QuantizeLinear", [np.ndarray() as x, *_]:
                return parameters(node, inputs).quantize(x)
            case "QuantizeLinear", [state, *_]:
                return self._quantize(node, state, inputs)
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
            case "MaxPool", [Codes() as x]:
                return self._max_pool(node, x)
            case "Clip", [Codes(real=False) as x, *_]:
                return self._limit(node, x, inputs)
            case "Transpose", [Codes() | Real() as x]:
                order = order_of(node, len(self._shape(x)) + 1)
                return self._moved(node, x, tuple(self._shape(x)[k] for k in order), order)
            case op, [Codes() | Real() as x, *_] if op in _RESHAPES:
                return self._moved(node, x, reshaped(node, self._shape(x), self._constant_of(inputs)))
            case op, [Linear() as linear, *_] if op in _RESHAPES:
                target = reshaped(node, linear.shape, self._constant_of(inputs))
                if linear.shape[0] != target[0] or {*linear.shape[1:], *target[1:]} - {1}:
                    raise CompileError("reshapes a tensor that is not quantized; quantize it first")
                return replace(linear, shape=target)
            case _, [Linear() | Sum(), *_] | [_, Linear()]:
                return after_sum(node, inputs)
            case _, [Codes(real=True) | Chain(), *_] | [_, Codes(real=True) | Chain()]:
                return self._on_codes(node, inputs)
        raise CompileError(reason(node, inputs))

    def _on_codes(self, node: Node, inputs: list[State]) -> State:
        """A node on codes that have been dequantized."""
        match node.op, inputs:
            case "Conv", [Codes() as x, Weight() as weight, *rest]:
                linear = convolution(node, x, weight, self._shape(x))
                return linear.with_bias(rest[0]) if rest and rest[0] is not None else linear
            case "Gemm" | "MatMul", [Codes() as x, Weight() as weight, *rest]:
                linear = matrix_product(node, x, weight, self._shape(x))
                return with_constant(linear, rest[0], float(node.attributes.get("beta", 1.0))) if (
                    rest and rest[0] is not None) else linear
            case "Conv" | "Gemm" | "MatMul", _:
                raise CompileError("its weights are not quantized; supported: integer weights behind "
                                   "DequantizeLinear; quantize the model first")
            case "Add", [Codes() as a, Codes() as b]:
                if self._shape(a) != self._shape(b):
                    raise CompileError(f"adds the shapes {self._shape(a)} and {self._shape(b)}; supported: "
                                       "equal ones")
                return Sum(a=a, b=b)
            case "AveragePool" | "GlobalAveragePool" | "ReduceMean", [Codes() as x, *_]:
                return self._average_pool(node, x, inputs)
        return chain(node, inputs)

    def _after_unsupported(self, node: Node, inputs: list[State]) -> State:
        """Name a node behind an unsupported one only if it would not do behind a supported one either."""
        if node.op in {"Relu", "Clip", "Identity", "Dropout", "BatchNormalization", "Add", "Mul", "Sub", "Div",
                       "MaxPool", "Transpose", "Shape", *_ON_CONSTANTS, *_RESHAPES, "DequantizeLinear"}:
            return Unsupported()
        raise CompileError(reason(node, inputs))

    def _recover(self, node: Node, inputs: list[State]) -> State:
        """Codes behind something unsupported, so that what comes later is checked too."""
        sizes = self.model.shapes.get(node.outputs[0], ())[1:]
        shape = tuple(size for size in sizes if size is not None)
        if not shape or len(shape) != len(sizes):
            return Unsupported()
        value = replace(parameters(node, inputs).value(), shape=shape)
        self.graph.values[node.outputs[0]] = value
        return _codes(node.outputs[0], value, real=False)

    # Quantizers and dequantizers.

    def _quantize(self, node: Node, state: State, inputs: list[State]) -> State:
        value = parameters(node, inputs).value()
        name = node.outputs[0]
        common: dict[str, Any] = {"output": name, "source": node.name}
        match state:
            case Real(dtype=dtype) if dtype in (np.int32, np.float16, np.float32):
                self._enter(state, name, node.name, value, exact=False)
            case Real():
                raise CompileError(f"quantizes an input of {state.dtype}; supported: float32, float16, int32")
            case Linear():
                acc = self.graph.close(state)
                self.graph.emit(requantized(state, acc, value, common), replace(value, shape=state.shape))
            case Sum():
                self.graph.emit(add(state, value, common), replace(value, shape=self._shape(state.a)))
            case Codes(real=True) if state.is_value(value):
                self.graph.alias(state, name)
                return replace(state, real=False)
            case Codes(real=True) | Chain():
                codes = state if isinstance(state, Codes) else state.codes
                constants = {key: array for key, array in self.states.items() if isinstance(array, np.ndarray)}
                self.graph.emit(Table(inputs=(codes.name,), **common,
                                 table=table(state, value, self.model, constants)),
                           replace(value, shape=self._shape(codes)))
            case _:
                raise CompileError(reason(node, [state]))
        return _codes(name, value, real=False)

    def _dequantize(self, node: Node, state: State, inputs: list[State]) -> State:
        match state:
            case np.ndarray():
                return parameters(node, inputs, state).weight(state)
            case Codes(real=False):
                dtype = np.uint8 if state.unsigned else np.int8
                value = parameters(node, inputs, np.empty(0, dtype)).value()
                return _codes(state.name, replace(value, unsigned=state.unsigned), real=True)
            case Real(dtype=dtype) if dtype in (np.int8, np.uint8):
                value = parameters(node, inputs, np.empty(0, dtype)).value()
                name = f"{node.inputs[0]}/codes"
                if name not in self.graph.values:
                    self._enter(state, name, node.name, value, exact=True)
                return _codes(name, value, real=True)
        raise CompileError(reason(node, [state]))

    def _enter(self, state: Real, name: str, source: str, value: Value, *, exact: bool) -> None:
        """Quantize an input of the model, and bring the codes into the layout that the model wants."""
        steps = [f"{name}/{k}" for k in range(len(state.layouts))] + [name]
        shape = self.graph.values[state.name].shape
        self.graph.emit(Quantize(inputs=(state.name,), output=steps[0], source=source, exact=exact),
                   replace(value, shape=shape))
        for layout, before, after in zip(state.layouts, steps, steps[1:], strict=False):
            self.graph.emit(_layout_op(layout, before, after), replace(value, shape=layout.shape))

    # Operators that change no code, or add codes up.

    def _max_pool(self, node: Node, x: Codes) -> Codes:
        window, shape = pool_window(node, self._shape(x))
        name = node.outputs[0]
        self.graph.emit(MaxPool(inputs=(x.name,), output=name, source=node.name, **window),
                   replace(self.graph.values[x.name], shape=shape, scale=x.scale, zero_point=x.zero_point))
        return replace(x, name=name)

    def _limit(self, node: Node, x: Codes, inputs: list[State]) -> Codes:
        """Codes within bounds that the model gives as codes (QCDQ)."""
        low, high = (limit - 128 * x.unsigned for limit in bounds(node, inputs))
        codes = np.clip(np.arange(-128, 128), low, high).astype(np.int64)
        name = node.outputs[0]
        self.graph.emit(Table(inputs=(x.name,), output=name, source=node.name, table=tuple(codes.tolist())),
                   self.graph.values[x.name])
        return replace(x, name=name)

    def _average_pool(self, node: Node, x: Codes, inputs: list[State]) -> Linear | Codes:
        given = self._constant_of(inputs)(1) if node.op == "ReduceMean" else None
        axes = None if given is None else given.reshape(-1).tolist()
        if node.op == "ReduceMean" and node.integer("noop_with_empty_axes", 0) and not axes:
            return x
        window, shape = pool_window(node, self._shape(x), axes)
        count = int(np.prod(window["kernel"]))
        op = SumPool(inputs=(x.name,), output=node.outputs[0], source=node.name, pad_code=x.zero_point, **window)
        scale = np.float32(x.scale) / np.float32(count)
        return Linear(op=op, shape=shape, scale=np.full(shape[0], scale, np.float32),
                      constant=np.full(shape[0], -x.zero_point * count, np.int64))

    def _moved(self, node: Node, x: Codes | Real, shape: tuple[int, ...],
               order: tuple[int, ...] | None = None) -> Codes | Real:
        """``x`` in another shape or order of axes."""
        layout = Layout(source=node.name, shape=shape, order=order)
        if isinstance(x, Real):
            return replace(x, shape=shape, layouts=(*x.layouts, layout))
        self.graph.emit(_layout_op(layout, x.name, node.outputs[0]), replace(
            self.graph.values[x.name], shape=shape, scale=x.scale, zero_point=x.zero_point))
        return replace(x, name=node.outputs[0])

    # Names.

    def _shape(self, x: Codes | Real) -> tuple[int, ...]:
        return x.shape if isinstance(x, Real) else self.graph.values[x.name].shape

    def _constant_of(self, inputs: list[State]) -> Any:
        def constant(index: int) -> np.ndarray | None:
            state = inputs[index] if index < len(inputs) else None
            if state is not None and not (isinstance(state, np.ndarray) and state.dtype.kind == "i"):
                raise CompileError(f"its input {index} is not an integer constant")
            return state
        return constant

    def _output(self, name: str) -> None:
        match self.states.get(name):
            case Linear() | Codes() as state:
                self.graph.output(name, state)
            case Unsupported():
                pass
            case _:
                self.problems.append(f"output {name!r}: nothing quantized reaches it; quantize the "
                                     "tensor, or cut the model before it")


def _codes(name: str, value: Value, *, real: bool) -> Codes:
    return Codes(name=name, scale=value.scale, zero_point=value.zero_point, unsigned=value.unsigned, real=real)


def _layout_op(layout: Layout, before: str, after: str) -> Op:
    if layout.order is None:
        return Reshape(inputs=(before,), output=after, source=layout.source)
    return Transpose(inputs=(before,), output=after, source=layout.source, order=layout.order)
