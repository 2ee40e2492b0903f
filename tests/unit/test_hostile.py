"""Files that mean harm: compiled or refused in bounded time and memory, never a traceback or a crash.

All of them go through one process with a limit of two gigabytes, and ten seconds for each.
"""

import os
import zipfile

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from worker import Worker

NET = """<ir_version: 10, opset_import: ["" : {opset}]> g (float[{shape}] x) => (float y)
    <float s = {{0.5}}, int8 z = {{0}}, int8[4,4,1,1] w = {{{ones}}}, int8[4,4] m = {{{ones}}},
     float[4] row = {{1,2,3,4}}, float[4,4,1,1] f = {{{ones}}}> {{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    v = DequantizeLinear(w, s, z)
    n = DequantizeLinear(m, s, z)
    {nodes}
    e = QuantizeLinear(a, s, z)
    y = DequantizeLinear(e, s, z) }}"""

HUGE = 10**12


@pytest.fixture(scope="module")
def worker():
    with Worker() as process:
        yield process


@pytest.fixture
def outcome(worker, tmp_path):
    """What becomes of a model or of the bytes of a file."""
    def run(model, name="model.onnx"):
        path = tmp_path / name
        if isinstance(model, onnx.ModelProto):
            model = model.SerializeToString()
        if model is not None:
            path.write_bytes(model)
        result = worker.run(path)
        assert result.kind in ("compiled", "refused"), result.text
        return result
    return run


@pytest.fixture
def refusal(outcome):
    """The message with which a model is refused."""
    def run(model, name="model.onnx"):
        result = outcome(model, name)
        assert result.kind == "refused"
        return result.text
    return run


def net(nodes="a = Conv(d, v)", *, shape="N,4,4,4", opset=21, **arrays):
    """A model around ``nodes``, which make ``a`` of ``d``; arrays are further initializers."""
    model = onnx.parser.parse_model(NET.format(nodes=nodes, shape=shape, opset=opset, ones=",".join("1" * 16)))
    for name, array in arrays.items():
        known = {tensor.name: tensor for tensor in model.graph.initializer}
        if name in known:
            model.graph.initializer.remove(known[name])
        model.graph.initializer.append(array if isinstance(array, TensorProto) else numpy_helper.from_array(
            np.asarray(array), name))
    return model


