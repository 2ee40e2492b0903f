"""Quantizers written into a float model: standard QuantizeLinear and DequantizeLinear in plain INT8."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from almac.compiler.float_model import FloatModel
from almac.compiler.graph import CompileError
from almac.compiler.onnx_model import Node
from almac.compiler.placement import Placement

__all__ = ["Range", "quantized_model"]

_INT32 = 2**31 - 1

#: Least scale: a normal number, which no device flushes to zero.
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Range:
    """Least and greatest number that a tensor has held."""

    low: float
    high: float

    def parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """Scale and zero point of int8 codes that hold the range, and zero exactly: float32[], int8[]."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        scale = _scale(high - low, 255)
        zero_point = np.clip(np.rint(-128 - low / float(scale)), -128, 127)
        return scale, zero_point.astype(np.int8)


def quantized_model(model: FloatModel, placement: Placement, ranges: Mapping[str, Range]) -> onnx.ModelProto:
    """The model with quantizers where ``placement`` wants them, for tensors that hold ``ranges``.

    Raises
    ------
    CompileError
        If a weight is not a finite number.
    """
    return _Writer(model, placement, ranges).run()


def _scale(size: float, steps: int) -> np.ndarray:
    """Scale of a range of this size in so many steps; that of 1 in 127, if the range is empty."""
    return np.array(max(size / steps, _TINY) if size > 0 else 1 / 127, np.float32)


class _Writer:
    """Nodes and constants of the model that is made."""

    def __init__(self, model: FloatModel, placement: Placement, ranges: Mapping[str, Range]) -> None:
        self.model = model
        self.placement = placement
        self.ranges = ranges
        self.constants = dict(model.constants)
        self.nodes: list[onnx.NodeProto] = []
        self.taken = {*model.constants, *(info.name for info in model.model.inputs),
                      *(name for node in model.nodes for name in (node.name, *node.outputs))}
        # Outputs keep their names: what computed them gets another one.
        outputs = {info.name for info in model.model.outputs}
        self.real = {name: self._unique(f"{name}/float") for name in placement.ranges if name in outputs}
        self.dequantized: dict[str, str] = {}
        self.scales: dict[str, tuple[str, str]] = {}
        self.weights: dict[tuple[str, type, float], str] = {}

    def run(self) -> onnx.ModelProto:
        for info in self.model.model.inputs:
            self._activation(info.name)
        for index, node in enumerate(self.model.nodes):
            self._node(index, node)
        return self.model.to_proto(self.nodes, self.constants, self.model.proto.graph.output)

    def _node(self, index: int, node: Node) -> None:
        proto = onnx.NodeProto()
        proto.CopyFrom(node.proto)
        for k, name in enumerate(node.inputs):
            quantized = (index, k) in self.placement.edges
            proto.input[k] = self.dequantized[name] if quantized else self.real.get(name, name)
        for k, name in enumerate(node.outputs):
            proto.output[k] = self.real.get(name, name)
        after = self._quantize_weights(node, proto) if index in self.placement.linear else None
        self.nodes += [proto] if after is None else [proto, after]
        for name in node.outputs:
            self._activation(name)

    def _activation(self, name: str) -> None:
        """Quantizer and dequantizer behind a tensor, if it is to have them."""
        if name not in self.placement.ranges:
            return
        source = self.placement.ranges[name]
        if source not in self.scales:
            scale, zero_point = self.ranges[source].parameters()
            self.scales[source] = (self._constant(f"{source}/scale", scale),
                                   self._constant(f"{source}/zero_point", zero_point))
        codes = self._unique(f"{name}/quantized")
        self.dequantized[name] = name if name in self.real else self._unique(f"{name}/dequantized")
        self._emit("QuantizeLinear", [self.real.get(name, name), *self.scales[source]], codes, codes)
        self._emit("DequantizeLinear", [codes, *self.scales[source]], self.dequantized[name], f"{name}/dequantized")

    def _quantize_weights(self, node: Node, proto: onnx.NodeProto) -> onnx.NodeProto | None:
        """Let a linear operator read quantized weights and bias; the node that adds a bias beyond int32."""
        weight = self.constants[node.inputs[1]]
        scale = _scale(_largest(node, node.inputs[1], weight), 127)
        proto.input[1] = self._weight(node.inputs[1], weight, scale)
        if len(node.inputs) < 3 or not node.inputs[2]:
            return None
        bias = self.constants[node.inputs[2]]
        x_scale, _ = self.ranges[self.placement.ranges[node.inputs[0]]].parameters()
        with np.errstate(over="ignore", under="ignore"):
            product = x_scale * scale
        steps = _largest(node, node.inputs[2], bias) / max(float(product), _TINY)
        if _TINY <= float(product) < np.inf and steps < _INT32:
            proto.input[2] = self._weight(node.inputs[2], bias, np.asarray(product, np.float32), np.int32)
            return None
        return self._added_bias(node, proto, bias)

    def _weight(self, name: str, array: np.ndarray, scale: np.ndarray, kind: type = np.int8) -> str:
        """Dequantized constant; the same one for every reader that wants the same scale."""
        key = (name, kind, float(scale))
        if key not in self.weights:
            codes = np.rint(array / scale.astype(np.float64 if kind is np.int32 else np.float32)).astype(kind)
            parts = [self._constant(f"{name}/{part}", value) for part, value in (
                ("quantized", codes), ("scale", scale), ("zero_point", np.zeros((), kind)))]
            self.weights[key] = self._unique(f"{name}/dequantized")
            self._emit("DequantizeLinear", parts, self.weights[key], self.weights[key])
        return self.weights[key]

    def _added_bias(self, node: Node, proto: onnx.NodeProto, bias: np.ndarray) -> onnx.NodeProto:
        """The bias of a node as a float constant, added behind it."""
        output = proto.output[0]
        proto.output[0] = self._unique(f"{node.outputs[0]}/unbiased")
        del proto.input[2:]
        if node.op == "Gemm":
            bias = bias * np.float32(node.attributes.get("beta", 1.0))
        else:
            bias = bias.reshape(-1, *(1,) * (self.constants[node.inputs[1]].ndim - 2))
        name = self._constant(f"{node.inputs[2]}/float", bias)
        return helper.make_node("Add", [proto.output[0], name], [output], name=self._unique(f"{node.name}/bias"))

    def _emit(self, op: str, inputs: list[str], output: str, name: str) -> None:
        self.nodes.append(helper.make_node(op, inputs, [output], name=name))

    def _constant(self, name: str, array: np.ndarray) -> str:
        name = self._unique(name)
        self.constants[name] = array
        return name

    def _unique(self, name: str) -> str:
        """The name, or with the first number behind it that makes it a new one."""
        candidate, count = name, 0
        while candidate in self.taken:
            count += 1
            candidate = f"{name}_{count}"
        self.taken.add(candidate)
        return candidate


def _largest(node: Node, name: str, array: np.ndarray) -> float:
    """The largest magnitude among constants."""
    largest = float(np.abs(array).max(initial=0))
    if not np.isfinite(largest):
        raise CompileError(f"node {node.name!r} ({node.op}): its constant {name!r} holds {largest}; supported: "
                           "finite numbers")
    return largest
