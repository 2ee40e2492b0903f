"""Channels-last inputs, concatenation, shuffles, pads and the host's work, on the RTL."""

import numpy as np
import onnx
import pytest

import almac
from almac.boards.targets import find
from almac.compiler.build import build
from almac.report import report
from almac.sim.oracle import oracle_tensors
from almac.verify import verify

#: A channels-last image of 8-bit codes, two branches with other scales, a shuffle of channels, and a softmax.
TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (uint8[N,6,5,3] x) => (float[N,7] y, int64[N,1] best)
<float s = {0.05}, uint8 zx = {128}, float sa = {0.1}, float sb = {0.2}, int8 z = {3}, float one = {1},
 int64[5] five = {0,2,8,6,5}, int64[4] four = {0,16,6,5}, int64[8] pads = {0,0,1,0,0,0,0,2}> {
    d = DequantizeLinear(x, s, zx)
    image = Transpose <perm = [0,3,1,2]> (d)
    wa = DequantizeLinear(weight_a, one)
    a = Conv <pads = [1,1,1,1]> (image, wa)
    ra = Relu(a)
    qa = QuantizeLinear(ra, sa, z)
    da = DequantizeLinear(qa, sa, z)
    wb = DequantizeLinear(weight_b, one)
    b = Conv(image, wb)
    qb = QuantizeLinear(b, sb, z)
    db = DequantizeLinear(qb, sb, z)
    both = Concat <axis = 1> (da, db)
    qc = QuantizeLinear(both, sb, z)
    dc = DequantizeLinear(qc, sb, z)
    five_axes = Reshape(dc, five)
    turned = Transpose <perm = [0,2,1,3,4]> (five_axes)
    shuffled = Reshape(turned, four)
    padded = Pad(shuffled, pads)
    wc = DequantizeLinear(weight_c, one)
    c = Conv <strides = [2,2]> (padded, wc)
    qd = QuantizeLinear(c, sb, z)
    dd = DequantizeLinear(qd, sb, z)
    flat = Flatten(dd)
    wd = DequantizeLinear(weight_d, one)
    scores = MatMul(flat, wd)
    y = Softmax <axis = 1> (scores)
    best = ArgMax <axis = 1> (y) }"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(TEXT)
    weights = {"weight_a": (8, 3, 3, 3), "weight_b": (8, 3, 1, 1), "weight_c": (5, 16, 3, 3), "weight_d": (45, 7)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(rng.integers(-1, 2, shape).astype(np.int8), name)
                                   for name, shape in weights.items())
    path = tmp_path_factory.mktemp("layouts") / "layouts.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).integers(0, 256, (4, 6, 5, 3)).astype(np.uint8)


def test_every_tensor_and_cycle(model, images):
    compiled = build(model, find("sim-8x8x1").config)
    with almac.open_device("sim", compiled.program, timeout=600) as device:
        result = verify(compiled, model, {"x": images}, "rtl", device=device)
        assert result.first_difference is None
        assert result.equal
        outputs = device.run(compiled.program, images)
    assert {layer.kind for layer in compiled.program.layers} >= {"Conv", "Concat"}
    assert [step.kind for step in compiled.program.after] == ["Softmax", "ArgMax"]
    oracle = oracle_tensors(model, {"x": images}, {"best"})
    np.testing.assert_array_equal(outputs["best"], oracle["best"])
    golden = almac.golden(model, images)
    assert {name: values.tolist() for name, values in outputs.items()} == {
        name: values.tolist() for name, values in golden.items()}


def test_host_work_is_said_in_the_report(model):
    host = report(almac.compile(model, target="sim-8x8x1"))["host"]
    assert any("move its elements" in line for line in host)
    computed = [line.split("(")[1].split(")")[0] for line in host if line.startswith("compute")]
    assert computed == ["Softmax", "ArgMax"]


def test_outputs_that_the_host_makes_alone():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N,4] x) => (float[N,4] y, float[N,4] z, float[N,4] w) <float s = {0.1}, int8 z0 = {3}> {
            q = QuantizeLinear(x, s, z0)
            d = DequantizeLinear(q, s, z0)
            r = Relu(d)
            p = QuantizeLinear(r, s, z0)
            y = DequantizeLinear(p, s, z0)
            z = Sin(x)
            w = Mul(y, z) }""")
    program = almac.compile(model, target="sim-8x8x1")
    x = np.random.default_rng(0).normal(0, 5, (3, 4)).astype(np.float32)
    with almac.open_device("sim", program, timeout=600) as device:
        outputs = device.run(program, x)
    golden = almac.golden(model, x)
    assert {name: values.tolist() for name, values in outputs.items()} == {
        name: values.tolist() for name, values in golden.items()}
    np.testing.assert_allclose(golden["z"], np.sin(x), rtol=1e-6)
