"""What the importer says about a model that it cannot import."""

from almac.compiler.graph import CompileError
from almac.compiler.linear import Linear
from almac.compiler.onnx_model import Model, Node
from almac.compiler.states import Chain, Codes, Real, State, Sum, Unsupported

__all__ = ["FUNCTIONS", "reason", "shape_text", "unsupported"]

#: Operators of one tensor, element by element; with constants of one number, the binary ones too.
FUNCTIONS = {
    "Abs", "Add", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Round",
    "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Sub", "Tanh", "ThresholdedRelu",
}

_TAILS = {"ArgMax", "LogSoftmax", "Softmax", "TopK"}


def unsupported(problems: list[str], model: Model) -> CompileError:
    """One error for all nodes."""
    count = "1 node is" if len(problems) == 1 else f"{len(problems)} nodes are"
    lines = [f"{count} not supported:", *problems]
    if not any(node.op == "QuantizeLinear" for node in model.nodes):
        lines.append("The model is not quantized: it has no QuantizeLinear; quantize it first.")
    return CompileError("\n".join(lines))


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
        return "computes on an input of the model before it is quantized; quantize the input first"
    if node.op in {*FUNCTIONS, "Conv", "Gemm", "MatMul", "AveragePool", "GlobalAveragePool", "ReduceMean"}:
        if any(isinstance(state, Unsupported) for state in inputs):
            return "reads a tensor that is not quantized; quantize the tensor before it"
        if any(isinstance(state, Codes) and not state.real for state in inputs):
            return "computes on codes; put DequantizeLinear before it"
    return "not supported; replace it by supported operators, or cut the model before it"


def shape_text(shape: tuple[int | None, ...]) -> str:
    """A shape as the messages show it."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
