"""What becomes of real files: ``python tests/models/table.py FOLDER|FILE... [--output docs/models.md]``.

Every ONNX file is imported, compared with onnxruntime tensor by tensor, and compiled for the first of a few targets
that takes it, in a process of its own. A float model is quantized with random samples first: that shows its
operators and shapes, not its accuracy. Writes a Markdown table, and everything that was refused below it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx

from almac.boards.targets import find
from almac.compiler.build import build
from almac.compiler.calibrate import quantized
from almac.compiler.graph import CompileError
from almac.compiler.importer import import_model
from almac.compiler.onnx_model import load_proto
from almac.compiler.spellings.families import QUANTIZERS
from almac.sim.compare import compare_with_oracle

#: Tried in this order.
TARGETS = ("sim-16x16x1", "sim-32x32x1", "sim-64x64x1-deep")

#: For sizes that a file leaves open, by axis.
_OPEN = (1, 3, 48, 192)

_SECONDS = 600


def main():
    """Run the command; returns 1 if a file ended in anything but a program or a refusal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders; the onnx package's are added")
    parser.add_argument("--output", type=Path, help="file to write; else it is printed")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(examine(options.one)))
        return 0
    light = Path(onnx.__file__).parent / "backend/test/data/light"
    files = [file for path in [*options.paths, light]
             for file in (sorted(path.rglob("*.onnx")) if path.is_dir() else [path])]
    results = []
    for index, file in enumerate(files):
        print(f"{index + 1} of {len(files)}: {file.name}", file=sys.stderr, flush=True)
        results.append(in_process(file))
    text = markdown(results)
    if options.output:
        options.output.write_text(text)
    else:
        print(text)
    broken = [result["name"] for result in results if "broken" in result]
    print(f"{len(results)} files: {sum('target' in r for r in results)} programs, "
          f"{sum('refused' in r and 'target' not in r for r in results)} refused by name, {len(broken)} broken"
          + (f" ({', '.join(broken)})" if broken else ""), file=sys.stderr)
    return 1 if broken else 0


def in_process(file):
    """What :func:`examine` returns, whatever happens to its process."""
    command = [sys.executable, __file__, "--one", str(file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"name": file.name, "broken": f"took more than {_SECONDS} s"}
    if done.returncode:
        return {"name": file.name, "broken": done.stderr.strip().splitlines()[-1:] or "crashed"}
    return json.loads(done.stdout.splitlines()[-1])


def examine(file):
    """Import, compare and compile one file; plain data."""
    warnings.simplefilter("ignore")
    result = {"name": file.name}
    try:
        proto = sized(load_proto(file))
        floating = not any(node.op_type in QUANTIZERS for node in proto.graph.node)
        result["kind"] = "float" if floating else "quantized"
        start = time.perf_counter()
        model = quantized(proto, samples(proto, 2)) if floating else proto
        result["quantize"] = time.perf_counter() - start if floating else None
        start = time.perf_counter()
        graph = import_model(model)
        result["import"] = time.perf_counter() - start
        comparison = compare_with_oracle(graph, model, samples(model, 1))
        result.update(tensors=comparison.tensors, near_ties=comparison.near_ties,
                      difference=comparison.first_difference)
        if comparison.first_difference:
            result["broken"] = str(comparison.first_difference)
        compile_for(result, model)
    except CompileError as error:
        result["refused"] = str(error)
    result["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def compile_for(result, model):
    """Note the first target that takes the model, or why the last one does not."""
    for name in TARGETS:
        start = time.perf_counter()
        try:
            program = build(model, find(name).config).program
        except CompileError as error:
            result["refused"] = str(error)
            continue
        host = sorted({step.kind for step in program.before + program.after})
        result.update(target=name, compile=time.perf_counter() - start, cycles=program.cycles,
                      utilisation=program.utilisation, host=host)
        return


def sized(proto):
    """The model with numbers for the sizes that it leaves open."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name not in constants:
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                if axis and dim.dim_value <= 0:
                    dim.dim_value = _OPEN[axis]
    return proto


def samples(proto, count):
    """Random samples of the inputs of a model."""
    rng = np.random.default_rng(0)
    constants = {tensor.name for tensor in proto.graph.initializer}
    batches = {}
    for value in proto.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        first, *rest = (dim.dim_value for dim in tensor.shape.dim)
        shape = (max(first, 1) * count, *rest)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            batches[value.name] = rng.integers(max(info.min, -128), min(info.max, 255) + 1, shape).astype(dtype)
        else:
            batches[value.name] = rng.normal(0, 1, shape).astype(dtype)
    return batches


_PREFACE = f"""# What becomes of real files

Made by `.venv/bin/python tests/models/table.py FOLDER... --output docs/models.md`, each file in a process of its
own. Seconds and memory are *measured*, on {os.cpu_count()} shared cores. Cycles and utilisation are
*predicted*, by the model that the RTL in simulation meets, for the first of {", ".join(TARGETS)}
that takes the model. Equal to onnxruntime: every tensor that the model names, on random input; *near-ties* are
elements one code off where float32 cannot tell. Float models are quantized to INT8 with two random samples first:
that shows operators and shapes, not accuracy. The light_ models are those of the onnx package: real architectures
with constant weights.
""".splitlines()


def markdown(results):
    """The table, and the refusals."""
    head = ("file", "", "quantized, s", "imported, s", "equal to onnxruntime", "target", "compiled, s", "cycles",
            "utilisation", "on the host", "peak, MB")
    lines = [*_PREFACE, "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for result in sorted(results, key=lambda item: item["name"]):
        def shown(key, form=".2f", result=result):
            return "" if result.get(key) is None else format(result[key], form)

        equal = ""
        if "tensors" in result:
            near = f", {result['near_ties']} near-ties" if result["near_ties"] else ""
            equal = f"{result['tensors']} tensors{near}"
        where = result.get("target") or ("**broken**" if "broken" in result else "refused")
        lines.append("| " + " | ".join([
            result["name"], result.get("kind", ""), shown("quantize"), shown("import"), equal, where,
            shown("compile"), shown("cycles", ","), shown("utilisation", ".3f"),
            ", ".join(result.get("host", ())), shown("memory", ",.0f")]) + " |")
    lines += ["", "Refused, in full:", ""]
    for result in sorted(results, key=lambda item: item["name"]):
        if "target" not in result:
            text = str(result.get("broken") or result.get("refused")).splitlines()
            counts = Counter(line.split("): ")[-1] if "): " in line else line for line in text[1:])
            lines.append(f"- {result['name']}: {text[0]}" + "".join(
                f"\n  - {count} x {why}" if count > 1 else f"\n  - {next(line for line in text[1:] if why in line)}"
                for why, count in counts.items()))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
