"""ONNX with QuantizeLinear and DequantizeLinear to the integer graph.

Walks the nodes once. Each tensor is, at any time, one of the states below: a constant, codes that have been
dequantized, or accumulators on their way to the next quantizer. A quantizer closes what is open before it.
Every node that does not fit is remembered, and all of them are named in one error.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from almac.compiler.graph import (
    Add,
    CompileError,
    Dequantize,
    Graph,
    MaxPool,
    Op,
    Quantize,
    Requantize,
    Reshape,
    SumPool,
    Table,
    Value,
    verify,
)
from almac.compiler.linear import Linear, convolution, fold_batch_norm, matrix_product
from almac.compiler.onnx_model import Model, Node, load, run_nodes
from almac.compiler.scales import code_of, fixed_point, offset_of
from almac.compiler.states import Chain, Codes, Real, State, Sum, Unsupported, Weight
from almac.compiler.windows import pool_window

__all__ = ["import_model"]

_ELEMENTWISE = {
    "Abs", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg",
    "Reciprocal", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Tanh",
}

#: Greatest shift of the left operand of a sum.
_MOST_LEFT = 15


def import_model(path: str | Path) -> Graph:
    """Read a quantized ONNX model.

    Raises
    ------
    CompileError
        Naming every node that is not supported, and what to do.
    """
    return _Importer(load(path)).run()


class _Importer:
    """State of one walk over a model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.states: dict[str, State] = {}
        self.ops: list[Op] = []
        self.values: dict[str, Value] = {}
        self.problems: list[str] = []
        self.renamed: dict[str, str] = {}

    def run(self) -> Graph:
        for name, array in self.model.constants.items():
            self.states[name] = array
        for info in self.model.inputs:
            if any(size is None for size in info.shape[1:]) or len(info.shape) < 2:
                raise CompileError(
                    f"input {info.name!r} has shape {_shape_text(info.shape)}; supported: a batch "
                    "followed by fixed sizes; fix them with onnxruntime.tools.make_dynamic_shape_fixed")
            if (info.shape[0] or 1) != 1:
                raise CompileError(f"input {info.name!r} has a batch of {info.shape[0]}; supported: 1, or "
                                   "a symbolic one")
            shape = tuple(int(size) for size in info.shape[1:] if size is not None)
            self.states[info.name] = Real(name=info.name, dtype=info.dtype, shape=shape)
            self.values[info.name] = Value(shape=shape, kind="real")
        for node in self.model.nodes:
            self._node(node)
        outputs = [self._output(info.name) for info in self.model.outputs]
        if self.problems:
            raise CompileError("\n".join(
                [f"{len(self.problems)} nodes are not supported:", *self.problems]))
        ops = tuple(_renamed(op, self.renamed) for op in self.ops)
        values = {self.renamed.get(name, name): value for name, value in self.values.items()}
        used = {name for op in ops for name in (*op.inputs, op.output)}
        inputs = tuple(info.name for info in self.model.inputs if info.name in used)
        return verify(Graph(
            ops=ops, values={name: value for name, value in values.items() if name in used},
            inputs=inputs, outputs=tuple(outputs)))

    def _node(self, node: Node) -> None:
        inputs = [self.states.get(name) if name else None for name in node.inputs]
        try:
            if any(isinstance(state, Unsupported) for state in inputs):
                result: State = Unsupported()
            else:
                result = self._lower(node, inputs)
        except CompileError as error:
            self._refuse(node, str(error))
            result = Unsupported()
        for name in node.outputs:
            self.states[name] = result

    def _refuse(self, node: Node, reason: str) -> None:
        shapes = [_shape_text(self.model.shapes.get(name, ())) for name in (*node.inputs[:1],
                                                                         *node.outputs[:1])]
        self.problems.append(f"node {node.name!r} ({node.op}, opset {self.model.opset}, "
                             f"{' to '.join(shapes)}): {reason}")

    def _lower(self, node: Node, inputs: list[State | None]) -> State:
        match node.op, inputs:
            case "Constant", _:
                return np.asarray(next(iter(node.attributes.values())))
            case "Identity" | "Dropout", [state, *_] if state is not None:
                return state
            case "QuantizeLinear", [np.ndarray() as x, *_]:
                scale, zero_point = self._parameters(node)
                info = np.iinfo(zero_point.dtype)
                codes = np.rint(x / _along(scale, x, node)) + _along(zero_point, x, node)
                return np.clip(codes, info.min, info.max).astype(zero_point.dtype)
            case "Clip", [np.ndarray() as x, *_]:
                low, high = self._bounds(node)
                return np.clip(x, low, high).astype(x.dtype)
            case "QuantizeLinear", [state, *_] if state is not None:
                return self._quantize(node, state)
            case "DequantizeLinear", [state, *_] if state is not None:
                return self._dequantize(node, state)
            case ("Conv", [Codes() as x, Weight() as weight, *rest]):
                shape = self.values[x.name].shape
                return self._linear(convolution(node, x, weight, shape), rest)
            case ("Gemm" | "MatMul", [Codes() as x, Weight() as weight, *rest]):
                shape = self.values[x.name].shape
                return self._linear(matrix_product(node, x, weight, shape), rest)
            case ("Conv" | "Gemm" | "MatMul", [Codes(), *_]):
                raise CompileError("its weights are not quantized; supported: integer weights behind "
                                   "DequantizeLinear; quantize the model first")
            case "BatchNormalization", [Linear() as linear, *parameters]:
                return self._batch_norm(linear, node, parameters)
            case "Add", [Linear() as linear, other] | [other, Linear() as linear] if (
                isinstance(other, np.ndarray | Weight)
            ):
                return linear.with_bias(other)
            case "Add", [Codes() as a, Codes() as b]:
                return Sum(a=a, b=b, source=node.name)
            case "Relu", [Linear() | Sum() as state]:
                return replace(state, low=max(state.low, 0.0))
            case "Clip", [Linear() | Sum() as state, *_]:
                low, high = self._bounds(node)
                return replace(state, low=max(state.low, low), high=min(state.high, high))
            case "MaxPool", [Codes() as x]:
                return self._max_pool(node, x)
            case "AveragePool" | "GlobalAveragePool" | "ReduceMean", [Codes() as x, *_]:
                return self._average_pool(node, x)
            case "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze", [Codes() | Linear() as x, *_]:
                return self._reshape(node, x)
            case _, [Codes() | Chain() as x, *rest] if (
                node.op in (*_ELEMENTWISE, "Relu", "Clip", "Add", "Sub", "Mul", "Div", "PRelu", "Pow")
                and all(isinstance(item, np.ndarray) and item.size == 1 for item in rest if item is not None)
            ):
                chain = x if isinstance(x, Chain) else Chain(codes=x, start=node.inputs[0])
                return replace(chain, nodes=(*chain.nodes, node))
        raise CompileError(_reason(node, inputs))

    # Quantizers and dequantizers.

    def _parameters(self, node: Node) -> tuple[np.ndarray, np.ndarray]:
        """Scale and zero point of a quantizer or dequantizer, checked."""
        scale = self.states.get(node.inputs[1])
        if not isinstance(scale, np.ndarray):
            raise CompileError("its scale is not a constant")
        scale = scale.astype(np.float32)
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise CompileError(f"its scale is {scale.reshape(-1)[:4].tolist()}; scales must be finite and "
                               "greater than zero")
        if len(node.inputs) > 2 and node.inputs[2]:
            zero_point = self.states.get(node.inputs[2])
            if not isinstance(zero_point, np.ndarray):
                raise CompileError("its zero point is not a constant")
        else:
            zero_point = np.zeros((), _OUTPUT_TYPES.get(node.attributes.get("output_dtype", 0), np.uint8))
        if node.attributes.get("block_size", 0):
            raise CompileError("block_size: scales of blocks are not supported yet; quantize per channel")
        return scale, zero_point

    def _quantize(self, node: Node, state: State) -> State:
        scales, zero_points = self._parameters(node)
        if scales.size != 1:
            raise CompileError("activations with a scale per channel; supported: one per tensor")
        unsigned = zero_points.dtype == np.uint8
        if not unsigned and zero_points.dtype != np.int8:
            raise CompileError(f"quantizes to {zero_points.dtype}; supported: int8, uint8")
        scale = float(scales.reshape(-1)[0])
        zero_point = int(zero_points.reshape(-1)[0]) - 128 * unsigned
        name = node.outputs[0]
        value = Value(shape=(), scale=scale, zero_point=zero_point, unsigned=unsigned)
        common: dict[str, Any] = {"output": name, "source": node.name}

        match state:
            case Real():
                self._emit(Quantize(inputs=(state.name,), **common), replace(value, shape=state.shape))
            case Linear():
                self._emit(self._requantize(state, value, common), replace(value, shape=state.shape))
            case Sum(a=a):
                self._emit(self._sum(state, value, common),
                           replace(value, shape=self.values[a.name].shape))
            case Codes() if state.is_value(value):
                self._alias(state, name)
                return Codes(name=state.name, scale=scale, zero_point=zero_point, unsigned=unsigned)
            case Codes() | Chain():
                codes = state if isinstance(state, Codes) else state.codes
                source = codes.name
                self._emit(Table(inputs=(source,), table=self._table(state, value), **common),
                           replace(value, shape=self.values[source].shape))
            case _:
                raise CompileError(_reason(node, [state]))
        return Codes(name=name, scale=scale, zero_point=zero_point, unsigned=unsigned)

    def _dequantize(self, node: Node, state: State) -> State:
        scale, zero_point = self._parameters_of_dequantizer(node, state)
        match state:
            case np.ndarray():
                return Weight(codes=state.astype(np.int64), scale=scale, zero_point=zero_point,
                              axis=int(node.attributes.get("axis", 1)))
            case Codes():
                unsigned = state.unsigned
                return Codes(name=state.name, scale=float(scale.reshape(-1)[0]), unsigned=unsigned,
                             zero_point=int(zero_point.reshape(-1)[0]) - 128 * unsigned)
            case Real(dtype=dtype) if dtype in (np.int8, np.uint8):
                unsigned = dtype == np.uint8
                name = f"{state.name}/codes"
                point = int(zero_point.reshape(-1)[0]) - 128 * unsigned
                codes = Codes(name=name, scale=float(scale.reshape(-1)[0]), zero_point=point,
                              unsigned=unsigned)
                if name not in self.values:
                    self._emit(Quantize(inputs=(state.name,), output=name, source=node.name, exact=True),
                               Value(shape=state.shape, scale=codes.scale, zero_point=point,
                                     unsigned=unsigned))
                return codes
        raise CompileError(_reason(node, [state]))

    def _parameters_of_dequantizer(self, node: Node, state: State) -> tuple[np.ndarray, np.ndarray]:
        scale, zero_point = self._parameters(node)
        if len(node.inputs) < 3 or not node.inputs[2]:
            zero_point = np.zeros((), np.int64)
        if not isinstance(state, np.ndarray) and scale.size != 1:
            raise CompileError("activations with a scale per channel; supported: one per tensor")
        return scale, zero_point.astype(np.int64)

    def _bounds(self, node: Node) -> tuple[float, float]:
        limits = [-np.inf, np.inf]
        for index, key in enumerate(("min", "max")):
            if key in node.attributes:
                limits[index] = float(node.attributes[key])
            elif len(node.inputs) > index + 1 and node.inputs[index + 1]:
                limit = self.states.get(node.inputs[index + 1])
                if not isinstance(limit, np.ndarray):
                    raise CompileError("its bounds are not constants")
                limits[index] = float(limit.reshape(-1)[0])
        return limits[0], limits[1]

    # Operators.

    def _linear(self, linear: Linear, bias: list[State | None]) -> Linear:
        self._emit(linear.op, Value(shape=linear.shape, kind="acc"))
        return linear.with_bias(bias[0]) if bias and bias[0] is not None else linear

    def _batch_norm(self, linear: Linear, node: Node, parameters: list[State | None]) -> Linear:
        folded = fold_batch_norm(linear, node, parameters)
        self.ops = [folded.op if op is linear.op else op for op in self.ops]
        return folded

    def _requantize(self, linear: Linear, value: Value, common: dict[str, Any]) -> Requantize:
        try:
            multiplier, shift = fixed_point(linear.scale / np.float32(value.scale))
        except ValueError as error:
            raise CompileError(str(error)) from None
        offset = linear.constant * multiplier
        if linear.bias is not None:
            offset = offset + np.array([
                offset_of(bias, value.scale, bits)
                for bias, bits in zip(linear.bias, shift, strict=True)], np.int64)
        low, high = self._code_bounds(linear, value)
        return Requantize(inputs=(linear.op.output,), multiplier=multiplier, offset=offset, shift=shift,
                          zero_point=value.zero_point, low=low, high=high, **common)

    def _code_bounds(self, state: Linear | Sum, value: Value) -> tuple[int, int]:
        return (code_of(state.low, value.scale, value.zero_point),
                code_of(state.high, value.scale, value.zero_point))

    def _sum(self, state: Sum, value: Value, common: dict[str, Any]) -> Add:
        """Both scales with one exponent; the operand with the larger scale is shifted to it."""
        operands = []
        for codes in (state.a, state.b):
            multiplier, shift = fixed_point(np.array([codes.scale], np.float32) / np.float32(value.scale))
            operands.append((codes, int(multiplier[0]), int(shift[0])))
        shapes = [self.values[codes.name].shape for codes, *_ in operands]
        if shapes[0] != shapes[1]:
            raise CompileError(f"adds the shapes {shapes[0]} and {shapes[1]}; supported: equal ones")
        # The least shift belongs to the largest scale.
        (a, a_multiplier, a_shift), (b, b_multiplier, b_shift) = sorted(
            operands, key=lambda item: item[2])
        left = b_shift - a_shift
        if left > _MOST_LEFT:
            raise CompileError(f"adds tensors whose scales differ 2**{left} times; supported: up to "
                               f"2**{_MOST_LEFT}; quantize both with similar scales")
        offset = -((a.zero_point << left) * a_multiplier + b.zero_point * b_multiplier)
        low, high = self._code_bounds(state, value)
        return Add(inputs=(a.name, b.name),
                   multipliers=(a_multiplier, b_multiplier), left=left, offset=offset, shift=b_shift,
                   zero_point=value.zero_point, low=low, high=high, **common)

    def _table(self, state: Codes | Chain, value: Value) -> tuple[int, ...]:
        """The float32 definition, for all 256 codes."""
        codes = state if isinstance(state, Codes) else state.codes
        steps = np.arange(-128, 128, dtype=np.int64) - codes.zero_point
        real = steps.astype(np.float32) * np.float32(codes.scale)
        if isinstance(state, Chain):
            constants = {name: array for name, array in self.states.items()
                         if isinstance(array, np.ndarray)}
            real = run_nodes(list(state.nodes), self.model.opset, state.start, real, constants)
        table = np.rint(real / np.float32(value.scale)) + value.zero_point
        return tuple(int(code) for code in np.clip(table, -128, 127))

    def _max_pool(self, node: Node, x: Codes) -> Codes:
        source = x.name
        window, shape = pool_window(node, self.values[source].shape)
        name = node.outputs[0]
        self._emit(MaxPool(inputs=(source,), output=name, source=node.name, **window),
                   replace(self.values[source], shape=shape, scale=x.scale, zero_point=x.zero_point))
        return replace(x, name=name)

    def _average_pool(self, node: Node, x: Codes) -> Linear:
        source = x.name
        shape = self.values[source].shape
        axes = None
        if node.op == "ReduceMean" and len(node.inputs) > 1 and node.inputs[1]:
            axes = np.asarray(self.states[node.inputs[1]]).reshape(-1).tolist()
        window, pooled = pool_window(node, shape, axes)
        count = int(np.prod(window["kernel"]))
        op = SumPool(inputs=(source,), output=node.outputs[0], source=node.name, pad_code=x.zero_point,
                     **window)
        self._emit(op, Value(shape=pooled, kind="acc"))
        channels = pooled[0]
        scale = np.float32(x.scale) / np.float32(count)
        return Linear(op=op, shape=pooled, scale=np.full(channels, scale, np.float32),
                      constant=np.full(channels, -x.zero_point * count, np.int64))

    def _reshape(self, node: Node, x: Codes | Linear) -> State:
        before = x.shape if isinstance(x, Linear) else self.values[x.name].shape
        target = _target_shape(node, before, self.states)
        if isinstance(x, Linear):
            if int(np.prod(before[1:])) != 1 or target[0] != before[0]:
                raise CompileError("reshapes a tensor that is not quantized; quantize it first")
            return x
        name = node.outputs[0]
        self._emit(Reshape(inputs=(x.name,), output=name, source=node.name),
                   replace(self.values[x.name], shape=target))
        return replace(x, name=name)

    # Names.

    def _emit(self, op: Op, value: Value) -> None:
        self.ops.append(op)
        self.values[op.output] = value

    def _alias(self, codes: Codes, name: str) -> None:
        """A quantizer that changes nothing: what it makes is the same value, under its name if it is free."""
        producer = next((op for op in self.ops if op.output == codes.name), None)
        if isinstance(producer, MaxPool | Reshape) and codes.name not in self.renamed:
            self.renamed[codes.name] = name

    def _output(self, name: str) -> str:
        state = self.states.get(name)
        match state:
            case Linear():
                self._emit(_real_output(state, f"{name}/user"), Value(shape=state.shape, kind="real"))
                self.renamed |= {f"{name}/user": name, state.op.output: f"{name}/acc"}
            case Codes() if self._quantizes(name):
                # The model's output are the codes: they need a name of their own.
                code = f"{name}/codes"
                self.renamed[state.name] = code
                self._emit(Dequantize(inputs=(state.name,), output=f"{name}/user", exact=True,
                                      scale=np.array([1], np.float32), bias=np.zeros(1, np.float32), source=name),
                           Value(shape=self.values[state.name].shape, kind="real"))
                self.renamed[f"{name}/user"] = name
            case Codes():
                value = self.values[state.name]
                self._emit(Dequantize(inputs=(state.name,), output=f"{name}/user", source=name,
                                      scale=np.array([state.scale], np.float32), bias=np.zeros(1, np.float32),
                                      zero_point=state.zero_point),
                           Value(shape=value.shape, kind="real"))
                self.renamed[f"{name}/user"] = name
                if state.name == name:
                    self.renamed[name] = f"{name}/codes"
            case Unsupported():
                pass
            case _:
                self.problems.append(f"output {name!r}: nothing quantized reaches it; quantize the "
                                     "tensor, or cut the model before it")
        return name

    def _quantizes(self, name: str) -> bool:
        return any(node.op == "QuantizeLinear" and name in node.outputs for node in self.model.nodes)


