"""Classify handwritten digits on the simulated board, and check every bit of it.

``python examples/digits/demo.py [--target sim-LxRxC] [--images N] [--model MODEL.onnx]``; `make demo` runs it. The
same calls, with ``open_device("serial:/dev/ttyUSB0")``, are what a board takes.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console

import almac
from almac.boards.targets import DEFAULT, find
from almac.cli.progress import bar
from almac.compiler.build import build
from almac.report import report
from almac.verify import verify

HERE = Path(__file__).parent

#: Images whose every tensor is read back from the device; of the others the answers are compared.
_WHOLE = 8

#: Answers on a line.
_PER_LINE = 16

console = Console(highlight=False, soft_wrap=True)


def main():
    """Run the demo; exit status 0 only if everything is equal."""
    options = _options()
    with np.load(HERE / "images.npz") as data:
        x, labels = data["x"][:options.images], data["y"][:options.images]

    start = time.perf_counter()
    compiled = build(options.model, find(options.target).config)
    program, graph = compiled.program, compiled.graph
    console.print(f"{options.model.name} compiled for {options.target} in "
                  f"{time.perf_counter() - start:.2f} s: {len(program.ends)} commands, "
                  f"{program.weight_bytes:,} bytes of weights")

    device = almac.open_device("sim", program, timeout=600, progress=console.print)
    board = device.transport
    with bar("images") as advance:
        answers = next(iter(device.run(program, x, progress=advance).values()))
    _print_answers(labels, answers)
    accuracy = (answers.argmax(axis=1) == labels).mean()
    simulated = device.trace(program)[-1]
    speed = board.cycles / board.seconds
    summary = report(program)
    console.print(f"accuracy {100 * accuracy:.1f} % of {len(x)} images")
    console.print(f"cycles per image: predicted {program.cycles:,}, simulated {simulated:,}")
    console.print(f"utilisation of the array: {summary['utilisation']:.3f} of the run, "
                  f"{summary['utilisation_whole']:.3f} from first input byte to last result byte")
    console.print(f"simulated {board.cycles:,} cycles at {speed:,.0f} per second")

    name = graph.inputs[0]
    equal = np.array_equal(answers, next(iter(almac.golden(options.model, x).values())))
    checked = verify(compiled, options.model, {name: x[:_WHOLE]}, "rtl", device=device)
    whole = verify(compiled, options.model, {name: x}, "golden")
    device.close()
    if not (equal and checked.equal and whole.equal):
        console.print("DIFFERENT:", checked.first_difference or whole.first_difference
                      or "the answers of the device and of the golden model")
        return 1
    console.print(
        f"Every tensor equals golden and onnxruntime: all {checked.tensors} tensors of the device for the first "
        f"{checked.images} images and its answers for all {len(x)} equal golden bit for bit; golden equals "
        f"onnxruntime in all tensors of all {len(x)} images ({whole.near_ties} of {whole.elements:,} elements "
        "are near-ties: one code off where float32 cannot tell).")
    return 0


def _print_answers(labels, answers):
    """Label and answer of each image; a wrong one in red."""
    console.print("label:answer of each image")
    marks = [f"{label}:{answer}" if label == answer else f"[red]{label}:{answer}[/red]"
             for label, answer in zip(labels, answers.argmax(axis=1), strict=True)]
    for first in range(0, len(marks), _PER_LINE):
        console.print("  ".join(marks[first:first + _PER_LINE]))


def _options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default=DEFAULT)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--model", type=Path, default=HERE / "model.onnx")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
