"""The edges of a model: real numbers to codes and back, in float32 on the host."""

import numpy as np

from almac.compiler.program import Port
from almac.host.errors import InputError

__all__ = ["dequantize", "quantize"]


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
    return np.clip(codes, -128, 127).astype(np.int8)


def dequantize(port: Port, codes: np.ndarray) -> np.ndarray:
    """The model's output: float32[N, ...], or its codes if the model's own output are codes."""
    if port.exact:
        codes = codes.reshape(-1, *port.shape).astype(np.int8)
        return codes.view(np.uint8) ^ np.uint8(128) if port.unsigned else codes
    channel = (1, -1, *(1,) * (codes.ndim - 2))
    scale, bias = (np.array(v, np.float32).reshape(channel) for v in (port.scale, port.bias))
    # Codes less a zero point need more than eight bits.
    real = (codes.astype(np.int64) - port.zero_point).astype(np.float32) * scale + bias
    return real.astype(np.float32).reshape(-1, *port.shape)