_OUTPUT_TYPES = {2: np.uint8, 3: np.int8}


def _real_output(linear: Linear, name: str) -> Dequantize:
    """Accumulators to real numbers, on the host."""
    bias = linear.constant * linear.scale.astype(np.float64)
    if linear.bias is not None:
        bias = bias + linear.bias
    return Dequantize(inputs=(linear.op.output,), output=name, source=linear.op.source,
                      scale=linear.scale, bias=bias.astype(np.float32))


def _along(parameter: np.ndarray, x: np.ndarray, node: Node) -> np.ndarray:
    if parameter.ndim == 0 or parameter.size == 1:
        return parameter.reshape(())
    axis = int(node.attributes.get("axis", 1)) % x.ndim
    return parameter.reshape([-1 if k == axis else 1 for k in range(x.ndim)])


def _renamed(op: Op, names: dict[str, str]) -> Op:
    return replace(op, inputs=tuple(names.get(name, name) for name in op.inputs),
                   output=names.get(op.output, op.output))


def _target_shape(node: Node, before: tuple[int, ...], states: dict[str, State]) -> tuple[int, ...]:
    size = int(np.prod(before))
    match node.op:
        case "Flatten":
            if int(node.attributes.get("axis", 1)) != 1:
                raise CompileError(f"axis = {node.attributes['axis']}; supported: 1")
            return (size,)
        case "Reshape":
            target = states.get(node.inputs[1])
            if not isinstance(target, np.ndarray):
                raise CompileError("its shape is not a constant")
            sizes = [int(v) for v in target.reshape(-1)]
            sizes = [(1, *before)[k] if v == 0 else v for k, v in enumerate(sizes)]
            rest = sizes[1:]
            if sizes[0] not in (1, -1) or not rest:
                raise CompileError(f"reshapes to {sizes}; supported: shapes that keep the batch first")
            if -1 in rest:
                known = int(np.prod([v for v in rest if v != -1]))
                rest = [size // known if v == -1 else v for v in rest]
            if int(np.prod(rest)) != size:
                raise CompileError(f"reshapes {before} to {rest}")
            return tuple(rest)
        case _:
            axes = node.attributes.get("axes")
            if axes is None and len(node.inputs) > 1:
                axes = np.asarray(states[node.inputs[1]]).reshape(-1).tolist()
            batch = [1, *before]
            if node.op == "Squeeze":
                axes = [k for k, v in enumerate(batch) if v == 1 and k] if axes is None else axes
                dropped = {int(k) % len(batch) for k in axes}
                return tuple(v for k, v in enumerate(batch) if k not in dropped and k)
            axes = [] if axes is None else axes
            for k in sorted(int(k) % (len(batch) + len(axes)) for k in axes):
                batch.insert(k, 1)
            return tuple(batch[1:])


def _reason(node: Node, inputs: list[State | None]) -> str:
    real = next((state for state in inputs if isinstance(state, Linear | Sum | Chain)), None)
    if real is not None:
        return ("reads a tensor that is not quantized; supported here: Relu, Clip, "
                "BatchNormalization or a bias, then QuantizeLinear; quantize the tensor before it")
    if any(isinstance(state, Real) for state in inputs):
        return "computes on an input of the model before it is quantized; quantize the input first"
    return "not supported; replace it by supported operators, or cut the model before it"


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"

