"""What onnxruntime says: every quantized tensor of a model."""

import numpy as np
import onnx
import onnxruntime

__all__ = ["oracle_tensors"]


def oracle_tensors(model, inputs):
    """Run the model with graph optimisation off, so that nothing is fused or approximated.

    Parameters
    ----------
    model : path or onnx.ModelProto
    inputs : dict[str, ndarray[N, ...]]

    Returns
    -------
    dict[str, ndarray]
        Outputs of all quantizers of activations, and of the model.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model if isinstance(model, onnx.ModelProto) else onnx.load(model))
    constants = {tensor.name for tensor in proto.graph.initializer}
    known = {output.name for output in proto.graph.output}
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants:
            if node.output[0] not in known:
                proto.graph.output.append(onnx.ValueInfoProto(name=node.output[0]))
                known.add(node.output[0])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    # A model may have a fixed batch of one.
    first = session.get_inputs()[0]
    count = len(inputs[first.name])
    step = 1 if first.shape[0] == 1 else count
    names = [output.name for output in session.get_outputs()]
    parts = [session.run(names, {name: batch[k:k + step] for name, batch in inputs.items()})
             for k in range(0, count, step)]
    return {name: np.concatenate(tensors) for name, tensors in zip(names, zip(*parts, strict=True),
                                                                   strict=True)}
