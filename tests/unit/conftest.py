"""A model as text, against onnxruntime and against numbers worked out by hand."""

import numpy as np
import onnx
import pytest

from almac.compiler.importer import import_model
from almac.compiler.proof import prove_accumulators
from almac.sim.compare import compare_with_oracle
from almac.sim.golden import evaluate


@pytest.fixture
def parse():
    """Model from the text of a graph, and arrays for initializers that the text form cannot hold."""
    def build(text, opset=21, **initializers):
        ir = 13 if opset > 24 else 10
        model = onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]> {text}')
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(array, name) for name, array in initializers.items())
        return model
    return build


@pytest.fixture
def check():
    """Golden outputs of a model, after comparing every tensor with onnxruntime.

    ``expected`` is the first output, for the whole batch.
    """
    def compare(model, expected=None, *, near_ties=0, **inputs):
        graph = import_model(model)
        prove_accumulators(graph)
        comparison = compare_with_oracle(graph, model, inputs)
        assert comparison.first_difference is None
        assert comparison.tensors > 0
        assert comparison.near_ties <= near_ties
        outputs = evaluate(graph, inputs)
        first = outputs[graph.outputs[0]]
        if expected is not None:
            assert first.reshape(-1).tolist() == np.asarray(expected).reshape(-1).tolist()
        return first
    return compare
