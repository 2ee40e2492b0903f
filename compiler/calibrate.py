"""A float model and samples of its inputs to a standard QDQ model in plain INT8.

One scale a tensor: weights symmetric, activations with a zero point, by the least and greatest number that the
samples made; biases int32 in steps of the products. What folds into a linear operator stays in float between it and
its quantizer, which costs no accuracy: BatchNormalization gives each channel a scale of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from almac.compiler.float_model import FloatModel, prepare
from almac.compiler.graph import CompileError
from almac.compiler.messages import shape_text
from almac.compiler.onnx_model import Source, TensorInfo, load_proto
from almac.compiler.placement import place
from almac.compiler.qdq import Range, quantized_model
from almac.compiler.spellings.families import QUANTIZERS

__all__ = ["quantize_int8", "quantized"]


def quantized(source: Source, calibration: Mapping[str, np.ndarray] | None, *,
              progress: Callable[[int, int], None] = lambda done, total: None) -> Source:
    """The model itself, or quantized if there are samples of its inputs.

    Samples under the single name ``x`` are those of a model's only input.

    Raises
    ------
    CompileError
        If the model is quantized already, or as :func:`quantize_int8`.
    """
    if calibration is None:
        return source
    proto = load_proto(source)
    for node in proto.graph.node:
        if node.op_type in QUANTIZERS:
            raise CompileError(f"the model is quantized already (node {node.name!r}, {node.op_type}); calibration "
                               "is for float models: leave it out")
    constants = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name not in constants]
    if {*calibration} == {"x"} and len(names) == 1:
        calibration = {names[0]: calibration["x"]}
    return quantize_int8(proto, calibration, progress=progress)


def quantize_int8(model: onnx.ModelProto, calibration: Mapping[str, np.ndarray], *,
                  progress: Callable[[int, int], None] = lambda done, total: None) -> onnx.ModelProto:
    """Quantize a float model to INT8.

    Parameters
    ----------
    model : onnx.ModelProto
    calibration : Mapping[str, np.ndarray]
        For every input of the model samples, one behind the other along the first axis.
    progress : Callable[[int, int], None]
        Called with the number of samples that have been run, and of all.

    Returns
    -------
    onnx.ModelProto
        With QuantizeLinear and DequantizeLinear; nodes and tensors keep their names.

    Raises
    ------
    CompileError
        If the model cannot be quantized, the samples do not fit it, or a tensor is not finite.
    """
    prepared = prepare(model)
    batch = _check(prepared.model.inputs, calibration)
    placement = place(prepared)
    needed = list(dict.fromkeys(placement.ranges.values()))
    ranges = _ranges(prepared, calibration, batch, needed, progress)
    return quantized_model(prepared, placement, ranges)


def _check(inputs: Sequence[TensorInfo], calibration: Mapping[str, np.ndarray]) -> int:
    """Samples that the model takes at a time, if these fit it."""
    expected = "; ".join(f"{info.name!r}: {info.dtype}{shape_text(info.shape)}" for info in inputs)
    names = {info.name for info in inputs}
    if names != {*calibration}:
        found = ", ".join(map(repr, sorted(calibration))) or "none"
        raise CompileError(f"calibration needs samples of all inputs, and found {found}; expected: {expected}; "
                           "some hundred typical ones, one behind the other along the first axis")
    counts = {len(array) if array.ndim else 0 for array in calibration.values()}
    if len(counts) != 1 or not min(counts):
        raise CompileError(f"calibration has {' and '.join(map(str, sorted(counts)))} samples; expected: as many "
                           "of each input, and at least one; some hundred typical ones are a good number")
    for info in inputs:
        array = calibration[info.name]
        # Nothing is known of the shape of an input that gives none.
        fits = not info.shape or (array.ndim == len(info.shape) and all(
            size in (None, found) for size, found in zip(info.shape[1:], array.shape[1:], strict=True)))
        if array.dtype != info.dtype or not fits:
            raise CompileError(f"calibration of {info.name!r} is {array.dtype}{shape_text(array.shape)}; expected: "
                               f"{info.dtype}{shape_text(info.shape)}, the first axis being that of the samples")
    batches = {info.shape[0] or 1 for info in inputs if info.shape}
    batch, count = max(batches, default=1), counts.pop()
    if len(batches) > 1 or count % batch:
        raise CompileError(f"the model takes {' and '.join(map(str, sorted(batches)))} samples at a time, and "
                           f"calibration has {count}; expected: a multiple, or a model with a symbolic batch")
    return batch


def _ranges(model: FloatModel, calibration: Mapping[str, np.ndarray], batch: int, needed: Sequence[str],
            progress: Callable[[int, int], None]) -> dict[str, Range]:
    """What each tensor holds over all samples."""
    lows = dict.fromkeys(needed, np.inf)
    highs = dict.fromkeys(needed, -np.inf)
    count = len(next(iter(calibration.values()), ()))
    for done, tensors in enumerate(_tensors(model, calibration, batch, needed), 1):
        for name, array in tensors.items():
            if array.dtype != np.float32:
                raise CompileError(f"tensor {name!r} is of {array.dtype}; supported: models in float32")
            # NaN is both least and greatest.
            low, high = float(array.min(initial=0)), float(array.max(initial=0))
            if not np.isfinite([low, high]).all():
                raise CompileError(f"tensor {name!r} holds {low if not np.isfinite(low) else high} for sample "
                                   f"{(done - 1) * batch}; supported: finite numbers; look at this sample, or at "
                                   "the constants of the model")
            lows[name], highs[name] = min(lows[name], low), max(highs[name], high)
        progress(done * batch, count)
    return {name: Range(lows[name], highs[name]) for name in needed}


def _tensors(model: FloatModel, calibration: Mapping[str, np.ndarray], batch: int, needed: Sequence[str],
             ) -> Iterator[dict[str, np.ndarray]]:
    """The tensors ``needed``, for one batch after the other: more at a time would only take memory."""
    made = [name for name in needed if name not in calibration]
    session = _session(model, made) if made else None
    for start in range(0, len(next(iter(calibration.values()), ())), batch):
        given = {name: np.ascontiguousarray(array[start:start + batch]) for name, array in calibration.items()}
        try:
            results: Any = session.run(made, given) if session else []
        # Its exceptions have no common type.
        except Exception as error:
            raise CompileError(f"the model cannot be run on the samples from {start} on "
                               f"({' '.join(str(error).split())})") from None
        yield {**{name: given[name] for name in needed if name in given}, **dict(zip(made, results, strict=True))}


def _session(model: FloatModel, outputs: Sequence[str]) -> Any:
    options = onnxruntime.SessionOptions()
    # What changes no result but by rounding; the same on every machine.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    try:
        proto = model.to_proto([node.proto for node in model.nodes], model.constants,
                               [onnx.ValueInfoProto(name=name) for name in outputs])
        return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    # Neither these.
    except Exception as error:
        raise CompileError(f"onnxruntime cannot run the model ({' '.join(str(error).split())})") from None
