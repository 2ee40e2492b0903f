"""Descriptions of small quantized networks, independent of how ONNX spells them.

Tensor 0 is the quantized input, tensor ``k`` the codes that layer ``k`` makes (layers count from 1). A recipe is
plain data with an evaluable ``repr``: all large numbers follow from its seed.
"""

from dataclasses import dataclass

import numpy as np
from layers import Layer, Quantization

__all__ = ["Recipe"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A network.

    Parameters
    ----------
    real_edges : bool
        Whether inputs and outputs are real numbers; else they are codes.
    tail : str
        ``none``, or ``Softmax`` of the last layer if the edges are real.
    """

    seed: int
    shape: tuple[int, ...]
    input: Quantization
    layers: tuple[Layer, ...] = ()
    real_edges: bool = True
    tail: str = "none"

    def quantization(self, tensor):
        """What the codes of a tensor mean."""
        return self.layers[tensor - 1].out if tensor else self.input

    def shape_of(self, tensor):
        """Shape of a tensor, without the batch."""
        return self.layers[tensor - 1].shape if tensor else self.shape

    def outputs(self):
        """Tensors that no layer reads."""
        read = {tensor for layer in self.layers for tensor in layer.inputs}
        return [k for k in range(1, len(self.layers) + 1) if k not in read]

    def rng(self, layer):
        """Source of the numbers of one layer, the same at each call."""
        return np.random.default_rng([self.seed, layer])

    def codes(self, count=4):
        """A batch of input codes over their whole range, ends included."""
        low, high = self.input.low, self.input.high
        codes = self.rng(0).integers(low - 8, high + 9, (count, *self.shape))
        return np.clip(codes, low, high).astype(self.input.dtype)

    def feeds(self, count=4):
        """Inputs of a model of this recipe: ``x`` or ``t0``, dict[str, ndarray]."""
        codes = self.codes(count)
        if not self.real_edges:
            return {"t0": codes}
        # Within the step of each code, so that spellings do not differ here already.
        noise = self.rng(-1 % (1 << 32)).uniform(-0.4, 0.4, codes.shape).astype(np.float32)
        return {"x": self.input.dequantize(codes) + noise * np.float32(self.input.scale)}
