"""QOperator models: operators on codes, with the scales and zero points among their inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from almac.compiler.spellings.emit import Rewrite, Rule, decline
from almac.compiler.spellings.inputs import Declined, Operand, Scheme, array, attribute, dtype_of, operands, scheme

__all__ = ["RULES"]

_MICROSOFT = "com.microsoft"
_NHWC = "channels_last = 1; supported: channels first; export the model with the channels after the batch"

#: The first opset whose Softmax is along one axis.
_SOFTMAX_OPSET = 13


def _conv(rewrite: Rewrite) -> ir.Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = operands(rewrite.node, 9, {8})
    attributes = _channels_first(rewrite.node)
    x_codes, w_codes = scheme(x_scale, x_zero), scheme(w_scale, w_zero, axis=0)
    inputs = [rewrite.dequantize(x, x_codes, "x"), rewrite.dequantize(w, w_codes, "w")]
    if bias is not None:
        inputs.append(rewrite.dequantize(bias, _bias(x_codes, w_codes), "B"))
    return rewrite.quantize(rewrite.op("Conv", inputs, "real", main=True, attributes=attributes),
                            scheme(y_scale, y_zero))


def _matmul(rewrite: Rewrite) -> ir.Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands(rewrite.node, 8)
    inputs = (rewrite.dequantize(a, scheme(a_scale, a_zero), "a"),
              rewrite.dequantize(b, scheme(b_scale, b_zero, axis=-1), "b"))
    return rewrite.quantize(rewrite.op("MatMul", inputs, "real", main=True), scheme(y_scale, y_zero))


def _gemm(rewrite: Rewrite) -> ir.Value:
    """``alpha`` scales ``C`` too, whose codes are added to the exact sum."""
    node = rewrite.node
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = operands(node, 9, {5, 6, 7, 8})
    alpha = np.float32(attribute(node, "alpha", 1.0))
    a_codes = scheme(a_scale, a_zero)
    b_codes = scheme(b_scale, b_zero, axis=0 if attribute(node, "transB", 0) else 1, default=dtype_of(b))
    inputs = [rewrite.dequantize(a, a_codes, "a"), rewrite.dequantize(b, b_codes, "b")]
    if c is not None:
        codes = _bias(a_codes, b_codes, factor=alpha, axis=-1)
        inputs.append(rewrite.dequantize(_columns(rewrite, c, codes), codes, "C"))
    real = rewrite.op("Gemm", inputs, "real", main=True, attributes={
        "alpha": float(alpha), "transA": attribute(node, "transA", 0), "transB": attribute(node, "transB", 0)})
    if (y_scale is None) != (y_zero is None):
        raise Declined("has only one of the scale and the zero point of its output; supported: both or none")
    return real if y_scale is None else rewrite.quantize(real, scheme(y_scale, y_zero))


def _columns(rewrite: Rewrite, c: ir.Value, codes: Scheme) -> ir.Value:
    """``C`` with as many columns as there are scales."""
    if codes.axis is None or (c.shape is not None and c.shape[-1:] == codes.scale.shape):
        return c
    numbers = array(c, "C")
    if numbers.size == 1:
        return rewrite.constant(np.full(codes.scale.shape, numbers.reshape(-1)[0]), "C/codes")
    if numbers.shape[-1:] != codes.scale.shape:
        raise Declined(f"C of the shape {list(numbers.shape)} for {codes.scale.size} columns")
    return c


def _bias(x: Scheme, w: Scheme, factor: np.float32 | None = None, axis: int = 0) -> Scheme:
    """Of the int32 numbers that are added to a sum of products, in float32."""
    scale = x.scale * w.scale if factor is None else factor * x.scale * w.scale
    return Scheme(scale=np.asarray(scale, np.float32), zero_point=np.zeros(scale.shape, np.int32),
                  axis=None if w.axis is None else axis)


def _two(op_type: str) -> Rule:
    """A function of two tensors."""
    def rule(rewrite: Rewrite) -> ir.Value:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands(rewrite.node, 8, {2, 5, 7})
        a_codes = scheme(a_scale, a_zero, default=dtype_of(a))
        dtype = a_codes.zero_point.dtype
        inputs = (rewrite.dequantize(a, a_codes, "a"),
                  rewrite.dequantize(b, scheme(b_scale, b_zero, default=dtype), "b"))
        return rewrite.quantize(rewrite.op(op_type, inputs, "real", main=True),
                                scheme(y_scale, y_zero, default=dtype))
    return rule


def _one(op_type: str) -> Rule:
    """A function of one tensor, with the same attributes."""
    def rule(rewrite: Rewrite) -> ir.Value:
        return _function(rewrite, op_type, _channels_first(rewrite.node))
    return rule


def _function(rewrite: Rewrite, op_type: str, attributes: Mapping[str, Any], *more: Operand) -> ir.Value:
    x, x_scale, x_zero, y_scale, y_zero = operands(rewrite.node, 5, {2, 4})
    x_codes = scheme(x_scale, x_zero, default=dtype_of(x))
    inputs = (rewrite.dequantize(x, x_codes, "x"), *more)
    return rewrite.quantize(rewrite.op(op_type, inputs, "real", main=True, attributes=attributes),
                            scheme(y_scale, y_zero, default=x_codes.zero_point.dtype))


def _softmax(rewrite: Rewrite) -> ir.Value:
    axis, opset = attribute(rewrite.node, "axis", -1), attribute(rewrite.node, "opset", _SOFTMAX_OPSET)
    if opset < _SOFTMAX_OPSET and axis != -1:
        raise Declined(f"a softmax of opset {opset}, over all axes from {axis} on; supported: over one axis")
    return _function(rewrite, "Softmax", {"axis": axis})


def _reduce_mean(rewrite: Rewrite) -> ir.Value:
    nothing: tuple[int, ...] = ()
    axes = attribute(rewrite.node, "axes", nothing)
    return _function(rewrite, "ReduceMean", {"keepdims": attribute(rewrite.node, "keepdims", 1)}, *(
        [rewrite.constant(np.array(axes, np.int64), "axes")] if axes else ()))


def _concat(rewrite: Rewrite) -> ir.Value:
    node = rewrite.node
    y_scale, y_zero, *triples = operands(node, max(len(node.inputs), 5))
    if len(triples) % 3:
        raise Declined(f"has {len(node.inputs)} inputs; its operator has two, and three for each tensor")
    parts = [rewrite.dequantize(x, scheme(scale, zero_point), f"x{index}") for index, (x, scale, zero_point)
             in enumerate(zip(triples[::3], triples[1::3], triples[2::3], strict=True))]
    return rewrite.quantize(rewrite.op("Concat", parts, "real", main=True, attributes=node.attributes),
                            scheme(y_scale, y_zero))


def _standard(rewrite: Rewrite) -> ir.Value:
    """An operator that ONNX has under the same name."""
    node = rewrite.node
    return rewrite.op(node.op_type, node.inputs, "real", main=True, attributes=node.attributes)


def _quantize_linear(rewrite: Rewrite) -> ir.Value:
    node = rewrite.node
    zero_point = operands(node, 3, {2})[2]
    dtype = None if zero_point is None else zero_point.dtype
    return rewrite.op("QuantizeLinear", node.inputs, "codes", main=True, attributes=node.attributes,
                      dtype=dtype or ir.DataType.UINT8)


def _channels_first(node: ir.Node) -> dict[str, ir.Attr]:
    """Attributes of ``node`` without the layout."""
    if attribute(node, "channels_last", 0):
        raise Declined(_NHWC)
    return {name: value for name, value in node.attributes.items() if name != "channels_last"}


RULES: dict[tuple[str, str], Rule] = {
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    (_MICROSOFT, "QLinearConv"): _conv,
    (_MICROSOFT, "QGemm"): _gemm,
    (_MICROSOFT, "QLinearAdd"): _two("Add"),
    (_MICROSOFT, "QLinearMul"): _two("Mul"),
    (_MICROSOFT, "QLinearSigmoid"): _one("Sigmoid"),
    (_MICROSOFT, "QLinearLeakyRelu"): _one("LeakyRelu"),
    (_MICROSOFT, "QLinearAveragePool"): _one("AveragePool"),
    (_MICROSOFT, "QLinearGlobalAveragePool"): _one("GlobalAveragePool"),
    (_MICROSOFT, "QLinearReduceMean"): _reduce_mean,
    (_MICROSOFT, "QLinearSoftmax"): _softmax,
    (_MICROSOFT, "QLinearConcat"): _concat,
    (_MICROSOFT, "QuantizeLinear"): _quantize_linear,
    (_MICROSOFT, "DequantizeLinear"): _standard,
    (_MICROSOFT, "Gelu"): _standard,
    (_MICROSOFT, "QLinearWhere"): decline("selects by data; replace it by supported operators, or cut the "
                                          "model before it"),
    (_MICROSOFT, "NhwcMaxPool"): decline(_NHWC),
}