def _with(model, zeros):
    """The model with further zero points."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.graph.initializer.append(numpy_helper.from_array(zeros, "zeros"))
    return changed


def ints(*values):
    return np.array(values, np.int64)


WHOLE = net().SerializeToString()


# Files.

@pytest.mark.parametrize("size", sorted({0, 1, 2, 7, 8, 9, *range(10, len(WHOLE), 37), len(WHOLE) - 1}))
def test_truncated_file(refusal, size):
    assert "is not a whole ONNX file" in (text := refusal(WHOLE[:size])) or "holds no ONNX graph" in text


def test_other_files(refusal, tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("model.onnx", WHOLE)
    for content in (b"", b"{}", b"hello, world\n" * 100, b"\x00" * 10000, b"\xff" * 10000,
                    (tmp_path / "other.zip").read_bytes(), b"\x7fELF" + bytes(200), os.urandom(5000)):
        text = refusal(content)
        assert "is not a whole ONNX file" in text or "holds no ONNX graph" in text


def test_length_that_only_promises_data(refusal):
    # Field 7, the graph, of 2**31 - 1 and of 2**63 - 1 bytes.
    for length in (b"\xff\xff\xff\xff\x07", b"\xff" * 8 + b"\x7f"):
        assert "is not a whole ONNX file" in refusal(b"\x3a" + length + WHOLE)


def test_nested_messages(outcome):
    # A type of sequences of sequences of ...: deeper than protobuf reads, or than a stack is.
    model = net()
    kind = model.graph.output[0].type
    for _ in range(90):
        kind = kind.sequence_type.elem_type
    kind.tensor_type.elem_type = 1
    outcome(model)
    data = b""
    for _ in range(5000):
        length, size = len(data), b""
        while length > 127:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        data = b"\x22" + size + bytes([length]) + data
    outcome(WHOLE + b"\x3a\x80\x01" + data[:128])


# Graphs.

def test_cycles(refusal):
    for first, second in (("a", "d"), ("b", "d"), ("b", "a")):
        model = net("b = Relu(d) a = Relu(b)")
        model.graph.node[4].input[0] = first
        model.graph.node[5].input[0] = second if second != "d" else "b"
        assert "which nothing makes, or which depends on the node itself" in refusal(model)


@pytest.mark.parametrize(("op", "shape", "behind", "count"), [
    ("Identity", "N,4,4,4", "d", 10000), ("Relu", "N,4,4,4", "x", 5000), ("Relu", "N,4,4,4", "d", 5000),
    *((op, "N,4", behind, 1500) for op in ("Neg", "Dropout", "Transpose", "Flatten", "Squeeze", "Softmax")
      for behind in "xd")])
def test_deep_chain(outcome, op, shape, behind, count):
    nodes, last = [], behind
    for k in range(count):
        nodes.append(helper.make_node(op, [last], [last := f"t{k}"]))
    model = net("a = Relu(d)", shape=shape)
    place = 0 if behind == "x" else 4
    model.graph.node[place].input[0] = last
    kept = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*kept[:place], *nodes, *kept[place:]])
    outcome(model)


def test_deep_chain_behind_a_sum(outcome):
    for op, count in (("Relu", 1500), ("Reshape", 1500), ("Concat", 1500), ("Concat twice", 40)):
        model = net("a = Conv(d, v)", shape_=ints(0, -1, 4, 4))
        nodes, last = [], "a"
        for k in range(count):
            read = {"Reshape": [last, "shape_"], "Concat twice": [last, last]}.get(op, [last])
            nodes.append(helper.make_node(op.split()[0], read, [last := f"t{k}"],
                                          **({"axis": 1} if "Concat" in op else {})))
        model.graph.node[5].input[0] = last
        kept = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend([*kept[:5], *nodes, *kept[5:]])
        outcome(model)


def test_fan_out(outcome):
    model = net("a = Relu(d)")
    for k in range(5000):
        model.graph.node.append(helper.make_node("Relu", ["d"], [f"t{k}"]))
    outcome(model)
    model.graph.output.extend(onnx.ValueInfoProto(name=f"t{k}") for k in range(0, 5000, 25))
    outcome(model)


def test_doubling(outcome):
    model = net("a = Reshape(d, c40)", c0=ints(*range(1000)))
    model.graph.node.extend(helper.make_node("Concat", [f"c{k}"] * 2, [f"c{k + 1}"], axis=0) for k in range(40))
    outcome(model)
    model = net("a = Add(d, c8)", c0=np.ones((1, 1, 1, 1, 2), np.float32))
    model.graph.node.extend(helper.make_node("Mul", [f"c{k}", f"r{k}"], [f"c{k + 1}"]) for k in range(8))
    model.graph.initializer.extend(numpy_helper.from_array(
        np.ones((100, *(1,) * (k + 1)), np.float32), f"r{k}") for k in range(8))
    outcome(model)


def test_functions_that_call_themselves(refusal):
    model = net("a = Relu(d)")
    model.opset_import.add(domain="local", version=1)
    model.graph.node[4].op_type, model.graph.node[4].domain = "first", "local"
    for name, other in (("first", "second"), ("second", "first")):
        model.functions.append(helper.make_function(
            "local", name, ["i"], ["o"], [helper.make_node(other, ["i"], ["o"], domain="local")],
            [helper.make_opsetid("local", 1)]))
    assert "of the model calls itself" in refusal(model)


def test_functions_that_double(refusal):
    model = net("a = Relu(d)")
    model.opset_import.add(domain="local", version=1)
    model.graph.node[4].op_type, model.graph.node[4].domain = "f40", "local"
    for k in range(41):
        call = f"f{k - 1}" if k else "Relu"
        model.functions.append(helper.make_function(
            "local", f"f{k}", ["i"], ["o"],
            [helper.make_node(call, [source], [target], domain="local" if k else "") for source, target in
             (("i", "t"), ("t", "o"))], [helper.make_opsetid("local", 1), helper.make_opsetid("", 21)]))
    refusal(model)


def test_subgraphs(refusal):
    body = helper.make_graph([helper.make_node("Relu", ["d"], ["b"])], "body", [], [onnx.ValueInfoProto(name="b")])
    for op, names in (("If", ("then_branch", "else_branch")), ("Loop", ("body",)), ("Scan", ("body",))):
        model = net("a = Relu(d)")
        model.graph.node[4].op_type = op
        model.graph.node[4].attribute.extend(helper.make_attribute(name, body) for name in names)
        assert "holds a graph of its own" in refusal(model)


def test_rare_parts_of_the_format(outcome):
    for kind in ("sequence_type", "optional_type"):
        model = net()
        getattr(model.graph.input[0].type, kind).elem_type.tensor_type.elem_type = 1
        assert outcome(model).kind == "refused"
    model = net()
    model.graph.input[0].type.map_type.key_type = TensorProto.STRING
    assert outcome(model).kind == "refused"
    model = net()
    model.graph.input[0].type.Clear()
    assert outcome(model).kind == "refused"
    model = net()
    sparse = model.graph.sparse_initializer.add(dims=[HUGE, HUGE])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "sparse"))
    sparse.indices.CopyFrom(numpy_helper.from_array(ints(HUGE), "at"))
    outcome(model)
    model = net()
    model.training_info.add().algorithm.CopyFrom(model.graph)
    outcome(model)


# Names, versions, attributes.

def test_names(outcome, refusal):
    for name in ("", "Ünïcode ☃", "a\x00b", "../../x", "9" * 10000, "y/codes", "y/user", "e/codes", "q/real"):
        model = net("a = Relu(d)")
        model.graph.node[4].name = name
        model.graph.node[4].output[0] = model.graph.node[5].input[0] = name
        outcome(model)
    # Names that are not UTF-8: replaced in the bytes, where Python would not write them.
    model = net("a = Relu(d)")
    model.graph.node[4].name = "MARK"
    assert "not text" in refusal(model.SerializeToString().replace(b"MARK", b"\xff\xfe\x80\x00"))
    model = net("a = Relu(d)")
    model.graph.node[4].output[0] = "d"
    assert "is made more than once" in refusal(model)


def test_versions(outcome, refusal):
    for opset in (0, -1, -2**63, 6):
        model = net()
        model.opset_import[0].version = opset
        assert f"is of opset {opset}" in refusal(model)
    for opset in (10**9, 2**63 - 1):
        model = net()
        model.opset_import[0].version = opset
        outcome(model)
    model = net()
    del model.opset_import[:]
    assert "opset" in refusal(model)
    for version in (0, -1, 1, 10**9, 2**63 - 1):
        model = net()
        model.ir_version = version
        outcome(model)


ATTRIBUTES = {
    "strides": ([10**9] * 2, [2**63 - 1] * 2, [0, 0], [-1, -1], [], [1] * 5),
    "dilations": ([10**9] * 2, [2**62] * 2, [0, 0]),
    "pads": ([10**9] * 4, [2**62] * 4, [-1] * 4, [-10**9] * 4, [1], [10**5] * 4, [0, 10**9, 0, 10**9]),
    "group": (0, -1, 3, 10**9), "kernel_shape": ([5, 5], [0, 0], [-1, -1], [10**9] * 2, [1]),
    "auto_pad": ("", "SAME", "\x00"), "output_padding": ([10**9] * 2, [-1, -1]),
    "output_shape": ([10**9] * 2, [0, 0], [1]), "axis": (10**9, -10**9, 4, -5),
    "perm": ([0, 0, 0, 0], [4, 3, 2, 1], [0], [-1, 0, 1, 2], []), "axes": ([10**9], [2, 2], [], [-9]),
    "blocksize": (0, -1, 10**9), "mode": ("cubic", "nothing"), "ceil_mode": (7,), "count_include_pad": (-1,),
    "storage_order": (9,), "epsilon": (float("nan"), -1.0), "alpha": (float("inf"), float("nan")), "k": (HUGE,),
    "size": (10**9, 0, -1), "block_size": (0, -1, 3, 10**9, 2**63 - 1), "output_dtype": (-1, 99, 8),
    "to": (0, 8, 99), "num_outputs": (0, -1, 10**9), "keepdims": (5,), "batch_dims": (9,),
    "lambd": (float("nan"),), "p": (0, 10**9), "approximate": ("x",), "allowzero": (1, 9), "depth_radius": (1,),
    "exclusive": (1,), "sample_size": (10**9,), "dtype": (99,), "beta": (float("nan"),), "transA": (1,),
    "transB": (1,), "min": (float("nan"),), "max": (float("-inf"),), "momentum": (2.0,), "training_mode": (1,),
    "stash_type": (0,),
}
NODES = {
    "Conv": "d, v", "ConvTranspose": "d, v", "MaxPool": "d", "AveragePool": "d", "LpPool": "d", "Transpose": "d",
    "Flatten": "d", "Concat": "d, d", "Split": "d", "Gather": "d, parts", "Softmax": "d", "LRN": "d", "Cast": "d",
    "DepthToSpace": "d", "SpaceToDepth": "d", "ReduceMean": "d", "BatchNormalization": "d, row, row, row, row",
    "LeakyRelu": "d", "Gelu": "d", "Reshape": "d, parts", "QuantizeLinear": "d, s, z",
    "DequantizeLinear": "q, s, z", "Gemm": "n, n", "ArgMax": "d", "Elu": "d",
    "InstanceNormalization": "d, row, row", "LpNormalization": "d", "GroupNormalization": "d, row, row",
    "Dropout": "d",
}


@pytest.mark.parametrize("op", NODES)
def test_attributes(outcome, op):
    known = onnx.defs.get_schema(op, 21).attributes
    for name in {*known} & {*ATTRIBUTES}:
        for value in ATTRIBUTES[name]:
            model = net(f"a = {op}({NODES[op]})", parts=ints(1, 1))
            node = model.graph.node[4]
            del node.attribute[:]
            if op in ("MaxPool", "AveragePool", "LpPool") and name != "kernel_shape":
                node.attribute.append(helper.make_attribute("kernel_shape", [2, 2]))
            if op in ("DepthToSpace", "SpaceToDepth") and name != "blocksize":
                node.attribute.append(helper.make_attribute("blocksize", 2))
            item = helper.make_attribute(name, value, attr_type=int(known[name].type.value))
            node.attribute.append(item)
            outcome(model)
        for value in ("two", 1.5, [1, 2], [b"a"], numpy_helper.from_array(np.ones(1), "t")):
            model = net(f"a = {op}({NODES[op]})", parts=ints(1, 1))
            del model.graph.node[4].attribute[:]
            model.graph.node[4].attribute.append(helper.make_attribute(name, value))
            outcome(model)


# Shapes.

@pytest.mark.parametrize("shape", [
    (1, 3, 100000, 100000), (1, 2**62, 4, 4), (1, 2**40, 2**40), (1, -1, 4, 4), (1, 0, 4, 4), (0, 4, 4, 4), (1,),
    (), (1, 4, 4, 4, 4), (1, *(1,) * 60), (2**40, 4, 4, 4), (1, 4, 10**6, 4)])
def test_inputs(outcome, shape):
    model = net("a = Relu(d)")
    del model.graph.input[0].type.tensor_type.shape.dim[:]
    for size in shape:
        model.graph.input[0].type.tensor_type.shape.dim.add().dim_value = size
    outcome(model)


@pytest.mark.parametrize("nodes", [
    "c = ConstantOfShape(big) a = Add(d, c)", "c = ConstantOfShape(negative) a = Add(d, c)", "a = Expand(d, big)",
    "a = Tile(d, big)", "a = Tile(d, negative)", "a = Reshape(d, big)", "a = Reshape(d, negative)",
    "a = Resize(d, , , big)", "a = Resize(d, , scales)", "a = Pad(d, pads)", "a = Pad(d, minus)",
    "a = Slice(d, negative, big)", "a = Split(d, big)", "a, b = Split <axis = 1> (d, odd)", "a = Gather(d, big)",
    "a = Gather <axis = 1> (d, negative)", "a = Squeeze(d, big)", "a = Unsqueeze(d, big)", "a, b = TopK(d, k)",
    "a = ReduceMean(d, big)", "a = OneHot(d, k, row2)", "c = Range(zero, k, one) a = Reshape(d, c)",
    "a = CumSum(d, k)", "a = Upsample(d, scales)", "a = Trilu(d, k)", "c = Shape(d) a = Reshape(d, c)",
    "a = Expand(x, big)", "c = Tile(x, big) a = Relu(c)", "c = Tile(row, k) a = Mul(d, c)",
    "c = Expand(row, big) a = Mul(d, c)", "a = Compress(d, big)", "a = CenterCropPad(d, big)",
    "a = GatherND(d, big)", "a = ScatterND(d, big, d)", "a = GatherElements(d, big)", "c = NonZero(d) a = Relu(c)",
    "a = EyeLike(d)", "a = MaxUnpool <kernel_shape = [2,2]> (d, big, big)", "a = Col2Im(d, big, big)",
    "a = RandomNormal <shape = [1000000, 1000000]> ()",
    "a = RoiAlign <output_height = 1000000, output_width = 1000000> (d, rois, batch)", "a = HannWindow(k)",
    "a = MelWeightMatrix(k, k, k, zero, one)", "a = AffineGrid(d, big)", "a = Bernoulli(d)",
    "a = BitShift <direction = \"LEFT\"> (d, d)", "a = Einsum <equation = \"ijkl,mnop->ijklmnop\"> (d, d)",
    "a = MatMul(d, d)", "a = Loop(k, one)", "a = DFT(d, k)", "a = STFT(d, k)", "a = TfIdfVectorizer(d)"])
def test_operators_that_make_much(outcome, nodes):
    outcome(net(nodes, big=ints(1, 4, 10**6, 10**6), negative=ints(1, -4, -10**12, 4), odd=ints(1, 2), k=ints(HUGE),
                pads=ints(0, 0, 0, 0, 0, 0, 10**6, 10**6), minus=ints(0, 0, 0, 0, 0, 0, -9, -9),
                scales=np.array([1, 1, 1e6, 1e6], np.float32), row2=np.zeros(2, np.float32), zero=np.int64(0),
                one=np.int64(1), rois=np.ones((1, 4), np.float32), batch=ints(0)))


@pytest.mark.parametrize("nodes", [
    "b = Resize(d, , scales) a = Slice(b, none, two, two)", "b = Pad(d, minus) a = Slice(b, none, two, two)",
    "b = Pad(d, minus) c = Slice(b, none, two, two) e2 = Relu(c) a = Slice(e2, none, two, two)"])
def test_slice_of_a_size_below_zero(refusal, nodes):
    # The library's inference of shapes aborts the process.
    refusal(net(nodes, scales=np.array([1, 1, np.inf, 3e38], np.float32), minus=ints(0, 0, 0, 0, 0, 0, -9, -9),
                none=ints(0), two=ints(2)))


@pytest.mark.parametrize(("nodes", "message"), [
    ("a = BatchNormalization(d, row)", r"has 2 inputs; its operator has 5"),
    ("a = Sum(d, , row)", r"leaves out its input 1"),
    ("a = Relu(d, d)", r"has 2 inputs; its operator has 1"),
    ("a, b = Relu(d)", r"has 2 outputs; its operator has 1"),
    ("a = Conv <group = 0> (d, v)", "group is below 1"),
    ('a = Einsum <equation = "ij-"> (d)', "equation = 'ij-' is none"),
    ('a = Einsum <equation = "....i"> (d)', "equation = '....i' is none"),
])
def test_operands_that_the_library_dies_of(refusal, nodes, message):
    assert message in refusal(net(nodes))


@pytest.mark.parametrize("shape", ["N,4,4,4,1", "N,2,3,4,5"])
def test_images_of_more_axes_are_not_taken_for_others(refusal, shape):
    assert "supported on the array: vectors, signals and images" in refusal(net("a = Relu(d)", shape=shape))


def test_output_that_is_an_input(refusal):
    for name in ("x", "s"):
        model = net()
        model.graph.output.add().name = name
        assert f"the output '{name}' is an input or a constant" in refusal(model)


@pytest.mark.parametrize("number", [np.inf, np.nan, -1.5, 1e300])
def test_real_numbers_where_integers_belong(outcome, number):
    for nodes in ("a = ReduceMean(d, n1)", "c = ConstantOfShape(n1) a = Add(d, c)", "a = OneHot(d, n1, n2)",
                  "a = Reshape(d, n2)", "a = Slice(d, n1, n1)", "a = Pad(d, n2)", "a = Split(d, n1)",
                  "a = Tile(d, n2)", "a = Squeeze(d, n1)", "a = Gather(d, n1)", "a, b = TopK(d, n1)",
                  "a = Expand(d, n2)"):
        outcome(net(nodes, n1=np.array([number]), n2=np.array([1, number])))


@pytest.mark.parametrize(("dims", "kind"), [
    ([2**40], "FLOAT"), ([2**31, 2**31, 2**31], "FLOAT"), ([-1], "FLOAT"), ([-1, -4], "INT8"), ([0], "FLOAT"),
    ([2**63 - 1], "INT8"), ([2**40], "STRING"), ([4], "STRING"), ([4], "UNDEFINED"), ([2**40], "INT4"),
    ([2**40, 0], "FLOAT"), ([4], "COMPLEX64"), ([1] * 70, "FLOAT")])
def test_initializers_that_only_promise_data(outcome, dims, kind):
    tensor = TensorProto(name="row", dims=dims, data_type=TensorProto.DataType.Value(kind))
    outcome(net("a = Mul(d, row)", row=tensor))
    tensor.raw_data = b"\x01" * 4
    outcome(net("a = Mul(d, row)", row=tensor))


# Quantizers.

SCALES = [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1e-45, 1e-38, 3e38]


@pytest.mark.parametrize("scale", SCALES)
def test_scales(outcome, scale):
    result = outcome(net("b = Conv(d, v) a = Sigmoid(b)", s=np.float32(scale)))
    assert result.kind == "refused" or 0 < scale < np.inf
    for nodes in ("a = Conv(d, u)", "a = Add(d, t)", "a = Mul(d, t)"):
        outcome(net(f"u = DequantizeLinear(w, r) g = QuantizeLinear(d, r, z) t = DequantizeLinear(g, r, z) {nodes}",
                    r=np.float32(scale)))
    outcome(net("a = BatchNormalization(d, g, row, row, row)", g=np.full(4, scale, np.float32)))


def test_scales_whose_product_is_not_finite(refusal):
    for nodes in ("a = Conv(d, u)", "b = Conv(d, v) a = Mul(b, r)",
                  "b = Conv(d, v, row) c = Mul(b, h) a = Mul(c, h)"):
        assert "multiply to what is not finite" in refusal(net(
            f"u = DequantizeLinear(w, r) {nodes}", s=np.float32(3e38), r=np.float32(3e38), h=np.float64(1e200)))
    # QONNX: a sign, whose threshold is a quotient.
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "qonnx.custom_op.general" : 1]>
        g (float[N,4,4,4] x) => (float y)
        <float s = {3e38}, float nil = {0}, float bits = {4}, float[4,4,1,1] f = {ONES}> {
        q = qonnx.custom_op.general.Quant <signed = 1, narrow = 0, rounding_mode = "ROUND"> (x, s, nil, bits)
        v = qonnx.custom_op.general.Quant <signed = 1, narrow = 1, rounding_mode = "ROUND"> (f, s, nil, bits)
        a = Conv(q, v)
        y = qonnx.custom_op.general.BipolarQuant(a, s) }""".replace("ONES", ",".join("1" * 16)))
    assert "multiply to what is not finite" in refusal(model)


