"""What is claimed of the importer and the golden model, for every random network."""

from writers import write

from almac.compiler.importer import import_model
from almac.sim.compare import compare_with_oracle
from almac.sim.qonnx import with_functions

__all__ = ["check_network"]


def check_network(recipe, spelling, opset=21):
    """Golden agrees with onnxruntime on a network, by the rule of NUMERICS.md section 6.

    Returns
    -------
    Comparison
    """
    model = write(recipe, spelling, opset)
    comparison = compare_with_oracle(import_model(model), with_functions(model), recipe.feeds())
    assert comparison.first_difference is None, f"{spelling}: {comparison.first_difference}"
    assert comparison.tensors > 0, f"{spelling}: nothing was compared"
    return comparison
