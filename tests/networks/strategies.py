"""Random recipes: valid by construction, with codes that do not all saturate."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from layer_strategies import CHOICES
from layers import Binary, Channelwise, Function, Gemm, Quantization, Transpose
from parameters import parameters
from recipe import Recipe
from runtime import run
from spellings import moves_codes
from writers import write_layer

__all__ = ["recipes"]

#: Values of a tensor that has more elements than this are not doubled in size, nor kept.
_MOST_ELEMENTS = 4000


class Growing:
    """A recipe in the making, and the real values of its tensors for one batch."""

    def __init__(self, draw, recipe):
        self.draw = draw
        self.recipe = recipe
        self.values = [recipe.input.dequantize(recipe.codes())]
        self.usable = [0]

    def shape(self, tensor):
        """Shape of a tensor, without the batch."""
        return self.recipe.shape_of(tensor)

    def rms(self, tensor):
        """Root mean square of a tensor, not 0."""
        return float(np.sqrt(np.mean(np.square(self.values[tensor], dtype=np.float64)))) or 1.0

    def add(self, layer, *, usable=True):
        """Append a layer; what its codes mean follows from what it computes."""
        real = self._real(layer)
        # An activation that makes everything equal hides the rest of the network.
        if isinstance(layer, Gemm) and np.ptp(real) == 0:
            layer = replace(layer, activation="none")
            real = self._real(layer)
        # Windows of padding alone have no mean, and float32 ends somewhere.
        assume(np.isfinite(real).all() and real.size <= _MOST_ELEMENTS and np.abs(real).max() < 1e12)
        layer = replace(layer, shape=real.shape[1:])
        same = replace(layer, out=self.recipe.quantization(layer.inputs[0]))
        # What moves codes mostly keeps their meaning.
        if moves_codes(self.recipe, same) and self.draw(st.integers(0, 7)) < 7:
            layer = same
        else:
            # What is only float32's own error is as good as zero.
            real = np.where(np.abs(real) > self._noise(layer), real, np.float32(0))
            layer = replace(layer, out=self.draw(quantizations(real, self.recipe.input.dtype)))
            if hasattr(layer, "bounds"):
                layer = replace(layer, bounds=tuple(_off_ties(bound, layer.out.scale) for bound in layer.bounds))
        self.recipe = replace(self.recipe, layers=(*self.recipe.layers, layer))
        self.values.append(layer.out.dequantize(layer.out.quantize(real)))
        if usable:
            self.usable.append(len(self.recipe.layers))

    def _real(self, layer):
        feeds = {f"r{i}": self.values[tensor] for i, tensor in enumerate(layer.inputs)}
        return run(write_layer(self.recipe, layer), feeds)["y"]

    def _noise(self, layer):
        """What may be left of terms that cancel."""
        match layer:
            case Gemm():
                return parameters(self.recipe, len(self.recipe.layers) + 1, layer).unit.max() / 100
            case Binary(kind="Mul") | Channelwise(kind="Mul" | "Div"):
                return 0
            case Function(kind="Sigmoid" | "Tanh" | "HardSigmoid"):
                return 1e-6
        return 1e-4 * max(np.abs(self.values[tensor]).max() for tensor in layer.inputs)

    def source(self):
        """A tensor to read, mostly the latest."""
        if self.draw(st.integers(0, 3)) < 3:
            return self.usable[-1]
        return self.draw(st.sampled_from(self.usable))


def _off_ties(bound, scale):
    """A bound that is not half-way between two codes: there the spellings may round to either."""
    steps = bound / scale
    return bound + 0.1 * scale if abs(steps - np.floor(steps) - 0.5) < 0.01 else bound


@st.composite
def zero_points(draw, dtype, bits):
    """Low, middle and high ends, and all between."""
    base = Quantization(dtype=dtype, bits=bits)
    middle = 0 if dtype == "int8" else 1 << bits - 1
    return draw(st.one_of(st.sampled_from([middle, base.low, base.high]), st.integers(base.low, base.high)))


@st.composite
def quantizations(draw, real, usual):
    """What codes mean that real numbers like ``real`` are quantized to; mostly of the ``usual`` type."""
    dtype = draw(st.sampled_from([usual, usual, usual, "int8", "uint8"]))
    bits = draw(st.sampled_from([8, 8, 8, 8, 8, 8, 4, 3, 2, 6]))
    zero_point = draw(zero_points(dtype, bits))
    base = Quantization(dtype=dtype, bits=bits)
    up, down = max(0.0, float(real.max())), max(0.0, -float(real.min()))
    # The larger side of the range of codes must have something to hold.
    if (up if base.high - zero_point >= zero_point - base.low else down) == 0:
        zero_point = base.low + base.high - zero_point
    above, below = base.high - zero_point, zero_point - base.low
    scale = (up / above if above >= below else down / below) or 1.0
    scale *= draw(st.sampled_from([1, 0.8, 0.4, 1.5, 6]))
    if draw(st.booleans()):
        scale = 2.0 ** round(math.log2(scale))
    # Where scales are denormal, float32 is no oracle.
    assume(scale > 2.0 ** -60)
    return Quantization(scale=float(np.float32(scale)), zero_point=zero_point, dtype=dtype, bits=bits)


@st.composite
def recipes(draw, most_layers=7):
    """Recipes of up to about ``most_layers`` layers; they shrink to one layer on one number."""
    size = st.integers(1, 9)
    shape = draw(st.one_of(*[st.tuples(*[size] * rank) for rank in (3, 3, 3, 2, 2, 1)]))
    dtype = draw(st.sampled_from(["int8", "uint8"]))
    scale = 2.0 ** draw(st.sampled_from([0, -1, -4, -7, -10, 3]) | st.floats(-10, 3, allow_nan=False))
    first = Quantization(scale=float(np.float32(scale)), zero_point=draw(zero_points(dtype, 8)), dtype=dtype)
    growing = Growing(draw, Recipe(seed=draw(st.integers(0, 1 << 16)), shape=shape, input=first,
                                   real_edges=draw(st.sampled_from([True, True, True, False]))))
    for _ in range(draw(st.integers(1, most_layers))):
        tensor = growing.source()
        choices = [choice for choice, fits in CHOICES if fits(growing, tensor)]
        made = draw(draw(st.sampled_from(choices))(growing, tensor))
        growing.add(made, usable=not isinstance(made, Transpose))
        if isinstance(made, Transpose):
            _transpose_back(growing, made)
    tail = "Softmax" if growing.recipe.real_edges and draw(st.integers(0, 7)) == 7 else "none"
    return replace(growing.recipe, tail=tail)


def _transpose_back(growing, transposed):
    """Close a pair of transpositions, perhaps with a function between."""
    last = len(growing.recipe.layers)
    if growing.draw(st.booleans()):
        growing.add(Function(inputs=(last,), kind="Relu"), usable=False)
        last += 1
    growing.add(Transpose(inputs=(last,), perm=tuple(int(i) for i in np.argsort(transposed.perm))))
