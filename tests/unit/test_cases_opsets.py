"""The list of cases, U54 above all: one operator in the spellings of every opset, from 7 on."""

import numpy as np
import onnx
import pytest

import almac
from almac.compiler.build import build
from almac.compiler.importer import import_model
from almac.hdl.config import ArrayConfig
from almac.verify import verify


@pytest.fixture
def spelled():
    """Model of codes ``d`` of (N, 4, 4, 6), nodes, and codes made of ``r``, in an opset.

    Below opset 10 there are no quantizers but those of another domain.
    """
    def build(nodes, opset, out="A,B,C,D", **constants):
        domain = "com.microsoft." if opset < 10 else ""
        ir = 13 if opset > 24 else 3 if opset < 9 else 8
        model = onnx.parser.parse_model(f"""
            <ir_version: {ir}, opset_import: ["" : {opset}, "com.microsoft" : 1]>
            g (uint8[N,4,4,6] x) => (uint8[{out}] y) <float s = {{0.5}}, uint8 z = {{100}}> {{
                d = {domain}DequantizeLinear(x, s, z)
                {nodes}
                y = {domain}QuantizeLinear(r, s, z) }}""")
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items())
        if ir == 3:
            for tensor in model.graph.initializer:
                model.graph.input.append(
                    onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        return model
    return build


X = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 6)).astype(np.uint8)

FLOOR = 'coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'

#: Spellings of one operator: least and greatest opset, nodes, constants. All of a list give the same program.
SAME = {
    "Clip": [(7, 10, "r = Clip <min = -3.0, max = 20.0> (d)", {}),
             (11, 25, "r = Clip(d, low, high)", {"low": np.float32(-3), "high": np.float32(20)})],
    "Squeeze": [(7, 12, "a = GlobalMaxPool(d) r = Squeeze <axes = [2, 3]> (a)", {}),
                (13, 25, "a = GlobalMaxPool(d) r = Squeeze(a, axes)", {"axes": [2, -1]})],
    "Unsqueeze": [(7, 12, "a = GlobalMaxPool(d) f = Flatten(a) r = Unsqueeze <axes = [2, 3]> (f)", {}),
                  (13, 25, "a = GlobalMaxPool(d) f = Flatten(a) r = Unsqueeze(f, axes)", {"axes": [-1, 2]})],
    "Slice": [(7, 9, "r = Slice <axes = [1, 3], starts = [1, -4], ends = [3, 1000]> (d)", {}),
              (10, 25, "r = Slice(d, starts, ends, axes)", {"starts": [1, -4], "ends": [3, 1000], "axes": [1, 3]}),
              (11, 25, "r = Slice(d, starts, ends, axes, steps)",
               {"starts": [1, 2], "ends": [-1, 2 ** 40], "axes": [-3, -1], "steps": [1, 1]})],
    "Pad": [(7, 10, 'r = Pad <mode = "constant", pads = [0,0,1,0,0,0,2,3], value = 2.0> (d)', {}),
            (11, 25, "r = Pad(d, pads, value)", {"pads": [0, 0, 1, 0, 0, 0, 2, 3], "value": np.float32(2)}),
            (18, 25, "r = Pad(d, pads, value, axes)",
             {"pads": [1, 0, 2, 3], "value": np.float32(2), "axes": [2, 3]})],
    "Crop": [(7, 10, "r = Pad <pads = [0,0,-1,0,0,0,0,-2]> (d)", {}),
             (11, 25, "r = Pad(d, pads)", {"pads": [0, 0, -1, 0, 0, 0, 0, -2]}),
             (18, 25, "r = Pad(d, pads, , axes)", {"pads": [-1, 0, 0, -2], "axes": [-2, -1]})],
    "Upsample": [(7, 8, 'r = Upsample <mode = "nearest", scales = [1.0, 1.0, 2.0, 3.0]> (d)', {}),
                 (9, 9, "r = Upsample(d, scales)", {"scales": np.float32([1, 1, 2, 3])}),
                 (10, 10, "r = Resize(d, scales)", {"scales": np.float32([1, 1, 2, 3])}),
                 (11, 25, f"r = Resize <{FLOOR}> (d, roi, scales)",
                  {"roi": np.zeros(0, np.float32), "scales": np.float32([1, 1, 2, 3])}),
                 (13, 25, f"r = Resize <{FLOOR}> (d, , , sizes)", {"sizes": [1, 4, 8, 18]}),
                 (18, 25, f"r = Resize <{FLOOR}, axes = [2, 3]> (d, , , sizes)", {"sizes": [8, 18]})],
    "Dropout": [(7, 11, "a = Dropout <ratio = 0.3> (d) r = Relu(a)", {}),
                (7, 25, "a = Dropout(d) r = Relu(a)", {}),
                (12, 25, "a, mask = Dropout(d, ratio) r = Relu(a)", {"ratio": np.float32(0.7)}),
                (13, 25, "a = Dropout(d, ratio, training) r = Relu(a)",
                 {"ratio": np.float32(0.7), "training": np.array(False)})],
    "Split": [(7, 12, "a, b = Split <axis = 1, split = [3, 1]> (d) r = Relu(a)", {}),
              (13, 25, "a, b = Split <axis = 1> (d, parts) r = Relu(a)", {"parts": [3, 1]}),
              (18, 25, "a, b = Split <axis = 1, num_outputs = 2> (d) r = Relu(b)", {})],
    "MaxPool": [(7, 25, "r = MaxPool <kernel_shape = [2,3], pads = [0,1,1,1]> (d)", {}),
                (8, 25, "r = MaxPool <kernel_shape = [2,3], pads = [0,1,1,1], storage_order = 0> (d)", {}),
                (10, 25, "r = MaxPool <kernel_shape = [2,3], pads = [0,1,1,1], dilations = [1,1]> (d)", {})],
    "AveragePool": [(7, 25, "r = AveragePool <kernel_shape = [2,2], strides = [2,2]> (d)", {}),
                    (10, 25, "r = AveragePool <kernel_shape = [2,2], strides = [2,2], ceil_mode = 0> (d)", {}),
                    (19, 25, "r = AveragePool <kernel_shape = [2,2], strides = [2,2], dilations = [1,1]> (d)", {})],
    "BatchNormalization": [
        (7, 25, "r = BatchNormalization(d, ga, be, me, va)", {
            "ga": np.float32([1, 0.5, 2, 1]), "be": np.float32([3, 0, -1, 8]), "me": np.float32([0, 1, 2, 3]),
            "va": np.float32([1, 4, 0.25, 1])})],
    "Flatten": [(7, 25, "a = GlobalAveragePool(d) r = Flatten <axis = 1> (a)", {}),
                (11, 25, "a = GlobalAveragePool(d) r = Flatten <axis = -3> (a)", {})],
    "Reshape": [(7, 25, "a = GlobalMaxPool(d) r = Reshape(a, shape)", {"shape": [-1, 4]}),
                (7, 25, "a = GlobalMaxPool(d) r = Reshape(a, shape)", {"shape": [0, -1]})],
    "DepthToSpace": [(7, 25, "r = DepthToSpace <blocksize = 2> (d)", {}),
                     (11, 25, 'r = DepthToSpace <blocksize = 2, mode = "DCR"> (d)', {})],
}


