"""QONNX for onnxruntime: what its operators mean, as functions of standard ones.

The definitions are those of the QONNX standard: ``y = (clip(round(x / scale + zero_point), low, high) - zero_point)
* scale`` for Quant, ``low`` and ``high`` from the number of bits; ``+scale`` or ``-scale`` for BipolarQuant, zero
being positive. An oracle of their own: nothing here is shared with the importer's rewriting.
"""

import onnx
from onnx import helper, parser

__all__ = ["QONNX_DOMAINS", "with_functions"]

QONNX_DOMAINS = ("finn.custom_op.general", "onnx.brevitas", "qonnx.custom_op.general")

#: Rounds float32 numbers below 2**22 to nearest, ties to even, in whatever opset: there is no room for a fraction.
_NEAREST = "w0 = Add({x}, magic) {y} = Sub(w0, magic)"

#: ``v`` rounded, as ``w``.
_ROUNDINGS = {
    "ROUND": _NEAREST.format(x="v", y="w"),
    "HALF_EVEN": _NEAREST.format(x="v", y="w"),
    "CEIL": "w = Ceil(v)",
    "FLOOR": "w = Floor(v)",
    "UP": "m = Abs(v) n = Ceil(m) s = Sign(v) w = Mul(n, s)",
    "DOWN": "m = Abs(v) n = Floor(m) s = Sign(v) w = Mul(n, s)",
    "HALF_UP": "m = Abs(v) k = Add(m, point5) n = Floor(k) s = Sign(v) w = Mul(n, s)",
    "HALF_DOWN": "m = Abs(v) k = Sub(m, point5) n = Ceil(k) s = Sign(v) w = Mul(n, s)",
}


def with_functions(model):
    """Copy of a model whose QONNX operators are functions in the model, so that onnxruntime runs it.

    A model without any is returned as it is. Functions cannot compute with attributes, so there is one for each
    combination of them.

    Raises
    ------
    ValueError
        For a rounding mode that is not known.
    """
    nodes = [node for node in model.graph.node if node.domain in QONNX_DOMAINS and node.op_type in _MAKERS]
    if not nodes:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.ir_version = max(result.ir_version, 8)
    # Functions of another opset than the model's own are refused.
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    functions = {}
    for node in result.graph.node:
        if node.domain not in QONNX_DOMAINS or node.op_type not in _MAKERS:
            continue
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        name, text = _MAKERS[node.op_type](node, attributes)
        functions[node.domain, name] = parser.parse_function(
            f'<domain: "{node.domain}", opset_import: ["" : {opset}]> {name} {text}')
        node.op_type = name
        del node.attribute[:]
    known = {entry.domain for entry in result.opset_import}
    for domain in {domain for domain, _ in functions} - known:
        result.opset_import.append(helper.make_opsetid(domain, 1))
    result.functions.extend(functions.values())
    return result


def _quant(node, attributes):
    signed, narrow = (int(attributes.get(name, default)) for name, default in (("signed", 1), ("narrow", 0)))
    mode = _mode(attributes, "ROUND")
    limits = ("half = Div(all, two) bottom = Neg(half) low = Add(bottom, lost) high = Sub(half, one)" if signed else
              "low = Identity(none) top = Sub(all, one) high = Sub(top, lost)")
    # One bit that holds a sign is a sign.
    last = "several = Less(one, bits) y = Where(several, full, sign)" if signed else "y = Identity(full)"
    return f"Quant{signed}{narrow}{mode}", f"""(x, scale, zero, bits) => (y) {{
        {_CONSTANTS}
        lost = Constant <value = float {{{float(narrow)}}}> ()
        all = Pow(two, bits)
        {limits}
        steps = Div(x, scale)
        v = Add(steps, zero)
        {_ROUNDINGS[mode]}
        raised = Max(w, low)
        codes = Min(raised, high)
        centred = Sub(codes, zero)
        full = Mul(centred, scale)
        {_SIGN if signed else ""}
        {last}
    }}"""


#: 1.5 * 2**23, for rounding, and others.
_CONSTANTS = " ".join(f"{name} = Constant <value = float {{{value}}}> ()" for name, value in (
    ("none", 0.0), ("one", 1.0), ("two", 2.0), ("point5", 0.5), ("magic", 12582912.0)))

_SIGN = """below = Less(x, none)
        minus = Neg(scale)
        sign = Where(below, minus, scale)"""


def _bipolar(node, attributes):
    return "Bipolar", f"(x, scale) => (y) {{ {_CONSTANTS} {_SIGN} y = Identity(sign) }}"


def _trunc(node, attributes):
    mode = _mode(attributes, "FLOOR")
    if len(node.input) == 5:
        return f"TruncOld{mode}", f"""(x, scale, zero, wide, narrow) => (y) {{
            {_CONSTANTS}
            bits = Sub(wide, narrow)
            factor = Pow(two, bits)
            steps = Div(x, scale)
            shifted = Add(steps, zero)
            {_NEAREST.format(x="shifted", y="whole").replace("w0", "w1")}
            v = Div(whole, factor)
            {_ROUNDINGS[mode]}
            centred = Sub(w, zero)
            y = Mul(centred, scale)
        }}"""
    signed, narrow = (int(attributes.get(name, default)) for name, default in (("signed", 1), ("narrow", 0)))
    limits = ("half = Div(all, two) bottom = Neg(half) low = Add(bottom, lost) high = Sub(half, one)" if signed else
              "low = Identity(none) top = Sub(all, one) high = Sub(top, lost)")
    return f"Trunc{signed}{narrow}{mode}", f"""(x, scale, zero, wide, out_scale, bits) => (y) {{
        {_CONSTANTS}
        lost = Constant <value = float {{{float(narrow)}}}> ()
        all = Pow(two, bits)
        {limits}
        steps = Div(x, scale)
        shifted = Add(steps, zero)
        {_NEAREST.format(x="shifted", y="whole").replace("w0", "w1")}
        factor = Div(out_scale, scale)
        v = Div(whole, factor)
        {_ROUNDINGS[mode]}
        raised = Max(w, low)
        codes = Min(raised, high)
        out_zero = Div(zero, factor)
        centred = Sub(codes, out_zero)
        y = Mul(centred, out_scale)
    }}"""


def _mode(attributes, default):
    mode = attributes.get("rounding_mode", default)
    mode = (mode.decode() if isinstance(mode, bytes) else mode).upper()
    if mode not in _ROUNDINGS:
        raise ValueError(f"rounding_mode must be one of {', '.join(_ROUNDINGS)}, not {mode!r}")
    return mode


_MAKERS = {"Quant": _quant, "IntQuant": _quant, "BipolarQuant": _bipolar, "Trunc": _trunc}
