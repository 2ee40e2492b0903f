"""A short run of ``tests/fuzz/fuzz.py``, and that it finds what it is for."""

import re
import subprocess
import sys
from pathlib import Path

from worker import Worker

FUZZ = Path(__file__).parents[1] / "fuzz/fuzz.py"


def test_damaged_models_are_compiled_or_refused(tmp_path):
    run = subprocess.run([sys.executable, FUZZ, "--minutes", "0.1", "--seed", "7", "--output", tmp_path],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    counts = re.search(r"^(\d+) files: (\d+) compiled, (\d+) refused$", run.stdout, re.MULTILINE)
    files, compiled, refused = map(int, counts.groups())
    assert files == compiled + refused
    assert min(compiled, refused) > 10
    assert not list(tmp_path.iterdir())


def test_a_crash_is_a_failure(tmp_path, monkeypatch):
    model = FUZZ.parents[2] / "tests/models/mnist_ternary_17k_int8.onnx"
    with Worker() as worker:
        assert worker.run(model).kind == "compiled"
        assert worker.run(tmp_path / "missing.onnx").kind == "refused"
        monkeypatch.setattr("worker.LIMIT_SECONDS", 0.0)
        assert worker.run(model).text == "took more than 0 s"
        monkeypatch.undo()
        # The next one gets a new process.
        assert worker.run(model).kind == "compiled"
        worker._process.terminate()
        assert worker.run(model).text == "the process died of SIGTERM"
