"""Programs of random networks, command by command, against the golden model of their graphs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import conv_network, conv_shape, random_codes, random_planes, requantization

from almac.compiler.emit import emit
from almac.compiler.graph import (
    Add,
    Conv,
    Dequantize,
    Graph,
    MaxPool,
    Quantize,
    Requantize,
    SumPool,
    Table,
    Value,
    verify,
)
from almac.compiler.layout import from_words, to_words
from almac.compiler.schedule import schedule
from almac.hdl.command import COMMAND, COMMAND_WORDS, LEVELS, Opcode, encode, steps
from almac.hdl.config import ArrayConfig
from almac.sim.golden import evaluate
from almac.sim.interpreter import Interpreter, decode_command

SIZES = ("1x1x1", "3x5x1", "4x8x1", "16x16x1")

#: Memories in which everything finds room, also of an array of one lane.
DEEP = {"act_depth": 1 << 15, "weight_depth": 1 << 16, "scale_depth": 1 << 16, "param_depth": 1 << 14, "tables": 3,
        "command_depth": 1 << 14}


class Network:
    """A graph under construction: every op reads values that are there, of the sizes that they have."""

    def __init__(self, rng, shape):
        self.rng = rng
        self.values = {"image": Value(shape=shape, kind="real"), "x": Value(shape=shape)}
        self.codes = ["x"]
        self.ops = [Quantize(inputs=("image",), output="x")]

    def add(self, op, shape, kind="code"):
        self.ops.append(op)
        self.values[op.output] = Value(shape=shape, kind=kind)
        if kind == "code":
            self.codes.append(op.output)

    def pick(self):
        """A value of codes, most often the newest."""
        name = self.codes[-1] if self.rng.random() < 0.7 else str(self.rng.choice(self.codes))
        return name, self.values[name].shape

    def name(self):
        return f"v{len(self.ops)}"

    def window(self, shape):
        """Kernel, strides, dilations and pads that fit an image."""
        rng = self.rng
        pads = tuple(int(pad) for pad in rng.integers(0, 2, 4))
        kernel, dilations = [], []
        for size, pad in zip(shape[1:], (pads[0] + pads[2], pads[1] + pads[3]), strict=True):
            kernel.append(int(rng.integers(1, min(3, size + pad) + 1)))
            most = (size + pad - 1) // max(1, kernel[-1] - 1)
            dilations.append(int(rng.integers(1, min(2, max(1, most)) + 1)))
        strides = tuple(int(stride) for stride in rng.integers(1, 3, 2))
        return {"kernel": tuple(kernel), "strides": strides, "dilations": tuple(dilations), "pads": pads}

    def sums(self):
        """Accumulators, of a convolution or of a pool."""
        source, shape = self.pick()
        rng, window = self.rng, self.window(shape)
        pad_code = int(rng.integers(-128, 128))
        if rng.random() < 0.3:
            op = SumPool(inputs=(source,), output=self.name(), pad_code=pad_code, **window)
            self.add(op, pooled(shape, window), kind="acc")
            return op.output
        groups = int(rng.choice([n for n in (1, 1, 2, shape[0]) if shape[0] % n == 0]))
        count = groups * int(rng.integers(1, max(2, 20 // groups)))
        scale_groups = 1 if groups > 1 else int(rng.integers(1, min(3, shape[0]) + 1))
        # As many groups as the sizes of all of them make.
        scale_groups = -(-shape[0] // -(-shape[0] // scale_groups))
        weight = random_planes(rng, (count, shape[0] // groups, *window.pop("kernel")),
                               planes=int(rng.integers(1, 4)), scale_groups=scale_groups)
        op = Conv(inputs=(source,), output=self.name(), weight=weight, groups=groups, pad_code=pad_code, **window)
        self.add(op, conv_shape(shape, op), kind="acc")
        return op.output

    def grow(self):
        rng = self.rng
        match rng.integers(0, 6):
            case 0 | 1 | 2:
                sums = self.sums()
                shape = self.values[sums].shape
                each = shape[0] if rng.random() < 0.7 else 1
                self.add(Requantize(inputs=(sums,), output=self.name(), low=int(rng.choice([-128, -9])),
                                    **requantization(rng, each)), shape)
            case 3:
                source, shape = self.pick()
                window = self.window(shape)
                self.add(MaxPool(inputs=(source,), output=self.name(), **window), pooled(shape, window))
            case 4:
                source, shape = self.pick()
                others = [name for name in self.codes if self.values[name].shape == shape]
                self.add(Add(inputs=(source, str(rng.choice(others))), output=self.name(),
                             multipliers=tuple(int(m) for m in rng.integers(1 << 20, 1 << 24, 2)),
                             left=int(rng.integers(0, 4)), offset=int(rng.integers(-1 << 30, 1 << 30)),
                             shift=int(rng.integers(22, 28)), zero_point=int(rng.integers(-9, 9)),
                             low=-101, high=99), shape)
            case 5 if sum(isinstance(op, Table) for op in self.ops) < 3:
                source, shape = self.pick()
                self.add(Table(inputs=(source,), output=self.name(), table=tuple(random_codes(rng, 256).tolist())),
                         shape)

    def finish(self, *, raw):
        """The graph, its outputs the newest codes and, if ``raw``, accumulators."""
        wanted = [self.codes[-1], *([self.sums()] if raw else [])]
        outputs = tuple(f"out_{name}" for name in wanted)
        for name, output in zip(wanted, outputs, strict=True):
            self.add(Dequantize(inputs=(name,), output=output, scale=np.array(1.0), bias=np.array(0.0)),
                     self.values[name].shape, kind="real")
        return verify(Graph(ops=tuple(self.ops), values=self.values, inputs=("image",), outputs=outputs))


def pooled(shape, window):
    top, left, bottom, right = window["pads"]
    padded = (shape[1] + top + bottom, shape[2] + left + right)
    return (shape[0], *(
        (size - dilation * (kernel - 1) - 1) // stride + 1 for size, kernel, stride, dilation in zip(
            padded, window["kernel"], window["strides"], window["dilations"], strict=True)))


def check(graph, size, codes, **depths):
    """Compare every tensor, at the end of the layer that makes it."""
    program = emit(schedule(graph, ArrayConfig.parse(size, **{**DEEP, **depths})), graph)
    expected = evaluate(graph.with_ops(graph.ops[1:]), {"x": codes[None]})
    interpreter = Interpreter(program)
    interpreter.activations[:] = -86
    words = to_words(codes, program.config.lanes)
    interpreter.activations[program.placements["x"].address:][:len(words)] = words
    ends = {layer.first + layer.commands - 1: layer.output for layer in program.layers}

    def held(name):
        placement = program.placements[name]
        return from_words(interpreter.activations[placement.address:][:placement.size * placement.parts],
                          placement)

    def compare(index):
        if name := ends.pop(index, None):
            np.testing.assert_array_equal(held(name), expected[name][0], err_msg=name)

    interpreter.run(compare)
    assert not ends
    for port in program.outputs:
        np.testing.assert_array_equal(held(port.value), expected[port.value][0], err_msg=port.name)
    return program


@pytest.mark.parametrize("size", SIZES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2 ** 32), ops=st.integers(1, 7), raw=st.booleans())
def test_matches_golden(size, seed, ops, raw):
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.integers(1, most + 1)) for most in (18, 5, 5))
    network = Network(rng, shape)
    for _ in range(ops):
        network.grow()
    check(network.finish(raw=raw), size, random_codes(rng, shape))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 5, 17, 40])
def test_more_channels_than_rows(size, count):
    rng = np.random.default_rng(count)
    graph = conv_network(rng, shape=(7, 3, 4), count=count, kernel=(2, 3), pads=(1, 1, 0, 1), planes=2)
    check(graph, size, random_codes(rng, (7, 3, 4)))


@pytest.mark.parametrize(("size", "weight_depth"), list(zip(SIZES, (180, 72, 72, 36), strict=True)))
def test_streamed_weights(size, weight_depth):
    """The least depth: two tiles."""
    rng = np.random.default_rng(5)
    graph = conv_network(rng, shape=(5, 4, 4), count=37, kernel=(3, 3), planes=2)
    assert check(graph, size, random_codes(rng, (5, 4, 4)), weight_depth=weight_depth).uploads


@pytest.mark.parametrize("weight", [-1, 1])
@pytest.mark.parametrize("code", [-128, 127])
def test_extremes(weight, code):
    graph = conv_network(np.random.default_rng(0), shape=(33, 3, 3), count=18, kernel=(3, 3), raw=True)
    conv = graph.ops[1]
    full = replace(conv, weight=replace(conv.weight, trits=np.full_like(conv.weight.trits, weight),
                                        alpha=np.full_like(conv.weight.alpha, 255)))
    check(graph.with_ops([graph.ops[0], full, graph.ops[2]]), "16x16x1", np.full((33, 3, 3), code, np.int8))


def test_window_that_hangs_over_the_image():
    """Positions of a pool with ``ceil_mode``: the output's shape decides."""
    network = Network(np.random.default_rng(3), (6, 5, 5))
    window = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 0, 0)}
    network.add(MaxPool(inputs=("x",), output="greatest", **window), (6, 3, 3))
    network.add(SumPool(inputs=("greatest",), output="sums", pad_code=3, kernel=(2, 2), strides=(2, 2)), (6, 2, 2),
                kind="acc")
    network.add(Requantize(inputs=("sums",), output="y", **requantization(network.rng, 6)), (6, 2, 2))
    check(network.finish(raw=False), "4x8x1", random_codes(network.rng, (6, 5, 5)))


def test_commands_are_decoded_as_they_were_encoded():
    fields = {"opcode": Opcode.ADD, "grant": 65535, "count": list(range(len(LEVELS))),
              "x_step": steps((1, -2, 3, 0, 4, -5, 6), (1, 2, 3, 4, 5, 6, 7)), "pad": -128, "table": 15}
    words = np.frombuffer(encode(COMMAND, **fields).to_bytes(4 * COMMAND_WORDS, "little"), np.uint8)
    command = decode_command(words.reshape(COMMAND_WORDS, 4))
    assert (command.opcode, command.grant, command.pad, command.table) == (Opcode.ADD, 65535, -128, 15)
    assert list(command.count) == fields["count"]
    assert list(command.x_step) == fields["x_step"]
