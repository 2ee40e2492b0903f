"""The whole design as a compiled library: Verilog by Amaranth, C++ by Verilator, cached by digest."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import almac.hdl
from almac.sim.verilog import board_verilog

__all__ = ["SimulatorError", "cache_folder", "library", "verilator_version"]

_PACKAGES = ("verilator", "g++", "make")


class SimulatorError(Exception):
    """The simulated board cannot be built; says what is missing or what failed."""


def cache_folder():
    """Where built simulators are kept: ``ALMAC_CACHE``, or the user's cache folder."""
    given = os.environ.get("ALMAC_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(home) / "almac"


def verilator_version():
    """Version line of the Verilator on the path; None if there is none."""
    if shutil.which("verilator") is None:
        return None
    done = subprocess.run(["verilator", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def library(config, *, progress=lambda message: None):
    """Path of the compiled design for ``config``, built if it is not in the cache.

    The digest covers the source of the hardware, the shim, the configuration and the versions of the tools.

    Raises
    ------
    SimulatorError
        If a tool is missing or fails; the log is named.
    """
    missing = [tool for tool in _PACKAGES if shutil.which(tool) is None]
    if missing:
        raise SimulatorError(
            f"The simulated board needs {', '.join(missing)}; install with: "
            f"apt-get install -y --no-install-recommends {' '.join(_PACKAGES)} ccache")
    folder = cache_folder() / f"board-{config}-{_digest(config)}"
    path = folder / "board.so"
    if path.exists():
        return path
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(".lock")):
        if path.exists():
            return path
        progress(f"building the simulator of {config} (once; kept in the cache)")
        work = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
        try:
            _build(config, work, progress)
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return path


def _digest(config):
    text = hashlib.sha256()
    hdl = Path(almac.hdl.__file__).parent
    here = Path(__file__).parent
    for source in (*sorted(hdl.rglob("*.py")), here / "shim.cpp", here / "verilated.py"):
        text.update(source.read_bytes())
    text.update(f"{config!r} {verilator_version()} {version('amaranth')}".encode())
    return text.hexdigest()[:16]


@contextmanager
def _lock(path):
    """Let one process build; others wait for it."""
    deadline = time.monotonic() + 600
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL)
            break
        except FileExistsError:
            if time.monotonic() > deadline or time.time() - path.stat().st_mtime > 600:
                path.unlink(missing_ok=True)
            time.sleep(0.2)
    try:
        yield
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)


def _build(config, work, progress):
    progress("  writing Verilog")
    (work / "board.v").write_text(board_verilog(config))
    progress("  compiling with Verilator")
    here = Path(__file__).parent
    _run(work, "verilator", "--cc", "--prefix", "Vboard", "--Mdir", "model", "--top-module", "board",
         "-Wno-fatal", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "-O3",
         "-CFLAGS", "-fPIC", here / "amaranth.vlt", "board.v")
    compiler = ["ccache", "g++"] if shutil.which("ccache") else ["g++"]
    _run(work, "make", "-s", "-j2", "-C", "model", "-f", "Vboard.mk", "OPT_FAST=-O1", "OPT_SLOW=-O0",
         "OPT_GLOBAL=-O1", f"CXX={' '.join(compiler)}", "Vboard__ALL.a")
    root = Path(_run(work, "verilator", "--getenv", "VERILATOR_ROOT").strip()) / "include"
    _run(work, *compiler, "-O2", "-std=gnu++17", "-fPIC", "-shared", "-DVM_COVERAGE=0", "-DVM_SC=0",
         "-DVM_TRACE=0", "-Imodel", f"-I{root}", f"-I{root / 'vltstd'}", "-o", "board.so",
         here / "shim.cpp", root / "verilated.cpp", root / "verilated_threads.cpp",
         "model/Vboard__ALL.a", "-pthread", "-latomic")
    shutil.rmtree(work / "model")


def _run(work, *command):
    done = subprocess.run([str(part) for part in command], cwd=work, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise SimulatorError(f"{command[0]} failed while building the simulated board:\n{tail}")
    return done.stdout
