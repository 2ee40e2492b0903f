"""ONNX with QuantizeLinear and DequantizeLinear to the integer graph.

Walks the nodes once. Each tensor is, at any time, one of the states of :mod:`almac.compiler.states`: a constant,
codes, or accumulators on their way to the next quantizer. A quantizer closes what is open before it. Every node
that does not fit is remembered, and all of them are named in one error.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from almac.compiler.elementwise import FUNCTIONS, add, table
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
    verify,
)
from almac.compiler.linear import Linear, batch_norm, convolution, matrix_product, per_channel
from almac.compiler.messages import reason, shape_text, unsupported
from almac.compiler.onnx_model import Model, Node, Source, fold_constants, load
from almac.compiler.outputs import close_linear, dequantized, requantized
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
        self.ops: list[Op] = []
        self.values: dict[str, Value] = {}
        self.problems: list[str] = []
        self.renamed: dict[str, str] = {}

    def run(self) -> Graph:
        for info in self.model.inputs:
            self._input(info.name, info.dtype, info.shape)
        for node in self.model.nodes:
            self._node(node)
        outputs = [self._output(info.name) for info in self.model.outputs]
        if self.problems:
            raise unsupported(self.problems, self.model)
        ops = tuple(_renamed(op, self.renamed) for op in self.ops)
        values = {self.renamed.get(name, name): value for name, value in self.values.items()}
        used = {name for op in ops for name in (*op.inputs, op.output)}
        inputs = tuple(info.name for info in self.model.inputs if info.name in used)
        return verify(Graph(
            ops=ops, values={name: value for name, value in values.items() if name in used},
            inputs=inputs, outputs=tuple(outputs)))

    def _input(self, name: str, dtype: np.dtype[Any], sizes: tuple[int | None, ...]) -> None:
        shape = tuple(size for size in sizes[1:] if size is not None)
        if len(sizes) < 2 or len(shape) != len(sizes) - 1:
            raise CompileError(
                f"input {name!r} has the shape {shape_text(sizes)}; supported: a batch followed by fixed "
                "sizes; fix them with onnxruntime.tools.make_dynamic_shape_fixed")
        if (sizes[0] or 1) != 1:
            raise CompileError(f"input {name!r} has a batch of {sizes[0]}; supported: 1, or a symbolic one")
        self.states[name] = Real(name=name, dtype=dtype, shape=shape)
        self.values[name] = Value(shape=shape, kind="real")

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
            case "Constant", _:
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
                return self._on_sums(node, inputs)
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
                return _with_constant(linear, rest[0], float(node.attributes.get("beta", 1.0))) if (
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
        return _chain(node, inputs)

    def _on_sums(self, node: Node, inputs: list[State]) -> State:
        """A node on accumulators, or on the sum of two tensors."""
        match node.op, inputs:
            case "Relu", [state]:
                return replace(state, low=max(state.low, 0.0), high=max(state.high, 0.0))
            case "Clip", [state, *_]:
                low, high = _bounds(node, inputs)
                return replace(state, low=min(max(state.low, low), high), high=max(min(state.high, high), low))
            case "BatchNormalization", [Linear() as linear, *rest]:
                return batch_norm(linear, node, rest)
            case "Add", [Linear() as linear, np.ndarray() | Weight() as constant] | [
                    np.ndarray() | Weight() as constant, Linear() as linear]:
                return _with_constant(linear, constant)
            case "Sub", [Linear() as linear, np.ndarray() as constant]:
                return _with_constant(linear, constant, -1.0)
            case "Mul", [Linear() as linear, np.ndarray() as constant] | [
                    np.ndarray() as constant, Linear() as linear]:
                return linear.times(per_channel(constant, linear.shape))
            case "Div", [Linear() as linear, np.ndarray() as constant]:
                with np.errstate(all="ignore"):
                    return linear.times(1 / per_channel(constant, linear.shape).astype(np.float64))
        raise CompileError(reason(node, inputs))

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
        self.values[node.outputs[0]] = value
        return _codes(node.outputs[0], value, real=False)

    # Quantizers and dequantizers.

    def _quantize(self, node: Node, state: State, inputs: list[State]) -> State:
        value = parameters(node, inputs).value()
        name = node.outputs[0]
        common: dict[str, Any] = {"output": name, "source": node.name}
        match state:
            case Real():
                self._enter(state, name, node.name, value, exact=False)
            case Linear():
                acc = close_linear(state, self.ops, self.values)
                self._emit(requantized(state, acc, value, common), replace(value, shape=state.shape))
            case Sum():
                self._emit(add(state, value, common), replace(value, shape=self._shape(state.a)))
            case Codes(real=True) if state.is_value(value):
                self._alias(state, name)
                return replace(state, real=False)
            case Codes(real=True) | Chain():
                codes = state if isinstance(state, Codes) else state.codes
                constants = {key: array for key, array in self.states.items() if isinstance(array, np.ndarray)}
                self._emit(Table(inputs=(codes.name,), **common,
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
                if name not in self.values:
                    self._enter(state, name, node.name, value, exact=True)
                return _codes(name, value, real=True)
        raise CompileError(reason(node, [state]))

    def _enter(self, state: Real, name: str, source: str, value: Value, *, exact: bool) -> None:
        """Quantize an input of the model, and bring the codes into the layout that the model wants."""
        steps = [f"{name}/{k}" for k in range(len(state.layouts))] + [name]
        shape = self.values[state.name].shape
        self._emit(Quantize(inputs=(state.name,), output=steps[0], source=source, exact=exact),
                   replace(value, shape=shape))
        for layout, before, after in zip(state.layouts, steps, steps[1:], strict=False):
            self._emit(_layout_op(layout, before, after), replace(value, shape=layout.shape))

    # Operators that change no code, or add codes up.

    def _max_pool(self, node: Node, x: Codes) -> Codes:
        window, shape = pool_window(node, self._shape(x))
        name = node.outputs[0]
        self._emit(MaxPool(inputs=(x.name,), output=name, source=node.name, **window),
                   replace(self.values[x.name], shape=shape, scale=x.scale, zero_point=x.zero_point))
        return replace(x, name=name)

    def _limit(self, node: Node, x: Codes, inputs: list[State]) -> Codes:
        """Codes within bounds that the model gives as codes (QCDQ)."""
        low, high = (limit - 128 * x.unsigned for limit in _bounds(node, inputs))
        codes = np.clip(np.arange(-128, 128), low, high).astype(np.int64)
        name = node.outputs[0]
        self._emit(Table(inputs=(x.name,), output=name, source=node.name, table=tuple(codes.tolist())),
                   self.values[x.name])
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
        self._emit(_layout_op(layout, x.name, node.outputs[0]), replace(
            self.values[x.name], shape=shape, scale=x.scale, zero_point=x.zero_point))
        return replace(x, name=node.outputs[0])

    # Names.

    def _shape(self, x: Codes | Real) -> tuple[int, ...]:
        return x.shape if isinstance(x, Real) else self.values[x.name].shape

    def _constant_of(self, inputs: list[State]) -> Any:
        def constant(index: int) -> np.ndarray | None:
            state = inputs[index] if index < len(inputs) else None
            if state is not None and not isinstance(state, np.ndarray):
                raise CompileError(f"its input {index} is not a constant")
            return state
        return constant

    def _emit(self, op: Op, value: Value) -> None:
        self.ops.append(op)
        self.values[op.output] = value

    def _alias(self, codes: Codes, name: str) -> None:
        """A quantizer that changes nothing: what it makes is the same value, under its name if it is free."""
        producer = next((op for op in self.ops if op.output == codes.name), None)
        if isinstance(producer, MaxPool | Reshape | Transpose) and codes.name not in self.renamed:
            self.renamed[codes.name] = name

    def _output(self, name: str) -> str:
        state = self.states.get(name)
        match state:
            case Linear():
                acc = close_linear(state, self.ops, self.values)
                self._emit(dequantized(acc, f"{name}/user", state), Value(shape=state.shape, kind="real"))
                self.renamed[f"{name}/user"] = name
            case Codes():
                if not state.real:
                    self.renamed[state.name] = f"{name}/codes"
                self._emit(dequantized(state.name, f"{name}/user", state, name),
                           Value(shape=self._shape(state), kind="real"))
                self.renamed[f"{name}/user"] = name
            case Unsupported():
                pass
            case _:
                self.problems.append(f"output {name!r}: nothing quantized reaches it; quantize the "
                                     "tensor, or cut the model before it")
        # What the user gets has the name of the output; the value that it is made of needs another.
        if name in self.values:
            self.renamed.setdefault(name, f"{name}/{'acc' if self.values[name].kind == 'acc' else 'codes'}")
        return name


def _codes(name: str, value: Value, *, real: bool) -> Codes:
    return Codes(name=name, scale=value.scale, zero_point=value.zero_point, unsigned=value.unsigned, real=real)


def _chain(node: Node, inputs: list[State]) -> Chain:
    """One more function of one code."""
    given = [state for state in inputs if state is not None and not isinstance(state, np.ndarray)]
    numbers = all(state.size == 1 for state in inputs if isinstance(state, np.ndarray))
    if not (numbers and node.op in {*FUNCTIONS, "Identity", "Dropout"}
            and all(isinstance(state, Codes | Chain) for state in given)):
        raise CompileError(reason(node, inputs))
    chains = [state if isinstance(state, Chain) else Chain(codes=state, starts=(name,))
              for name, state in zip(node.inputs, inputs, strict=True) if isinstance(state, Codes | Chain)]
    if any(chain.codes != chains[0].codes for chain in chains):
        raise CompileError(f"{node.op} of two tensors; supported: Add of two that are quantized, and functions "
                           "of one; quantize what it reads")
    # Each node once, in the order of the model.
    nodes = {before.name: before for chain in chains for before in chain.nodes}
    starts = {start for chain in chains for start in chain.starts}
    return Chain(codes=chains[0].codes, starts=tuple(sorted(starts)), nodes=(*nodes.values(), node))


def _with_constant(linear: Linear, constant: State, factor: float = 1.0) -> Linear:
    """Add a constant that is broadcast along the channels."""
    per_channel(constant.codes if isinstance(constant, Weight) else np.asarray(constant), linear.shape)
    if factor == 1.0:
        return linear.with_bias(constant)
    real = constant.real() if isinstance(constant, Weight) else constant
    return linear.with_bias(np.asarray(real, np.float64) * factor)


def _bounds(node: Node, inputs: list[State]) -> tuple[float, float]:
    limits = [-np.inf, np.inf]
    for index in (0, 1):
        limit = inputs[index + 1] if len(inputs) > index + 1 else None
        if limit is None:
            continue
        if not isinstance(limit, np.ndarray) or limit.size != 1 or np.isnan(limit).any():
            raise CompileError("its bounds are not constant numbers")
        limits[index] = float(limit.reshape(-1)[0])
    return limits[0], limits[1]


def _layout_op(layout: Layout, before: str, after: str) -> Op:
    if layout.order is None:
        return Reshape(inputs=(before,), output=after, source=layout.source)
    return Transpose(inputs=(before,), output=after, source=layout.source, order=layout.order)


def _renamed(op: Op, names: dict[str, str]) -> Op:
    return replace(op, inputs=tuple(names.get(name, name) for name in op.inputs),
                   output=names.get(op.output, op.output))
