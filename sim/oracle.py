"""What onnxruntime says of a model, tensor by tensor."""

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from almac.compiler.onnx_model import load_proto
from almac.sim.qonnx import with_functions
from almac.sim.saturation import without_saturation

__all__ = ["oracle_tensors"]

#: Ending of the name of a tensor whose integers have been widened.
_WIDE = "/wide"


def oracle_tensors(model, inputs, names, *, singly=False):
    """Run the model with graph optimisation off, so that nothing is fused or approximated.

    Parameters
    ----------
    model : path or onnx.ModelProto
    inputs : dict[str, ndarray[N, ...]]
    names : set[str]
        Tensors that are wanted; those that the model has not are left out.
    singly : bool
        One image at a time, so that float32 sums are those of one image.

    Returns
    -------
    dict[str, ndarray]
        These tensors, and the outputs of the model.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(load_proto(model))
    known = {output.name for output in proto.graph.output}
    for node in proto.graph.node:
        for name in {*node.output} & names - known:
            proto.graph.output.append(onnx.ValueInfoProto(name=name))
            known.add(name)
    session = _session(without_saturation(with_functions(proto)))
    # A model may have a fixed batch.
    first = session.get_inputs()[0]
    count = len(inputs[first.name])
    fixed = first.shape[0] if first.shape and isinstance(first.shape[0], int) else None
    step = fixed or (1 if singly else count)
    wanted = [output.name for output in session.get_outputs()]
    parts = []
    for k in range(0, count, step):
        feeds = {name: _filled(batch[k:k + step], step if fixed else 0) for name, batch in inputs.items()}
        parts.append([tensor[:tensor.shape[0] * min(step, count - k) // step] if fixed and tensor.ndim else tensor
                      for tensor in session.run(wanted, feeds)])
    return {name.removesuffix(_WIDE): np.concatenate([np.atleast_1d(tensor) for tensor in tensors])
            for name, tensors in zip(wanted, zip(*parts, strict=True), strict=True)}


def _session(proto):
    """Session of a model; it gives 2- and 4-bit integers as 8-bit ones: onnxruntime gives Python no others."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), _options(),
                                           providers=["CPUExecutionProvider"])
    types = {output.name: output.type.removeprefix("tensor(") for output in session.get_outputs()}
    narrow = {name for name, kind in types.items() if kind.startswith(("int2", "int4", "uint2", "uint4"))}
    if not narrow:
        return session
    for output in proto.graph.output:
        if output.name in narrow:
            to = onnx.TensorProto.UINT8 if types[output.name].startswith("u") else onnx.TensorProto.INT8
            proto.graph.node.append(helper.make_node("Cast", [output.name], [output.name + _WIDE], to=to))
            output.name += _WIDE
            output.ClearField("type")
    return _session(proto)


def _filled(batch, size):
    """A batch of a fixed size, its last image repeated."""
    return np.concatenate([batch, *[batch[-1:]] * (size - len(batch))]) if len(batch) < size else batch


def _options():
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return options
