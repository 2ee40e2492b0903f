"""Integer arithmetic in the model: QOperator, and ConvInteger with what follows it.

Layers with 8-bit signed weights stay QDQ: onnxruntime's kernels for x86 processors without VNNI saturate the sum of
two products at 16 bits, which weights of 7 bits cannot reach.
"""

import numpy as np
from layers import (
    AveragePool,
    Binary,
    Concat,
    Conv,
    ConvTranspose,
    Function,
    Gemm,
    GlobalPool,
    Reorder,
    Weights,
)
from nodes import CONTRIB
from operators import activated, normalized, operate, window
from parameters import parameters
from spellings import Qcdq, Qdq, moves_codes

__all__ = ["Integer", "QOperator"]

_FUNCTIONS = {"Sigmoid": "QLinearSigmoid", "LeakyRelu": "QLinearLeakyRelu"}


class QOperator(Qcdq):
    """QLinear operators from codes to codes, where there are any; else QDQ."""

    @staticmethod
    def knows(recipe, layer):
        """Whether there is a QLinear operator for a layer, and a kernel of onnxruntime."""
        dtypes = {recipe.quantization(tensor).dtype for tensor in layer.inputs} | {layer.out.dtype}
        if len(dtypes) > 1:
            return False
        match layer:
            case ConvTranspose() | Gemm(weights=Weights(kind="int8")):
                return False
            case Gemm():
                signs = layer.out.dtype, layer.weights.kind
                return (layer.bias != "float" and not getattr(layer, "batch_norm", False)
                        and signs != ("int8", "uint8"))
            case AveragePool(ceil_mode=1, count_include_pad=1):
                # onnxruntime counts what ceil_mode adds beyond the padding here, and not in AveragePool.
                return False
            case AveragePool() | Concat() | Binary(kind="Add" | "Mul") | GlobalPool(kind="GlobalAveragePool"):
                return True
            case Function(kind="Sigmoid" | "LeakyRelu"):
                return True
        return False

    def layer(self, k, layer):
        """From codes to the codes ``t{k}``."""
        codes = [f"t{tensor}" for tensor in layer.inputs]
        # ONNX has no GlobalMaxPool of integers, and onnxruntime moves none between depth and space.
        if moves_codes(self.recipe, layer) and not isinstance(layer, GlobalPool | Reorder):
            self.nodes.rename_output(operate(self.nodes, self.recipe, k, layer, codes, on_codes=True), f"t{k}")
        elif self.knows(self.recipe, layer):
            low, high = self._bounds(layer)
            output = self._operator(k, layer, codes)
            if (low, high) == (np.iinfo(layer.out.dtype).min, np.iinfo(layer.out.dtype).max):
                self.nodes.rename_output(output, f"t{k}")
            else:
                self.clip(output, layer.out, low, high, f"t{k}")
        else:
            super().layer(k, layer)

    weight = Qdq.weight

    def _bounds(self, layer):
        """Saturation by the number of bits and by the activation."""
        low, high = layer.out.low, layer.out.high
        match getattr(layer, "activation", "none"):
            case "relu":
                low = max(low, layer.out.zero_point)
            case "clip":
                low, high = (int(code) for code in layer.out.quantize(np.array(layer.bounds, np.float32)))
        return low, high

    def _operator(self, k, layer, codes):
        pairs = [(code, *self.quantization(tensor)) for code, tensor in zip(codes, layer.inputs, strict=True)]
        out = self._codes_of(layer)
        flat = [name for pair in pairs for name in pair]
        op = self.nodes.op
        match layer:
            case Conv():
                weight, bias = self._constants(k, layer)
                return op("QLinearConv", *flat, *weight, *out, *bias, **window(layer))
            case Gemm(form="MatMul", bias="none"):
                weight, _ = self._constants(k, layer)
                return op("QLinearMatMul", *flat, *weight, *out)
            case Gemm():
                weight, bias = self._constants(k, layer)
                return op("QGemm", *flat, *weight, *(bias or [""]), *out, domain=CONTRIB,
                          transB=int(layer.form == "Gemm transposed"))
            case AveragePool():
                return op("QLinearAveragePool", *flat, *out, domain=CONTRIB, ceil_mode=layer.ceil_mode,
                          count_include_pad=layer.count_include_pad, **window(layer))
            case GlobalPool():
                return op("QLinearGlobalAveragePool", *flat, *out, domain=CONTRIB)
            case Binary():
                return op(f"QLinear{layer.kind}", *flat, *out, domain=CONTRIB)
            case Concat():
                return op("QLinearConcat", *out, *flat, domain=CONTRIB, axis=1)
            case Function():
                attributes = {"alpha": layer.alpha} if layer.kind == "LeakyRelu" else {}
                return op(_FUNCTIONS[layer.kind], *flat, *out, domain=CONTRIB, **attributes)
        raise TypeError(f"no QLinear operator for {layer!r}")

    def _codes_of(self, layer):
        return self.nodes.real(layer.out.scale), self.nodes.constant(layer.out.zero)

    def _constants(self, k, layer):
        known = parameters(self.recipe, k, layer)
        zero = np.broadcast_to(np.array(layer.weights.zero_point, known.codes.dtype), known.scale.shape)
        weight = (self.nodes.constant(known.codes, stem="weight"), self.nodes.real(known.scale),
                  self.nodes.constant(zero))
        bias = [] if known.bias is None else [self.nodes.constant(known.bias, stem="bias")]
        return weight, bias


class Integer(Qdq):
    """ConvInteger or MatMulInteger, Cast, Mul, Add, QuantizeLinear; else QDQ."""

    @staticmethod
    def knows(recipe, layer):
        """Whether a layer is a product of integers that onnxruntime has a kernel for."""
        match layer:
            case ConvTranspose() | Gemm(weights=Weights(kind="int8")):
                return False
            case Conv():
                return recipe.quantization(layer.inputs[0]).dtype == "uint8"
            case Gemm():
                return True
        return False

    def layer(self, k, layer):
        """From codes to the codes ``t{k}``."""
        if not self.knows(self.recipe, layer):
            return super().layer(k, layer)
        known = parameters(self.recipe, k, layer)
        is_conv = isinstance(layer, Conv)
        weight = known.codes.T if layer.form == "Gemm transposed" else known.codes
        operands = [f"t{layer.inputs[0]}", self.nodes.constant(weight, stem="weight"),
                    self.quantization(layer.inputs[0])[1],
                    self.nodes.constant(np.array(layer.weights.zero_point, weight.dtype))]
        acc = (self.nodes.op("ConvInteger", *operands, **window(layer)) if is_conv
               else self.nodes.op("MatMulInteger", *operands))
        along = [-1, *(1,) * (weight.ndim - 2)] if is_conv else [-1]
        unit = known.unit.reshape(along) if known.unit.ndim else known.unit
        real = self.nodes.op("Mul", self.nodes.op("Cast", acc, to=1), self.nodes.real(unit))
        if known.bias is not None:
            bias = known.bias if layer.bias == "float" else known.bias * known.unit
            real = self.nodes.op("Add", real, self.nodes.real(bias.reshape(along)))
        return self.quantize(activated(self.nodes, layer, normalized(self.nodes, layer, known, real)), k)
