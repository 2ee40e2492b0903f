"""What each command of `almac` does."""

import json as json_
import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from almac.api import open_device
from almac.boards.targets import DEFAULT, find, targets
from almac.cli.doctor import examine
from almac.cli.html import page
from almac.cli.inputs import labels_of, load_inputs, load_samples, random_inputs
from almac.cli.main import app, console, emit_json
from almac.cli.progress import bar
from almac.cli.tables import print_report, print_verification
from almac.compiler.build import build
from almac.compiler.emit import feeds_of, quantization_of
from almac.compiler.graph import CompileError
from almac.compiler.importer import import_model
from almac.compiler.onnx_model import save_proto
from almac.compiler.pipeline import run as run_passes
from almac.compiler.program import Program
from almac.report import report
from almac.verify import LEVELS, verify, verify_golden

_MODEL = "model.onnx"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
TargetName = Annotated[str, typer.Option("--target", help="Name of a target; see `almac targets`.")]
Where = Annotated[str, typer.Option("--device", help="sim, serial:PORT or tcp:HOST:PORT.")]


@app.command("compile")
def compile_(
    model: Annotated[Path, typer.Argument(help="ONNX model, quantized or with --calib.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")],
    target: TargetName = DEFAULT,
    calib: Annotated[Path | None, typer.Option(
        help=".npz with samples of the inputs of a float model: it is quantized to INT8 first.")] = None,
    quant: Annotated[Path | None, typer.Option(help="How to quantize; not in this version.")] = None,
    json: Json = False,
):
    """Compile a model to a program, and report what it will cost."""
    if quant:
        raise CompileError("--quant is not in this version: float models are quantized to plain INT8 (--calib)")
    samples = None if calib is None else load_samples(calib)
    with bar("calibration samples") if samples else nullcontext(None) as advance:
        done = build(model, find(target).config, calibration=samples, **({"progress": advance} if advance else {}))
    _write(output, done)
    summary = report(done.program)
    if json:
        emit_json(summary)
    else:
        print_report(summary)
        console.print(f"written to {output}")


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(metavar="BUILD", help="What `almac compile` wrote.")],
    input_: Annotated[Path, typer.Option("--input", help=".npy, .npz, a picture or a folder.")],
    output: Annotated[Path | None, typer.Option(help=".npy (or .npz) for the results.")] = None,
    device: Where = "sim",
    timeout: Annotated[float, typer.Option(help="Seconds that an operation may take.")] = 60.0,
    json: Json = False,
):
    """Run images through a program on a device."""
    program = Program.load(folder)
    x = load_inputs(input_, program.feeds)
    with open_device(device, program, timeout=timeout, progress=console.print) as connected, \
            bar("images") as advance:
        results = connected.run(program, x, progress=advance)
        latest = connected.latest
    if output is not None:
        _save(output, results)
    summary = {
        "images": len(next(iter(x.values()))),
        "cycles": {"predicted": program.cycles, "device": latest.cycles, "stalls": latest.stalls},
        "outputs": {name: list(values.shape) for name, values in results.items()},
    }
    classes = _classes(results)
    if classes is not None:
        summary["classes"] = classes.tolist()
        labels = labels_of(input_)
        if labels is not None:
            summary["accuracy"] = float((classes == labels.reshape(-1)).mean())
    if json:
        emit_json(summary)
    else:
        for key, value in summary.items():
            console.print(f"{key}: {value}")
        if output is None and classes is None:
            for name, values in results.items():
                print(name, np.array2string(values, threshold=200))


