"""The commands, as a user types them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "digits" / "model.onnx"
IMAGES = ROOT / "examples" / "digits" / "images.npz"


def almac(*arguments, status=0):
    """Run a command; stdout and stderr."""
    done = subprocess.run([sys.executable, "-m", "almac", *map(str, arguments)], capture_output=True,
                          text=True, timeout=900, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("compiled") / "digits"
    almac("compile", MODEL, "-o", path)
    return path


def test_compile_writes_a_program_and_a_report(folder):
    assert {file.name for file in folder.iterdir()} == {"program.npz", "model.onnx", "report.json"}
    summary = json.loads((folder / "report.json").read_text())
    assert json.loads(almac("report", folder, "--json")[0]) == summary
    assert {"utilisation", "cycles", "layers"} <= set(summary)
    assert summary["cycles"] == sum(layer["cycles"] for layer in summary["layers"])


def test_report_as_a_page(folder, tmp_path):
    almac("report", folder, "--html", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "conv2" in text
    assert "http" not in text


def test_run(folder, tmp_path):
    with np.load(IMAGES) as data:
        np.save(tmp_path / "x.npy", data["x"][:3])
        labels = data["y"][:3].tolist()
    out, _ = almac("run", folder, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--json")
    summary = json.loads(out)
    assert summary["classes"] == labels
    assert summary["cycles"]["predicted"] == summary["cycles"]["device"]
    assert np.load(tmp_path / "y.npy").shape == (3, 10)


def test_run_on_pictures(folder, tmp_path):
    with np.load(IMAGES) as data:
        for k in range(2):
            pixels = np.rint(data["x"][k, 0] * 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{k}.png")
        labels = data["y"][:2].tolist()
    assert json.loads(almac("run", folder, "--input", tmp_path, "--json")[0])["classes"] == labels


def test_verify_at_all_levels(folder):
    for level in ("golden", "program", "rtl"):
        summary = json.loads(almac("verify", folder, "--input", IMAGES, "--level", level, "--json")[0])
        assert summary["equal"]
        assert summary["level"] == level
        assert summary["tensors"] >= 10
        assert summary["first_difference"] is None
    assert summary["cycles"]["predicted"] == summary["cycles"]["simulated"] > 0


def test_verify_a_model_on_random_images():
    out, _ = almac("verify", MODEL, "--level", "program", "--images", "2", "--json")
    assert json.loads(out)["equal"]


def test_verify_finds_a_fault(folder):
    out, _ = almac("verify", folder, "--level", "program", "--flip-bit", "conv3", "--json", status=1)
    summary = json.loads(out)
    assert not summary["equal"]
    assert summary["first_difference"]["layer"] == "conv3"


def test_targets_and_doctor():
    names = [target["name"] for target in json.loads(almac("targets", "--json")[0])["targets"]]
    assert "sim-16x16x1" in names
    findings = json.loads(almac("doctor", "--json")[0])["findings"]
    assert {"verilator", "amaranth"} <= {item["name"] for item in findings}


@pytest.mark.parametrize(("arguments", "message"), [
    (("compile", "missing.onnx", "-o", "out"), "missing.onnx does not exist"),
    (("compile", MODEL, "-o", "out", "--target", "sim-16x16"), "lanes x rows x columns"),
    (("compile", MODEL, "-o", "out", "--target", "sim-99x1x1"), "lanes must be within 1..64, not 99"),
    (("compile", MODEL, "-o", "out", "--target", "ulx3"), "there is no target 'ulx3'"),
    (("run", "nothing", "--input", IMAGES), "does not exist"),
])
def test_mistakes_are_one_paragraph(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, err = almac(*arguments, status=1)
    assert not out
    assert message in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_all_unsupported_nodes_are_named(tmp_path):
    """Case U01, and nothing is left behind."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 1, 4, 4] x) => (float[N, 1, 4, 4] y) {
            a = Sin(x)
            b = Mul(a, a)
            y = Erf(b)
        }""")
    onnx.save(model, tmp_path / "m.onnx")
    out, err = almac("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", status=1)
    text = " ".join(err.split())
    assert "(Sin, opset 17" in text
    assert "(Erf, opset 17" in text
    assert not out
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("damage", ["truncated", "changed", "text"])
def test_damaged_programs_are_refused(damage, folder, tmp_path):
    whole = (folder / "program.npz").read_bytes()
    middle = len(whole) // 2
    damaged = {
        "truncated": whole[:middle],
        "changed": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:],
        "text": b"not a program",
    }[damage]
    (tmp_path / "program.npz").write_bytes(damaged)
    _, err = almac("run", tmp_path, "--input", IMAGES, status=1)
    assert "compile the model again" in " ".join(err.split())


def test_wrong_shape(folder, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 28, 28), np.float32))
    _, err = almac("run", folder, "--input", tmp_path / "x.npy", status=1)
    assert "the model takes [N, 1, 28, 28]" in " ".join(err.split())
