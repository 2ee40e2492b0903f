"""A device in Python that computes by the interpreter: what the host does around a program."""

import numpy as np
import pytest

from almac.compiler.build import build
from almac.compiler.layout import fold_words, to_words
from almac.hdl.command import COMMAND_WORDS, Space
from almac.hdl.config import ArrayConfig
from almac.host.device import Device
from almac.host.errors import IdentityError, InputError, TransportError
from almac.sim.device_model import DeviceModel
from almac.sim.golden import evaluate
from almac.sim.interpreter import Interpreter

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[N, 2, 5, 4] x) => (float[N, 3, 5, 4] y)
<float s = {0.25}, int8 z = {3}, float ws = {0.5}, int8 wz = {0}>
{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    w = DequantizeLinear(wq, ws, wz)
    c = Conv<pads = [1, 1, 1, 1]>(d, w)
    qc = QuantizeLinear(c, s, z)
    y = DequantizeLinear(qc, s, z)
}
"""


@pytest.fixture(scope="module")
def model():
    import onnx

    parsed = onnx.parser.parse_model(TEXT)
    trits = np.random.default_rng(0).integers(-1, 2, (3, 2, 3, 3)).astype(np.int8)
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(trits, "wq"))
    return parsed


def computing(program):
    """What a device of the program's configuration does when it is started."""
    def execute(device, address):
        assert address == 0
        for column in range(program.config.columns):
            memory = device.memories[Space.ACTIVATION][column]
            interpreter = Interpreter(program)
            interpreter.activations[:] = memory.view(np.int8)[:, :program.config.lanes]
            interpreter.run()
            memory[:, :program.config.lanes] = interpreter.activations.view(np.uint8)
        device.status.update(cycles=program.cycles, done=len(program.ends))
    return execute


@pytest.fixture(params=[(4, 3, 1), (16, 4, 1), (5, 2, 3)], ids=str)
def built(request, model):
    lanes, rows, columns = request.param
    return build(model, ArrayConfig(lanes=lanes, rows=rows, columns=columns))


def images(count, seed=1):
    return np.random.default_rng(seed).normal(0, 20, (count, 2, 5, 4)).astype(np.float32)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_equals_golden(built, count):
    x = images(count)
    program = built.program
    with Device(DeviceModel(program.config, on_run=computing(program)), timeout=5) as device:
        got = device.run(program, x)
    np.testing.assert_array_equal(got["y"], evaluate(built.graph, {"x": x})["y"])


def test_the_program_is_loaded_once(built):
    program = built.program
    model_ = DeviceModel(program.config, on_run=computing(program))
    device = Device(model_, timeout=5)
    device.run(program, images(1))
    before = model_.memories[Space.WEIGHT].copy()
    model_.memories[Space.WEIGHT][:] = 0xA5
    device.run(program, images(1))
    assert (model_.memories[Space.WEIGHT] == 0xA5).all()
    assert before.any()


def test_memories_hold_the_images_of_the_program(built):
    program = built.program
    model_ = DeviceModel(program.config)
    Device(model_, timeout=5).load(program)
    for space in (Space.WEIGHT, Space.SCALE, Space.PARAM, Space.COMMAND):
        image = program.images[space.name]
        np.testing.assert_array_equal(model_.memories[space][0][:len(image), :image.shape[1]], image)
    assert len(program.images["COMMAND"]) == COMMAND_WORDS * len(program.ends)


def test_inputs_are_where_the_program_wants_them(built):
    program = built.program
    x = images(1)
    model_ = DeviceModel(program.config)
    Device(model_, timeout=5).run(program, x)
    port = program.inputs[0]
    codes = np.clip(np.rint(x[0] / np.float32(0.25)) + 3, -128, 127).astype(np.int8)
    words = to_words(fold_words(codes, port), program.config.lanes)
    start = program.placements[port.value].address
    held = model_.memories[Space.ACTIVATION][0][start:start + len(words), :program.config.lanes]
    np.testing.assert_array_equal(held.view(np.int8), words)


@pytest.mark.parametrize(("x", "message"), [
    (np.zeros((1, 2, 5, 5), np.float32), r"^input 'x' has shape \(1, 2, 5, 5\); the model takes \[N, 2, 5, 4\]"),
    (np.zeros((0, 2, 5, 4), np.float32), r"^input 'x' has shape \(0, 2, 5, 4\)"),
    ({"z": np.zeros((1, 2, 5, 4), np.float32)}, r"^the model has the inputs x, not z$"),
])
def test_wrong_inputs_are_refused_before_anything_is_sent(built, x, message):
    model_ = DeviceModel(built.program.config)
    with pytest.raises(InputError, match=message):
        Device(model_, timeout=5).run(built.program, x)
    assert not model_.runs
    assert not any(memory.any() for memory in model_.memories.values())


def test_another_array_is_refused_before_anything_is_sent(built):
    other = DeviceModel(ArrayConfig(lanes=7, rows=7))
    with pytest.raises(IdentityError, match=r"^device has array 7x7x1, program wants "):
        Device(other, timeout=5).run(built.program, images(1))
    assert not any(memory.any() for memory in other.memories.values())


def test_a_run_that_never_ends_is_reported(built):
    """Case U13."""
    model_ = DeviceModel(built.program.config,
                         on_run=lambda device, address: device.status.update(busy=1))
    with pytest.raises(TransportError, match=r"within 0.3 s \(run: 0 of \d commands done\)"):
        Device(model_, timeout=0.3).run(built.program, images(1))


def test_a_run_after_a_failed_one_starts_anew(built):
    program = built.program
    model_ = DeviceModel(program.config)
    device = Device(model_, timeout=0.3)
    model_._on_run = lambda running, address: running.status.update(busy=1)
    with pytest.raises(TransportError):
        device.run(program, images(1))
    model_.status.update(busy=0)
    model_._on_run = computing(program)
    x = images(2)
    np.testing.assert_array_equal(device.run(program, x)["y"], evaluate(built.graph, {"x": x})["y"])
