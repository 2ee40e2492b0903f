"""Names of operators, by what they are to the importer."""

__all__ = ["FUNCTIONS", "HOST_WORK", "INFERRED", "MOVES"]

#: Operators of one tensor, element by element; with constants of one number, the binary ones too.
FUNCTIONS = {
    "Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div",
    "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Max", "Min", "Mish",
    "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin",
    "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Tan", "Tanh", "ThresholdedRelu",
}

#: Operators that only move data.
MOVES = {"DepthToSpace", "Expand", "Flatten", "Gather", "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth",
         "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Upsample"}

#: What the host may compute beside the array. Convolutions and matrix products are not among them: a network
#: whose work the host would do is not compiled in silence.
HOST_WORK = {
    *FUNCTIONS, *MOVES, "And", "ArgMax", "ArgMin", "BatchNormalization", "BipolarQuant", "Cast", "Concat",
    "Dropout", "Equal", "Greater", "GreaterOrEqual", "Hardmax", "Identity", "LRN", "Less", "LessOrEqual",
    "LogSoftmax", "LpNormalization", "NonMaxSuppression", "Not", "Or", "QuantizeLinear", "ReduceL2", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Shape", "Softmax", "Sum", "TopK", "Where",
}

#: Those whose shapes the library is asked for. It dies of others that are damaged; these are asked what they make
#: of zeros instead.
INFERRED = {
    *HOST_WORK, "AveragePool", "Constant", "ConstantOfShape", "Conv", "ConvInteger", "ConvTranspose",
    "DequantizeLinear", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "LayerNormalization",
    "MatMul", "MatMulInteger", "MaxPool", "QLinearConv", "QLinearMatMul",
}
