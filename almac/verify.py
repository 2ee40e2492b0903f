"""Every level against its neighbour: onnxruntime, golden, interpreter, RTL."""

from dataclasses import dataclass, field, replace

import numpy as np

from almac.compiler.layout import fold_words, from_words, to_words
from almac.host.edges import prepare, quantize
from almac.sim.compare import compare_with_oracle
from almac.sim.golden import evaluate
from almac.sim.interpreter import Interpreter

__all__ = ["LEVELS", "Verification", "verify", "verify_golden"]

LEVELS = ("golden", "program", "rtl")


@dataclass
class Verification:
    """What was compared, and the first difference.

    Attributes
    ----------
    tensors : int
        Tensors compared at the deepest level, for each image.
    elements : int
        Elements compared with onnxruntime.
    near_ties : int
        Elements one code off where the exact value is closer to a tie than the oracle's own error.
    first_difference : dict or None
        ``stage``, ``layer``, ``tensor``, ``index``, ``expected``, ``got``.
    cycles : dict
        ``predicted`` and ``simulated``, of a run and of each layer.
    """

    level: str
    images: int = 0
    tensors: int = 0
    elements: int = 0
    near_ties: int = 0
    first_difference: dict | None = None
    cycles: dict = field(default_factory=lambda: {"predicted": None, "simulated": None})

    @property
    def equal(self):
        """Whether everything is equal and something was compared."""
        return (self.first_difference is None and self.tensors > 0
                and self.cycles["predicted"] == self.cycles["simulated"])


def verify(build, model, x, level, *, device=None, progress=lambda done, total: None):
    """Compare ``level`` and all levels above it, tensor by tensor.

    Parameters
    ----------
    build : Build
        The graph, and the program to check.
    model : path
        The ONNX model that both come from.
    x : dict[str, ndarray[N, ...]]
        Images by input name.
    level : str
        One of :data:`LEVELS`.
    device : Device
        For the level ``rtl``.
    progress : callable
        Told how many images of how many are done.
    """
    result = replace(verify_golden(build.graph, model, x), level=level)
    # Without a layer the golden model is all that there is.
    if result.first_difference or level == "golden" or not build.program.layers:
        return result

    count = result.images
    program = build.program
    real = prepare(program, x)
    values = evaluate(build.graph, x)
    result.tensors = 0
    columns = program.config.columns if level == "rtl" else 1
    for first in range(0, count, columns):
        images = range(first, min(first + columns, count))
        for image in images:
            codes = {port.value: quantize(port, real[port.name][image:image + 1])[0]
                     for port in program.inputs}
            expected = {name: values[name][image] for name in program.placements if name in values}
            result.tensors = _check(result, program, "program (interpreter) against golden", image,
                                    expected, _interpreted(program, codes))
            if result.first_difference:
                return result
        if level == "rtl":
            for image, layer_values in _on_device(program, device, x, images):
                expected = {name: values[name][image] for name in program.placements}
                result.tensors = _check(result, program, "RTL against golden", image, expected,
                                        layer_values)
                if result.first_difference:
                    return result
        progress(images[-1] + 1, count)
    if level == "rtl":
        device.run(program, {name: batch[:columns] for name, batch in x.items()})
        ends = device.trace(program)
        result.cycles = {"predicted": program.cycles, "simulated": ends[-1],
                         "layers": _by_layer(program, ends)}
        for layer in result.cycles["layers"]:
            if layer["predicted"] != layer["simulated"] and not program.uploads:
                result.first_difference = {"stage": "cycles of the RTL against the prediction", **layer}
                break
    return result


def verify_golden(graph, model, x):
    """Compare golden with onnxruntime alone, for any graph, also one that no target runs; see :func:`verify`."""
    comparison = compare_with_oracle(graph, model, x)
    result = Verification(level="golden", tensors=comparison.tensors, near_ties=comparison.near_ties,
                          elements=comparison.elements)
    if comparison.first_difference:
        result.first_difference = {"stage": "golden against onnxruntime", **comparison.first_difference}
    else:
        result.images = len(next(iter(x.values())))
    return result


def _interpreted(program, codes):
    """Every layer's output, as the interpreter leaves it in memory."""
    interpreter = Interpreter(program)
    for port in program.inputs:
        words = to_words(fold_words(codes[port.value], port), program.config.lanes)
        address = program.placements[port.value].address
        interpreter.activations[address:address + len(words)] = words
    ends = {layer.first + layer.commands - 1: layer.output for layer in program.layers}
    values = {}

    def keep(index):
        if index in ends:
            placement = program.placements[ends[index]]
            size = placement.size * placement.parts
            words = interpreter.activations[placement.address:placement.address + size]
            # A copy: later layers use the same memory.
            values[ends[index]] = from_words(words.copy(), placement)

    interpreter.run(after=keep)
    return values


def _on_device(program, device, x, images):
    """Every layer's output of every image, read from the device after that layer."""
    batch = {name: values[images.start:images.stop] for name, values in x.items()}
    collected = [{} for _ in images]
    for layer in device.step(program, batch):
        for column, values in enumerate(collected):
            values[layer.output] = device.read_value(program, layer.output, column)
    yield from zip(images, collected, strict=True)


def _check(result, program, stage, image, expected, got):
    """Compare layer by layer; the number of tensors compared."""
    for layer in program.layers:
        want = np.asarray(expected[layer.output]).reshape(got[layer.output].shape)
        differing = np.argwhere(want != got[layer.output])
        if len(differing):
            index = tuple(int(i) for i in differing[0])
            result.first_difference = {
                "stage": stage, "layer": layer.name, "tensor": layer.output, "image": image,
                "index": index, "expected": int(want[index]), "got": int(got[layer.output][index]),
                "differing": len(differing), "of": int(want.size)}
            break
    return len(program.layers)


def _by_layer(program, ends):
    before = 0
    layers = []
    for layer in program.layers:
        end = ends[layer.first + layer.commands - 1]
        layers.append({"layer": layer.name, "predicted": layer.cycles, "simulated": end - before})
        before = end
    return layers
