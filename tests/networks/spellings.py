"""Float arithmetic between quantizers: QDQ, QCDQ and QONNX."""

import numpy as np
from layers import (
    AveragePool,
    Concat,
    Conv,
    ConvTranspose,
    Gemm,
    GlobalPool,
    MaxPool,
    Pad,
    Reduce,
    Reorder,
    Reshape,
    Resize,
    Slice,
    Split,
    Transpose,
)
from nodes import QONNX
from onnx import TensorProto
from operators import activated, normalized, operate, window
from parameters import parameters

__all__ = ["Qcdq", "Qdq", "Qonnx", "moves_codes"]

#: ONNX types of weights of few bits, and the opset that has them.
_PACKED = {2: (25, "INT2"), 4: (21, "INT4")}


def moves_codes(recipe, layer):
    """Whether a layer computes nothing: its output codes are some of its input codes."""
    match layer:
        case AveragePool():
            return False
        case MaxPool() | Slice() | Split() | Pad() | Reshape() | Transpose() | Resize() | Reorder() | Concat():
            pass
        case GlobalPool(kind="GlobalMaxPool") | Reduce(kind="ReduceMax"):
            pass
        case _:
            return False
    return all(recipe.quantization(tensor) == layer.out for tensor in layer.inputs)


class Qdq:
    """DequantizeLinear, operators on real numbers, QuantizeLinear."""

    def __init__(self, recipe, nodes):
        self.recipe = recipe
        self.nodes = nodes

    def start(self):
        """From the input to the codes ``t0``."""
        if self.recipe.real_edges:
            self.quantize("x", 0)

    def layer(self, k, layer):
        """From codes to the codes ``t{k}``."""
        inputs = [self.dequantize(tensor) for tensor in layer.inputs]
        self.quantize(self.operate(k, layer, inputs), k)

    def operate(self, k, layer, inputs):
        """A layer between real tensors; returns its output."""
        if not isinstance(layer, Gemm):
            return operate(self.nodes, self.recipe, k, layer, inputs)
        known = parameters(self.recipe, k, layer)
        weight, bias = self.weight(layer, known), self.bias(layer, known)
        operands = [*inputs, weight, *([] if bias is None else [bias])]
        match layer:
            case ConvTranspose():
                real = self.nodes.op("ConvTranspose", *operands, **window(layer))
            case Conv():
                real = self.nodes.op("Conv", *operands, **window(layer))
            case Gemm(form="MatMul"):
                real = self.nodes.op("MatMul", *operands[:2])
                if bias is not None:
                    real = self.nodes.op("Add", real, bias)
            case _:
                real = self.nodes.op("Gemm", *operands, transB=int(layer.form == "Gemm transposed"))
        return activated(self.nodes, layer, normalized(self.nodes, layer, known, real))

    def dequantize(self, tensor):
        """Real numbers of the codes ``t{tensor}``, for one reader."""
        return self.nodes.op("DequantizeLinear", f"t{tensor}", *self.quantization(tensor))

    def quantization(self, tensor):
        """Names of scale and zero point."""
        quantization = self.recipe.quantization(tensor)
        return self.nodes.real(quantization.scale), self.nodes.constant(quantization.zero)

    def quantize(self, real, k):
        """Codes ``t{k}`` of a real tensor."""
        quantization = self.recipe.quantization(k)
        if quantization.bits < 8:
            bounds = quantization.dequantize([quantization.low, quantization.high])
            real = self.nodes.op("Clip", real, *(self.nodes.real(bound) for bound in bounds))
        self.nodes.op("QuantizeLinear", real, *self.quantization(k), output=f"t{k}")

    def weight(self, layer, known):
        """Real weights of constant codes."""
        opset, kind = _PACKED.get(layer.weights.bits, (99, ""))
        data_type = getattr(TensorProto, kind) if layer.weights.packed and self.nodes.opset >= opset else None
        codes = self.nodes.constant(known.codes, stem="weight", data_type=data_type)
        zero = np.array(layer.weights.zero_point, known.codes.dtype)
        zeros = [] if data_type else [self.nodes.constant(np.broadcast_to(zero, known.scale.shape))]
        return self.nodes.op("DequantizeLinear", codes, self.nodes.real(known.scale), *zeros, axis=known.axis)

    def bias(self, layer, known):
        """Real bias, or None."""
        match layer.bias:
            case "none":
                return None
            case "float":
                return self.nodes.constant(known.bias, stem="bias")
        return self.nodes.op("DequantizeLinear", self.nodes.constant(known.bias, stem="bias"),
                             self.nodes.real(known.unit), axis=0)

    def finish(self):
        """From codes to the outputs; returns their names."""
        names = []
        for k in self.recipe.outputs():
            if not self.recipe.real_edges:
                names.append(f"t{k}")
                continue
            real = self.dequantize(k)
            if k == len(self.recipe.layers) and self.recipe.tail == "Softmax":
                real = self.nodes.op("Softmax", real, axis=1)
            names.append(self.nodes.rename_output(real, f"y{k}"))
        return names


