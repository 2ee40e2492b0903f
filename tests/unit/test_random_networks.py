"""Random networks, in every spelling; more of them by `tests/networks/nightly.py`."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from checking import check_network, live_layers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layers import Conv, Quantization, Weights
from recipe import Recipe
from runtime import run
from strategies import recipes
from writers import SPELLINGS, supports, write

from almac.sim.qonnx import with_functions

few = settings(max_examples=60, derandomize=True, database=None, deadline=None,
               suppress_health_check=[HealthCheck.too_slow])

CONV = Conv(inputs=(0,), channels=2, kernel=(3, 3), strides=(1, 1), dilations=(1, 1), pads=(1, 1, 1, 1),
            weights=Weights(kind="ternary", scale=0.25), bias="int32",
            out=Quantization(scale=0.5, zero_point=-3), shape=(2, 4, 5))
ONE_CONV = Recipe(seed=1, shape=(3, 4, 5), input=Quantization(scale=0.125, zero_point=7), layers=(CONV,))


@few
@given(recipes(), st.sampled_from([13, 17, 19, 21, 25]))
def test_golden_is_onnxruntime_and_interpreter_is_golden(recipe, opset):
    assert check_network(recipe, opset).elements > 0


def test_most_codes_are_alive():
    alive = []

    @few
    @given(recipes())
    def look(recipe):
        alive.extend(live_layers(recipe))

    look()
    assert np.mean(alive) > 0.75


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_recipe_always_gives_the_same_model(spelling):
    first, second = (write(ONE_CONV, spelling).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_shapes_are_those_of_the_model():
    model = onnx.shape_inference.infer_shapes(write(ONE_CONV, "qdq"), strict_mode=True)
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim][1:]
              for value in model.graph.value_info}
    assert shapes["t1"] == [2, 4, 5]


def test_a_difference_is_found():
    """Of a spelling that means something else."""
    recipe = replace(ONE_CONV, input=replace(ONE_CONV.input, dtype="uint8"))
    assert supports(recipe, "integer")
    assert check_network(recipe).programs == len(check_network(recipe).spellings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("integer_spellings.Integer.finish", _raise_first)
        with pytest.raises(AssertionError, match="the spellings are different programs"):
            check_network(recipe)


def _raise_first(writer):
    """Every output channel gets one more."""
    quantizer = next(node for node in writer.nodes.nodes if node.output[0] == "t1")
    quantizer.input[0] = writer.nodes.op("Add", quantizer.input[0], writer.nodes.real(1.0))
    writer.nodes.nodes.remove(quantizer)
    writer.nodes.nodes.append(quantizer)
    return type(writer).__mro__[1].finish(writer)


@pytest.mark.parametrize(("bits", "signed", "narrow", "expected"), [
    (2, 1, 0, [-1.0, -0.5, 0.0, 0.0, 0.5, 0.5]),
    (2, 1, 1, [-0.5, -0.5, 0.0, 0.0, 0.5, 0.5]),
    (2, 0, 0, [0.0, 0.0, 0.0, 0.0, 1.0, 1.5]),
    (2, 0, 1, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]),
])
def test_quant_is_what_qonnx_says(bits, signed, narrow, expected):
    """Halves of steps go to the even code; ``narrow`` gives up the lowest code, or the highest if unsigned."""
    node = onnx.helper.make_node("Quant", ["x", "scale", "zero", "bits"], ["y"], domain="qonnx.custom_op.general",
                                 signed=signed, narrow=narrow, rounding_mode="ROUND")
    constants = {"scale": 0.5, "zero": 0.0, "bits": bits}
    graph = onnx.helper.make_graph(
        [node], "quant", [onnx.helper.make_tensor_value_info("x", 1, [6])],
        [onnx.helper.make_tensor_value_info("y", 1, [6])],
        [onnx.numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[
        onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("qonnx.custom_op.general", 1)])
    x = np.array([-1.5, -0.5, -0.25, 0.25, 0.75, 1.6], np.float32)
    assert run(with_functions(model), {"x": x})["y"].tolist() == expected
