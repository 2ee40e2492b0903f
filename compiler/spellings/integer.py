"""Integer operators: a float operator on codes of scale 1, which computes the same whole numbers."""

import numpy as np
import onnx_ir as ir

from almac.compiler.spellings.emit import Rewrite, Rule, decline
from almac.compiler.spellings.inputs import Operand, Scheme, attribute, dtype_of, operands, scheme

__all__ = ["RULES"]

_DYNAMIC = "its scales depend on the data; quantize the model statically, with calibration data"


def _conv(rewrite: Rewrite) -> ir.Value:
    x, w, x_zero, w_zero = operands(rewrite.node, 4, {2, 3})
    return _product(rewrite, "Conv", (x, x_zero), (w, w_zero), axis=0)


def _matmul(rewrite: Rewrite) -> ir.Value:
    a, b, a_zero, b_zero = operands(rewrite.node, 4, {2, 3})
    return _product(rewrite, "MatMul", (a, a_zero), (b, b_zero), axis=-1)


def _product(rewrite: Rewrite, op_type: str, a: tuple[Operand, Operand], b: tuple[Operand, Operand],
             axis: int) -> ir.Value:
    """The int32 output becomes a float one with the same numbers; as an output of the model it keeps its type."""
    inputs = (rewrite.dequantize(a[0], _whole(*a, None), "a"), rewrite.dequantize(b[0], _whole(*b, axis), "b"))
    return rewrite.op(op_type, inputs, "sum", main=True, attributes=rewrite.node.attributes)


def _whole(codes: Operand, zero_point: Operand, axis: int | None) -> Scheme:
    one = ir.Value(name="one", const_value=ir.tensor(np.ones((), np.float32)))
    return scheme(one, zero_point, axis=axis, default=dtype_of(codes))


def _cast(rewrite: Rewrite) -> ir.Value | None:
    """A Cast to float of what is float already, as the sums above are now."""
    node = rewrite.node
    if len(node.inputs) != 1 or node.inputs[0] is None or node.inputs[0].dtype != ir.DataType.FLOAT:
        return None
    if attribute(node, "to", 0) != ir.DataType.FLOAT:
        return None
    return rewrite.op("Identity", node.inputs, "real", main=True)


RULES: dict[tuple[str, str], Rule] = {
    ("", "ConvInteger"): _conv,
    ("", "MatMulInteger"): _matmul,
    ("", "Cast"): _cast,
    ("", "DynamicQuantizeLinear"): decline(_DYNAMIC),
    ("com.microsoft", "DynamicQuantizeMatMul"): decline(_DYNAMIC),
}
