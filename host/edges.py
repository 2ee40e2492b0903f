"""The edges of a model: real numbers to codes and back, and what else the host computes, in float32."""

from collections.abc import Mapping, Sequence

import numpy as np

from almac.compiler.onnx_run import run_model
from almac.compiler.program import HostStep, Port, Program
from almac.host.errors import InputError

__all__ = ["dequantize", "finish", "prepare", "quantize"]


def prepare(program: Program, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors before the device runs, of a batch of what the user gives: [N, ...] each."""
    return _computed(program.before, feeds) if program.before else dict(feeds)


def finish(program: Program, real: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the user gets, of a batch of all tensors before the device ran and of its outputs."""
    made = _computed(program.after, real) if program.after else dict(real)
    return {name: made[name] for name in program.results}


def _computed(steps: Sequence[HostStep], given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All tensors of a batch, image by image: a model is exported for one."""
    images = []
    for index in range(len(next(iter(given.values())))):
        tensors = {name: batch[index:index + 1] for name, batch in given.items()}
        for step in steps:
            tensors[step.output] = run_model(step.model, [tensors[name] for name in step.inputs])
        images.append(tensors)
    return {name: np.concatenate([np.atleast_1d(image[name]) for image in images]) for name in images[0]}


def quantize(port: Port, batch: np.ndarray) -> np.ndarray:
    """Codes of the model's input: int8[N, ...].

    ``saturate8(round_half_even(x / scale) + zero_point)``, the division in float32. An input that is codes in
    the model (``exact``) must have its dtype, and is only stored as signed.
    """
    if port.exact:
        dtype = np.uint8 if port.unsigned else np.int8
        if batch.dtype != dtype:
            raise InputError(f"input {port.name!r} takes {np.dtype(dtype)} codes, not {batch.dtype}")
        return (batch ^ np.uint8(128)).view(np.int8) if port.unsigned else batch
    real = batch.astype(np.float32)
    if not np.isfinite(real).all():
        raise InputError(f"input {port.name!r} holds values that are not finite")
    codes = np.rint(real / np.float32(port.scale[0])) + port.zero_point
    return np.clip(codes, max(port.low, -128), min(port.high, 127)).astype(np.int8)


def dequantize(port: Port, codes: np.ndarray) -> np.ndarray:
    """The model's output: float32[N, ...], or its codes if the model's own output are codes."""
    if port.move is not None:
        codes = port.move.apply(codes)
    if port.exact:
        codes = codes.reshape(-1, *port.shape).astype(np.int8)
        return codes.view(np.uint8) ^ np.uint8(128) if port.unsigned else codes
    channel = (1, -1, *(1,) * (codes.ndim - 2))
    scale, bias = (np.array(v, np.float32).reshape(channel) for v in (port.scale, port.bias))
    # Codes less a zero point need more than eight bits.
    real = (codes.astype(np.int64) - port.zero_point).astype(np.float32) * scale + bias
    limited = np.clip(real.astype(np.float32), np.float32(port.low), np.float32(port.high))
    return limited.reshape(-1, *port.shape)
