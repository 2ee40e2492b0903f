"""A device in Python that computes by the interpreter: what the host does around a program."""

from types import SimpleNamespace

import numpy as np
import pytest
from networks import conv_network

from almac.compiler.build import build
from almac.compiler.emit import emit
from almac.compiler.layout import fold_words, to_words
from almac.compiler.schedule import schedule
from almac.hdl.command import COMMAND_WORDS, Space
from almac.hdl.config import ArrayConfig
from almac.host.device import Device
from almac.host.errors import IdentityError, InputError, TransportError
from almac.sim.device_model import DeviceModel
from almac.sim.golden import evaluate
from almac.sim.interpreter import Interpreter, decode_command

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


@pytest.mark.parametrize("exchanged", [False, True])
def test_runs_again_after_an_error(built, exchanged):
    """The device is identified and loaded anew: it may have been reset, or be another one."""
    class Muted(DeviceModel):
        muted = False

        def read(self, limit, timeout=0.0):
            data = super().read(limit)
            return b"" if self.muted else data

    program, x = built.program, images(2)
    first, second = (Muted(program.config, on_run=computing(program)) for _ in range(2))
    device = Device(first, timeout=0.2)
    expected = device.run(program, x)["y"]
    first.muted = True
    with pytest.raises(TransportError, match=r"^the device did not answer within 0\.2 s \(activations: "):
        device.run(program, x)
    first.muted = False
    if exchanged:
        first.__dict__.update(second.__dict__)
    np.testing.assert_array_equal(device.run(program, x)["y"], expected)
    assert all(memory[0].any() for memory in (first.memories[Space.WEIGHT], first.memories[Space.COMMAND]))


class Stepping(DeviceModel):
    """A device that executes one command, if it is granted, whenever the host looks for an answer.

    All that it knows is in its memories; these held something else before.
    """

    def __init__(self, config):
        super().__init__(config, on_run=Stepping.start)
        self.next = None
        for space in (Space.ACTIVATION, Space.WEIGHT, Space.SCALE, Space.PARAM):
            self.memories[space][:] = 0xA5

    def start(self, address):
        self.next = address
        self.status.update(busy=1, done=0)

    def read(self, limit, timeout=0.0):
        if self.next is not None:
            self.execute(self.memories[Space.COMMAND][0, self.next:self.next + COMMAND_WORDS])
        return super().read(limit)

    def execute(self, words):
        command = decode_command(words)
        if command.grant > int(self.memories[Space.GRANT][0].view("<u2").item()):
            return
        held = SimpleNamespace(config=self.config, uploads=(), images={
            space.name: memory[0] for space, memory in self.memories.items()} | {Space.COMMAND.name: words})
        for memory in self.memories[Space.ACTIVATION]:
            interpreter = Interpreter(held)
            interpreter.activations[:] = memory.view(np.int8)
            interpreter.run()
            memory[:] = interpreter.activations.view(np.uint8)
        self.next += COMMAND_WORDS
        self.status["done"] += 1
        if command.last:
            self.next, self.status["busy"] = None, 0


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("depths", [{}, {"weight_depth": 72}], ids=["resident", "streamed"])
def test_nothing_stale_is_left(columns, depths):
    """Case U25: slots of a batch, whatever was in memory, with weights that arrive during the run."""
    rng = np.random.default_rng(columns)
    graph = conv_network(rng, shape=(6, 4, 4), count=23, kernel=(3, 3), planes=2, pads=(1, 1, 1, 1))
    program = emit(schedule(graph, ArrayConfig(lanes=4, rows=4, columns=columns, **depths)), graph)
    assert bool(program.uploads) == bool(depths)
    x = rng.normal(0, 60, (5, 6, 4, 4)).astype(np.float32)
    expected = evaluate(graph, {"image": x})
    device = Device(Stepping(program.config), timeout=5)
    np.testing.assert_array_equal(device.run(program, x)["result"], expected["result"])
    np.testing.assert_array_equal(device.run(program, x[::-1])["result"], expected["result"][::-1])
    for layer in device.step(program, x[:columns]):
        for column in range(columns):
            np.testing.assert_array_equal(device.read_value(program, layer.output, column),
                                          expected[layer.output][column])
