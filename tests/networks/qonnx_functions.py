"""QONNX models made runnable: each Quant becomes a function of standard operators.

``y = (clip(round(x / scale + zero_point), low, high) - zero_point) * scale``, with ``low`` and ``high`` from the
number of bits and the attributes. Functions cannot compute with attributes: there is one for each combination.
"""

import onnx
from nodes import QONNX
from onnx import parser

__all__ = ["with_functions"]

_ROUNDING = {"ROUND": "Round", "CEIL": "Ceil", "FLOOR": "Floor"}


def with_functions(model):
    """Copy of a model whose Quant nodes call functions in the model, so that onnxruntime runs it.

    Raises
    ------
    ValueError
        For a rounding mode that there is no operator for.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    functions = {}
    for node in result.graph.node:
        if node.domain == QONNX and node.op_type == "Quant":
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            function = _quant(opset, **attributes)
            functions[function.name] = function
            node.op_type = function.name
            del node.attribute[:]
    result.functions.extend(functions.values())
    return result


def _quant(opset, *, signed=1, narrow=0, rounding_mode=b"ROUND"):
    mode = rounding_mode.decode()
    if mode not in _ROUNDING:
        raise ValueError(f"rounding_mode must be one of {', '.join(_ROUNDING)}, not {mode!r}")
    # Of b bits: half of 2**b if one of them is the sign; a narrow range gives up one code.
    low, high = ("Neg(half)", "half") if signed else ("zero", "all")
    lost_low, lost_high = (narrow, 1) if signed else (0, 1 + narrow)
    return parser.parse_function(f"""
        <domain: "{QONNX}", opset_import: ["" : {opset}]>
        Quant_{"signed" if signed else "unsigned"}_{"narrow" if narrow else "full"}_{mode.lower()}
        (x, scale, zero_point, bits) => (y) {{
            two = Constant<value_float = 2.0>()
            zero = Constant<value_float = 0.0>()
            lost_low = Constant<value_float = {float(lost_low)}>()
            lost_high = Constant<value_float = {float(lost_high)}>()
            all = Pow(two, bits)
            half = Div(all, two)
            bottom = {low if signed else f"Identity({low})"}
            top = Identity({high})
            low = Add(bottom, lost_low)
            high = Sub(top, lost_high)
            steps = Div(x, scale)
            shifted = Add(steps, zero_point)
            rounded = {_ROUNDING[mode]}(shifted)
            raised = Max(rounded, low)
            codes = Min(raised, high)
            centred = Sub(codes, zero_point)
            y = Mul(centred, scale)
        }}""")
