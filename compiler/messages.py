"""What the importer says about a model that it cannot import."""

from almac.compiler.graph import CompileError
from almac.compiler.linear import Linear
from almac.compiler.onnx_model import Node
from almac.compiler.operators import FUNCTIONS
from almac.compiler.states import Chain, Codes, Real, State, Sum

__all__ = ["GENERIC", "invalid", "reason", "shape_text"]

#: Where nothing better is known.
GENERIC = "not supported; replace it by supported operators, or cut the model before it"

_TAILS = {"ArgMax", "LogSoftmax", "Softmax", "TopK"}


def invalid(problems: list[str]) -> CompileError:
    """One error for all nodes that are not valid."""
    count = "1 node is" if len(problems) == 1 else f"{len(problems)} nodes are"
    return CompileError("\n".join([f"{count} not valid, or of no known meaning:", *problems]))


def reason(node: Node, inputs: list[State]) -> str:
    """Why ``node`` does not fit what it reads, and what to do."""
    if node.op in _TAILS:
        return "belongs on the host; cut the model before it"
    if "." in node.op:
        return ("is of a domain that is not ONNX's own; convert the model to QuantizeLinear and "
                "DequantizeLinear (qonnx-convert --output-style qcdq for QONNX)")
    if any(isinstance(state, Linear | Sum | Chain) for state in inputs):
        return ("reads a tensor that is not quantized; supported here: Relu, Clip, BatchNormalization, a bias "
                "or a factor for each channel, then QuantizeLinear; quantize the tensor before it")
    if any(isinstance(state, Real) for state in inputs):
        return "computes on a tensor that is not quantized; quantize the tensor before it"
    if node.op in {*FUNCTIONS, "Conv", "Gemm", "MatMul", "AveragePool", "GlobalAveragePool", "ReduceMean"}:
        if any(isinstance(state, Codes) and not state.real for state in inputs):
            return "computes on codes; put DequantizeLinear before it"
    return GENERIC


def shape_text(shape: tuple[int | None, ...]) -> str:
    """A shape as the messages show it."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
