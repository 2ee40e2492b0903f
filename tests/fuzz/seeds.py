"""Small models that between them use every part of the importer."""

from collections.abc import Iterator

import onnx

__all__ = ["models"]

_PARAMETERS = """float s = {0.5}, float t = {0.25}, int8 z = {0}, uint8 u = {128}, float one = {1},
    float[4] row = {1,2,3,4}, int8[4,4,3,3] w = {_W}, int8[4,4,1,1] p = {_P}, int8[4,4] m = {_P},
    float[4] bias = {1,-1,2,0.5},
    float[4] scales = {0.1,0.2,0.3,0.4}, int8[4] zeros = {0,0,0,0}, int32[4] ibias = {1,2,-3,4},
    int64[2] flat = {1,-1}, int64[4] image = {1,4,2,8}, float[4] up = {1,1,2,2}, int64[8] pads = {0,0,1,1,0,0,1,1},
    int64[1] two = {2}, int64[1] none = {0}, int64[2] parts = {2,2}, int64[2] axes = {2,3}"""
for _name, _count in (("_W", 144), ("_P", 16)):
    _PARAMETERS = _PARAMETERS.replace(_name, ",".join(str(k * 7 % 5 - 2) for k in range(_count)))

#: Nodes between the codes ``d`` of an image [N, 4, 4, 4] and the tensor ``a`` that is quantized.
_BODIES = (
    "a = Conv <pads = [1,1,1,1]> (d, v)",
    "c = Conv <strides = [2,2], pads = [1,1,1,1]> (d, v, bias) a = Relu(c)",
    """c = Conv <group = 1, auto_pad = "SAME_UPPER"> (d, v)
    b = BatchNormalization(c, row, bias, bias, row) a = Clip(b, one, row4)""",
    "a = ConvTranspose <strides = [2,2], pads = [1,1,1,1]> (d, k)",
    "b = Conv(d, k) e = QuantizeLinear(b, s, z) f = DequantizeLinear(e, s, z) a = Add(f, d)",
    "b = Concat <axis = 1> (d, d) a = MaxPool <kernel_shape = [2,2], strides = [2,2]> (b)",
    "b, c = Split <axis = 1> (d, parts) e = Mul(b, c) f = Sigmoid(d) a = Concat <axis = 1> (e, f)",
    "b = Resize(d, , up) c = Pad(b, pads) a = Slice(c, none, two, two)",
    "b = Transpose <perm = [0,2,3,1]> (d) c = Reshape(b, image) e = Tanh(c) a = LeakyRelu(e)",
    """b = GlobalAveragePool(d) e = QuantizeLinear(b, s, z) f = DequantizeLinear(e, s, z) c = Flatten(f)
    a = Gemm <transB = 1> (c, n, bias)""",
    """b = ReduceMean(d, axes) f = QuantizeLinear(b, s, z) h = DequantizeLinear(f, s, z) c = Reshape(h, flat)
    a = MatMul(c, n)""",
    "b = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1> (d) a = HardSwish(b)",
    "b = Mul(d, one) c = Sub(b, s) e = Div(c, t) f = Pow(e, one) a = Max(f, s)",
    "b = Unsqueeze(d, two) c = Squeeze(b, two) e = Gather <axis = 1> (c, flat2) f = Identity(e) a = Neg(f)",
    """b = Expand(d, image2) c = Tile(b, ones) e = DepthToSpace <blocksize = 2> (c)
    a = SpaceToDepth <blocksize = 2> (e)""",
)

_QDQ = """g (float[N,4,4,4] x) => (int8 y, float d) <%s, float row4 = {4}, int64[4] flat2 = {3,2,1,0},
    int64[4] image2 = {1,4,4,4}, int64[4] ones = {1,1,1,1}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    v = DequantizeLinear <axis = 0> (w, scales, zeros)
    k = DequantizeLinear(p, t)
    n = DequantizeLinear(m, t)
    %s
    y = QuantizeLinear(a, s, z) }"""

_OTHERS = (
    # QOperator, with unsigned codes.
    """g (float[N,4,4,4] x) => (float y) <%s> {
    q = QuantizeLinear(x, s, u)
    a = QLinearConv <pads = [1,1,1,1]> (q, s, u, w, t, z, s, u, ibias)
    b = com.microsoft.QLinearAdd(a, s, u, q, s, u, s, u)
    c = com.microsoft.QLinearGlobalAveragePool(b, s, u, s, u)
    e = Flatten(c)
    f = QLinearMatMul(e, s, u, m, t, z, s, u)
    y = DequantizeLinear(f, s, u) }""",
    # Integer operators.
    """g (int8[N,4,4,4] x) => (float y) <%s> {
    a = ConvInteger(x, w, z, z)
    b = Cast <to = 1> (a)
    c = Mul(b, s)
    q = QuantizeLinear(c, s, z)
    y = DequantizeLinear(q, s, z) }""",
    # QONNX.
    """g (float[N,4,4,4] x) => (float y) <%s, float nil = {0},
    float[4,4,1,1] r = {1,2,3,-1,1,2,3,-1,1,2,3,-1,1,2,3,-1}, float bits = {4}> {
    q = qonnx.custom_op.general.Quant <signed = 1, narrow = 0, rounding_mode = "ROUND"> (x, s, nil, bits)
    f = qonnx.custom_op.general.Quant <signed = 1, narrow = 1> (r, s, nil, bits)
    a = Conv(q, f)
    b = qonnx.custom_op.general.BipolarQuant(a, one)
    y = qonnx.custom_op.general.Quant(b, s, nil, bits) }""",
    # Blocks of input channels, and planes.
    """g (float[N,4,4,4] x) => (float y) <%s, float[4,2,1,1] blocks = {1,2,1,2,1,2,1,2}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    k = DequantizeLinear <axis = 1, block_size = 2> (p, blocks)
    h = DequantizeLinear <axis = 1, block_size = 2> (p, blocks)
    b = Add(k, h)
    a = Conv(d, b)
    e = QuantizeLinear(a, s, z)
    y = DequantizeLinear(e, s, z) }""",
    # Constants that the importer computes, and work of the host.
    """g (float[N,4,4,4] x) => (float y, int64 i) <%s> {
    shape = Shape(x)
    first = Gather(shape, none)
    rest = Concat <axis = 0> (none, flat)
    big = ConstantOfShape(parts)
    b = Softmax(x)
    c = Reshape(b, rest)
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    y = Softmax(d)
    i = ArgMax <axis = 1> (d) }""",
)


def models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Models and their names."""
    texts = [_QDQ % (_PARAMETERS, body) for body in _BODIES] + [text % _PARAMETERS for text in _OTHERS]
    for index, text in enumerate(texts):
        opsets = '"" : 21, "com.microsoft" : 1, "qonnx.custom_op.general" : 1'
        yield f"seed{index}", onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{opsets}]> {text}")
