"""Whole networks: ONNX to RTL, every tensor and every cycle."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import almac
from almac.boards.targets import find
from almac.compiler.build import build
from almac.hdl.config import ArrayConfig
from almac.host.device import Device
from almac.host.errors import IdentityError
from almac.sim.device import SimulatedBoard
from almac.verify import verify

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "model.onnx"
UNQUANTIZED_END = ROOT / "tests" / "models" / "mnist_ternary_17k_int8.onnx"


@pytest.mark.parametrize("target", ["sim-8x8x1", "sim-16x16x1", "sim-9x6x2"])
@pytest.mark.parametrize("model", [DIGITS, UNQUANTIZED_END], ids=lambda path: path.stem)
def test_every_tensor_and_cycle(model, target, digits):
    x, _ = digits
    compiled = build(model, find(target).config)
    with almac.open_device("sim", compiled.program, timeout=600) as device:
        result = verify(compiled, model, {compiled.graph.inputs[0]: x[:3]}, "rtl", device=device)
    assert result.first_difference is None
    assert result.equal
    assert result.tensors == len(compiled.program.layers)
    assert [layer["simulated"] for layer in result.cycles["layers"]] == [
        layer.cycles for layer in compiled.program.layers]


def test_answers_of_a_batch(digits):
    x, y = digits
    program = almac.compile(DIGITS, target="sim-16x16x1")
    with almac.open_device("sim", program, timeout=600) as device:
        logits = device.run(program, x[:40])["logits"]
    np.testing.assert_array_equal(logits, almac.golden(DIGITS, x[:40])["logits"])
    assert (logits.argmax(axis=1) == y[:40]).mean() > 0.9


def test_images_do_not_depend_on_their_neighbours(digits):
    """Case U25: a slot of a batch must not keep what the run before it left."""
    x, _ = digits
    program = almac.compile(DIGITS, target="sim-9x6x2")
    with almac.open_device("sim", program, timeout=600) as device:
        forward = device.run(program, x[[0, 1, 2]])["logits"]
        backward = device.run(program, x[[2, 1, 0]])["logits"]
    np.testing.assert_array_equal(forward, backward[::-1])


@pytest.mark.parametrize("layer", ["conv2", "conv5"])
def test_a_flipped_weight_is_found_in_its_layer(layer, digits):
    """Case U08."""
    x, _ = digits
    compiled = build(DIGITS, find("sim-16x16x1").config)
    faulty = replace(compiled, program=compiled.program.flip_bit(layer))
    result = verify(faulty, DIGITS, {"image": x[:4]}, "program")
    assert not result.equal
    assert result.first_difference["layer"] == layer


def test_weights_that_do_not_fit_are_streamed(digits):
    x, _ = digits
    config = ArrayConfig(lanes=8, rows=8, weight_depth=160)
    streamed = build(DIGITS, config).program
    resident = build(DIGITS, ArrayConfig(lanes=8, rows=8)).program
    assert streamed.uploads
    assert not resident.uploads
    with Device(SimulatedBoard(config), timeout=600) as device:
        logits = device.run(streamed, x[:2])["logits"]
        latest = device.latest
    np.testing.assert_array_equal(logits, almac.golden(DIGITS, x[:2])["logits"])
    # Whatever the device did not spend waiting for the host was predicted.
    assert latest.stalls > 0
    assert latest.cycles - latest.stalls <= streamed.cycles


def test_another_array_is_refused():
    """Case U13: before anything is sent."""
    program = almac.compile(DIGITS, target="sim-16x16x1")
    with Device(SimulatedBoard(find("sim-8x8x1").config), timeout=60) as device:
        with pytest.raises(IdentityError, match=r"^device has array 8x8x1, program wants 16x16x1"):
            device.run(program, np.zeros((1, 1, 28, 28), np.float32))
        assert device.transport.cycles < 1000


class NoisyBoard(SimulatedBoard):
    """A simulated board behind a line that damages, loses and repeats bytes."""

    def __init__(self, config, rng):
        super().__init__(config)
        self._rng = rng
        self.faults = 0

    def write(self, data):
        super().write(self._disturbed(data))

    def read(self, limit, timeout):
        return self._disturbed(super().read(limit, timeout))

    def _disturbed(self, data):
        data = bytearray(data)
        if data and self._rng.random() < 0.05:
            self.faults += 1
            place = int(self._rng.integers(len(data)))
            match self._rng.integers(3):
                case 0:
                    data[place] ^= 1 << int(self._rng.integers(8))
                case 1:
                    del data[place]
                case _:
                    data[place:place] = data[place:place + 9]
        return bytes(data)


def test_faults_on_the_line_never_change_an_answer(digits):
    x, _ = digits
    program = almac.compile(DIGITS, target="sim-16x16x1")
    board = NoisyBoard(program.config, np.random.default_rng(1))
    with Device(board, timeout=600) as device:
        logits = device.run(program, x[:6])["logits"]
    assert board.faults > 5
    np.testing.assert_array_equal(logits, almac.golden(DIGITS, x[:6])["logits"])


def test_predicted_cycles_are_of_the_program_that_runs(digits):
    """A wrong prediction must not pass: the comparison is with the device's own counter."""
    x, _ = digits
    compiled = build(DIGITS, find("sim-16x16x1").config)
    program = compiled.program
    ends = (*program.ends[:-1], program.ends[-1] + 1)
    wrong = replace(compiled, program=replace(program, ends=ends))
    with almac.open_device("sim", program, timeout=600) as device:
        assert not verify(wrong, DIGITS, {"image": x[:1]}, "rtl", device=device).equal