@pytest.mark.parametrize("scale", [
    np.ones(0, np.float32), np.ones(3, np.float32), np.ones((4, 4), np.float32),
    np.ones((1, 1, 1, 1, 1), np.float32), np.ones(4, np.int64), np.ones(4, bool), np.ones(4, np.complex64),
    np.ones(4, ml_dtypes.bfloat16), np.ones(4), np.array(["a"] * 4, object)],
    ids=lambda array: f"{array.dtype}{list(array.shape)}")
def test_parameters_of_other_shapes_and_types(outcome, scale):
    zero = scale if scale.dtype != object else np.ones(4, np.int16)
    for nodes in ("u = DequantizeLinear(w, r) a = Conv(d, u)",
                  "u = DequantizeLinear <axis = 0> (w, s, zp) a = Conv(d, u)",
                  "u = DequantizeLinear <axis = 9> (w, r, zp) a = Conv(d, u)",
                  "g = QuantizeLinear(d, r, zp) a = DequantizeLinear(g, r, zp)",
                  "u = DequantizeLinear <axis = 1, block_size = 2> (w, r) a = Conv(d, u)",
                  "u = DequantizeLinear <axis = -7, block_size = 2> (w, r, zp) a = Conv(d, u)"):
        outcome(net(nodes, r=scale, zp=zero))