class Qcdq(Qdq):
    """QDQ with a Clip on codes of less than eight bits, and real weights."""

    def quantize(self, real, k):
        quantization = self.recipe.quantization(k)
        if quantization.bits == 8:
            return super().quantize(real, k)
        wide = self.nodes.op("QuantizeLinear", real, *self.quantization(k))
        return self.clip(wide, quantization, quantization.low, quantization.high, f"t{k}")

    def clip(self, codes, quantization, low, high, output):
        """Codes between bounds."""
        bounds = [self.nodes.constant(np.array(bound, quantization.dtype)) for bound in (low, high)]
        return self.nodes.op("Clip", codes, *bounds, output=output)

    def weight(self, layer, known):
        low, high = layer.weights.limits
        zero = np.broadcast_to(np.array(layer.weights.zero_point, known.codes.dtype), known.scale.shape)
        quantization = self.nodes.real(known.scale), self.nodes.constant(zero)
        real = self.nodes.constant(known.real, stem="weight")
        codes = self.nodes.op("QuantizeLinear", real, *quantization, axis=known.axis)
        if (low, high) not in {(-128, 127), (0, 255)}:
            bounds = [self.nodes.constant(np.array(bound, known.codes.dtype)) for bound in (low, high)]
            codes = self.nodes.op("Clip", codes, *bounds)
        return self.nodes.op("DequantizeLinear", codes, *quantization, axis=known.axis)


class Qonnx(Qdq):
    """A float model with Quant nodes: every tensor is real."""

    def dequantize(self, tensor):
        return f"t{tensor}"

    def layer(self, k, layer):
        real = self.operate(k, layer, [f"t{tensor}" for tensor in layer.inputs])
        # Quantized already: tools leave the Quant out.
        if moves_codes(self.recipe, layer):
            self.nodes.rename_output(real, f"t{k}")
        else:
            self.quantize(real, k)

    def quantize(self, real, k):
        quantization = self.recipe.quantization(k)
        self.quant(real, np.float32(quantization.scale), quantization.zero_point, quantization.bits,
                   signed=quantization.dtype == "int8", narrow=False, output=f"t{k}")

    def weight(self, layer, known):
        real = self.nodes.constant(known.real, stem="weight")
        along = [-1 if i == known.axis else 1 for i in range(known.real.ndim)]
        scale = known.scale.reshape(along) if known.scale.ndim else known.scale
        return self.quant(real, scale, layer.weights.zero_point, layer.weights.bits,
                          signed=layer.weights.kind != "uint8", narrow=layer.weights.kind == "ternary")

    def bias(self, layer, known):
        if layer.bias != "int32":
            return super().bias(layer, known)
        return self.nodes.constant((known.bias * known.unit).astype(np.float32), stem="bias")

    def quant(self, real, scale, zero_point, bits, *, signed, narrow, output=None):
        """Append a Quant node."""
        constants = [self.nodes.real(value) for value in (scale, zero_point, bits)]
        return self.nodes.op("Quant", real, *constants, domain=QONNX, output=output, signed=int(signed),
                             narrow=int(narrow), rounding_mode="ROUND")

    def finish(self):
        names = []
        for k in self.recipe.outputs():
            name = f"t{k}"
            if k == len(self.recipe.layers) and self.recipe.tail == "Softmax":
                name = self.nodes.op("Softmax", name, axis=1, output=f"y{k}")
            names.append(name)
        return names