@pytest.mark.parametrize("name", SAME)
def test_u54_spellings_of_one_operator(spelled, check, name):
    digests = {}
    for number, (first, last, nodes, constants) in enumerate(SAME[name]):
        arrays = {key: value if isinstance(value, np.ndarray | np.float32) else np.array(value, np.int64)
                  for key, value in constants.items()}
        for opset in sorted({first, last, *({7, 9, 10, 11, 12, 13, 18, 21} & {*range(first, last)})}):
            if opset > 9 and "Upsample" in nodes:
                continue
            out = "A,B" if name in ("Squeeze", "Flatten", "Reshape") else "A,B,C,D"
            model = spelled(nodes, opset, out, **arrays)
            # Sizes of a Resize are those of one image.
            x = X[:1] if "sizes" in constants else X
            check(model, x=x, near_ties=4)
            graph = import_model(model)
            assert not [op for op in graph.ops if type(op).__name__ == "Host"], (opset, nodes)
            compiled = build(model, ArrayConfig(lanes=8, rows=8))
            assert verify(compiled, model, {"x": x}, "program").first_difference is None
            digests[number, opset] = [type(op).__name__ for op in graph.ops], compiled.program.digest
    expected = {"Split": 2}
    assert len({digest for _, digest in digests.values()}) == expected.get(name, 1), digests


@pytest.mark.parametrize(("opset", "gemm", "bias"), [
    (7, "Gemm <transB = 1> (f, v, b)", (2,)), (9, "Gemm <transB = 1, beta = 2.0> (f, v, b)", (1, 2)),
    (11, "Gemm <transB = 1> (f, v)", None), (13, "Gemm <transB = 1, alpha = 0.5> (f, v, b)", (1,)),
    (25, "Gemm <transB = 1> (f, v, b)", ())])
def test_u54_gemm(spelled, check, opset, gemm, bias):
    domain = "com.microsoft." if opset < 10 else ""
    more = {} if bias is None else {"b": np.full(bias, 4, np.float32)}
    nodes = f"a = GlobalMaxPool(d) f = Flatten(a) v = {domain}DequantizeLinear(w, s, z) r = {gemm}"
    model = spelled(nodes, opset, "A,B", w=np.uint8([[100, 101, 102, 90], [0, 99, 110, 100]]), **more)
    check(model, x=X)
    almac.compile(model)


TAILS = [
    (7, "y = Softmax(f)", "N,4"), (11, "y = Softmax <axis = 1> (f)", "N,4"), (13, "y = Softmax(f)", "N,4"),
    (13, "y = LogSoftmax <axis = -1> (f)", "N,4"), (11, "y = Softmax <axis = 1> (d)", "N,4,4,6"),
    (13, "y = Softmax <axis = 1> (d)", "N,4,4,6"), (7, "y, i = TopK <k = 2> (f)", "N,2"),
    (10, "y, i = TopK(f, k)", "N,2"), (11, "y, i = TopK <largest = 0> (f, k)", "N,2"),
    (25, "y, i = TopK(f, k)", "N,2"), (13, "s1 = Sigmoid(f) y = Mul(s1, f)", "N,4"), (20, "y = Gelu(f)", "N,4")]


@pytest.mark.parametrize(("opset", "tail", "out"), TAILS)
def test_u64_tails_of_every_opset(check, opset, tail, out):
    domain = "com.microsoft." if opset < 10 else ""
    ir = 13 if opset > 24 else 8
    model = onnx.parser.parse_model(f"""<ir_version: {ir}, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        g (uint8[N,4,4,6] x) => (float[{out}] y) <float s = {{0.05}}, uint8 z = {{100}}, int64[1] k = {{2}}> {{
            c = {domain}DequantizeLinear(x, s, z)
            m = MaxPool <kernel_shape = [1,1]> (c)
            q = {domain}QuantizeLinear(m, s, z)
            d = {domain}DequantizeLinear(q, s, z)
            a = GlobalMaxPool(d)
            f = Flatten(a)
            {tail} }}""")
    check(model, x=X)
    program = almac.compile(model)
    assert program.after