@pytest.mark.parametrize("block", [0, -1, 2, 3, 5, 10**9, 2**62])
def test_blocks(outcome, block):
    for scales in (np.ones((4, 2, 1, 1), np.float32), np.ones((4, 1, 1, 1), np.float32), np.ones(4, np.float32)):
        model = net("u = DequantizeLinear <axis = 1> (w, r) a = Conv(d, u)", r=scales)
        node = next(node for node in model.graph.node if node.input[0] == "w" and node.input[1] == "r")
        node.attribute.append(helper.make_attribute("block_size", block))
        outcome(model)
        for zeros in (np.zeros((1, 1, 1, 1), np.int8), np.zeros((4, 4, 3, 3), np.int8), np.zeros(2, np.int8)):
            del node.input[2:]
            node.input.append("zeros")
            outcome(_with(model, zeros))


@pytest.mark.parametrize("rank", range(7))
def test_weights_of_any_rank(outcome, rank):
    for size in (0, 1, 2, 4, 8):
        for op in ("Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Mul"):
            outcome(net(f"a = {op}(d, v)", w=np.ones((size,) * min(rank, 3) + (1,) * max(rank - 3, 0), np.int8)))


# External data.

@pytest.mark.parametrize(("location", "offset", "length"), [
    ("/etc/hostname", None, None), ("../outside.bin", None, None), ("a/../../outside.bin", None, None),
    ("link.bin", None, None), ("folder", None, None), ("/dev/zero", None, None), ("linked/zero", None, "64"),
    ("missing.bin", None, None), ("", None, None), (".", None, None), ("data.bin", "1000", None),
    ("data.bin", "0", str(HUGE)), ("data.bin", "-4", "16"), ("data.bin", "0", "-16"),
    ("data.bin", str(2**70), "16"), ("data.bin", "four", "16"), ("data.bin", "0", "3"),
    ("data.bin\x00x", None, None), ("fifo", None, None)])
def test_external_data(refusal, tmp_path, location, offset, length):
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "outside.bin").write_bytes(bytes(64))
    (folder / "data.bin").write_bytes(bytes(32))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "linked").symlink_to("/dev")
    os.mkfifo(folder / "fifo")
    tensor = TensorProto(name="row", dims=[4, 1, 1], data_type=TensorProto.FLOAT,
    data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    assert "row" in (text := refusal(net("a = Mul(d, row)", row=tensor),
    "model/model.onnx")) or "whole ONNX file" in text


def test_external_data_without_end(refusal, tmp_path):
    tensor = TensorProto(name="row", dims=[2**40], data_type=TensorProto.INT8, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="sparse.bin")
    with open(tmp_path / "sparse.bin", "wb") as file:
        file.truncate(2**40)
    refusal(net("a = Mul(d, row)", row=tensor))