@app.command("verify")
def verify_(
    model: Annotated[Path, typer.Argument(metavar="MODEL|BUILD")],
    input_: Annotated[Path | None, typer.Option("--input", help="Images; random ones if not given.")] = None,
    level: Annotated[str, typer.Option(help="golden, program or rtl; each with those before.")] = "rtl",
    target: TargetName = DEFAULT,
    images: Annotated[int, typer.Option(help="At most so many images.")] = 4,
    flip_bit: Annotated[str | None, typer.Option(
        metavar="LAYER", help="Put a fault into one weight of that layer first: it must be found.")] = None,
    json: Json = False,
):
    """Compare onnxruntime, golden model, program and RTL tensor by tensor, bit for bit."""
    if level not in LEVELS:
        raise typer.BadParameter(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    if flip_bit is not None and level == "golden":
        raise typer.BadParameter("a fault is put into a program: --flip-bit needs --level program or rtl")
    done = None
    if model.is_dir():
        program = Program.load(model)
        model = model / _MODEL
        done = replace(build(model, program.config), program=program)
    elif level != "golden":
        done = build(model, find(target).config)
    # Any model has a golden answer, also one that no target runs.
    graph = run_passes(import_model(model)) if done is None else done.graph
    feeds = feeds_of(graph)
    x = load_inputs(input_, feeds) if input_ else random_inputs(feeds, quantization_of(graph), images)
    x = {name: batch[:images] for name, batch in x.items()}
    if level == "golden":
        result = verify_golden(graph, model, x)
    else:
        if flip_bit is not None:
            done = replace(done, program=_with_fault(done.program, flip_bit))
        device = None
        if level == "rtl":
            device = open_device("sim", done.program, timeout=600, progress=console.print)
        with bar("images") as advance:
            result = verify(done, model, x, level, device=device, progress=advance)
        if device is not None:
            device.close()
    summary = {
        "equal": result.equal, "level": level, "images": result.images, "tensors": result.tensors,
        "near_ties": result.near_ties, "first_difference": result.first_difference,
        "cycles": result.cycles,
    }
    if json:
        emit_json(summary)
    else:
        print_verification(summary)
    raise typer.Exit(0 if result.equal else 1)


@app.command("report")
def report_(
    folder: Annotated[Path, typer.Argument(metavar="BUILD", help="What `almac compile` wrote.")],
    html: Annotated[Path | None, typer.Option(help="Write a page that needs nothing else.")] = None,
    json: Json = False,
):
    """Show layers, cycles, utilisation and memory of a program."""
    summary = report(Program.load(folder))
    if html is not None:
        html.write_text(page(summary))
        console.print(f"written to {html}")
    if json:
        emit_json(summary)
    elif html is None:
        print_report(summary)


@app.command("targets")
def targets_(json: Json = False):
    """List what a program can be compiled for."""
    known = list(targets())
    if json:
        emit_json({"targets": [{"name": target.name, "description": target.description,
                                "macs": target.config.macs} for target in known]})
        return
    for target in known:
        print(f"{target.name:17} {target.description}; {target.config.macs} multiply-accumulates per cycle")
    print("sim-LxRxC         any other lanes x rows x columns, 1 to 64 each; with -deep, deep memories")


@app.command()
def doctor(json: Json = False):
    """Say what is installed, what is missing, and what for."""
    findings = examine()
    if json:
        emit_json({"findings": findings})
    else:
        for item in findings:
            mark = "ok     " if item["ok"] else "missing" if item["needed"] else "absent "
            print(f"{mark}  {item['name']:14} {item['version'] or item['remedy']}")
    raise typer.Exit(0 if all(item["ok"] or not item["needed"] for item in findings) else 1)


def _write(output, done):
    """Write the folder whole or not at all."""
    output = Path(output)
    if output.exists() and not output.is_dir():
        raise CompileError(f"{output} is a file; -o names a folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    try:
        done.program.save(partial)
        # One file, with its external data in it.
        save_proto(done.model, partial / _MODEL)
        (partial / "report.json").write_text(json_.dumps(report(done.program), indent=2) + "\n")
        output.mkdir(exist_ok=True)
        for file in sorted(partial.iterdir()):
            file.replace(output / file.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _with_fault(program, name):
    """The program with a bit of a layer's first weight inverted."""
    names = [layer.name for layer in program.layers if layer.macs]
    if name not in names:
        raise CompileError(f"there is no layer {name!r} with weights; there are {', '.join(names)}")
    return program.flip_bit(name)


def _save(output, results):
    if output.suffix == ".npz":
        np.savez(output, **results)
    elif len(results) == 1:
        np.save(output, next(iter(results.values())))
    else:
        raise CompileError(f"the model has the outputs {', '.join(results)}; name an .npz file")


def _classes(results):
    """Index of the greatest element, for a model with one vector as its output."""
    (values, *others) = results.values()
    return values.argmax(axis=1) if not others and values.ndim == 2 else None
