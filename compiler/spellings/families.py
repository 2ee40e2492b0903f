"""Operators that only quantized models have."""

__all__ = ["QUANTIZERS"]

#: DequantizeLinear is not among them: alone it only stores weights in few bits.
QUANTIZERS = {
    "BipolarQuant", "ConvInteger", "DynamicQuantizeLinear", "IntQuant", "MatMulInteger", "QGemm", "QLinearAdd",
    "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool", "QLinearLeakyRelu",
    "QLinearMatMul", "QLinearMul", "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "Quant",
    "QuantizeLinear",
}
