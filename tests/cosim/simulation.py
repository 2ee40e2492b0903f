"""Runs cocotb benches on components: Verilog, a build that is kept, and a look at what really ran."""

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

from amaranth import Signal, Value
from amaranth.back import verilog
from cocotb_tools.runner import get_runner

__all__ = ["BUILD", "SimulationError", "check_verilator", "find_simulators", "run_bench", "to_verilog"]

_HERE = Path(__file__).parent

#: Builds, by their content.
BUILD = _HERE.parents[1] / "build" / "cosim"

_WAIVERS = _HERE.parents[1] / "sim" / "amaranth.vlt"
_OLDEST_VERILATOR = (5, 36)
_TAIL_LINES = 30


class SimulationError(AssertionError):
    """A bench failed, did not run, or cannot run with this simulator."""


def to_verilog(component, name="dut"):
    """Verilog of a component; the same text every time and everywhere."""
    return verilog.convert(component, name=name, ports=_ports(component), emit_src=False,
                           strip_internal_attrs=True)


def _ports(component):
    """Ports of a component; `ready` of a stream that is always ready is a constant, hence none."""
    values = {"__".join(map(str, path)): Value.cast(value)
              for path, _member, value in component.signature.flatten(component)}
    return {name: (value, None) for name, value in values.items() if isinstance(value, Signal)}


def check_verilator(line):
    """Refuse a Verilator, given by its version line, that cocotb does not compile with."""
    found = re.match(r"Verilator (\d+)\.(\d+)", line)
    if not found or tuple(map(int, found.groups())) < _OLDEST_VERILATOR:
        raise SimulationError(f"cocotb needs Verilator 5.036 or newer, not {line.strip()!r}.")


def find_simulators():
    """Simulators that benches can run with: Icarus always, Verilator if it is new enough."""
    if shutil.which("verilator") is None:
        return ("icarus",)
    done = subprocess.run(["verilator", "--version"], capture_output=True, text=True, check=True)
    try:
        check_verilator(done.stdout)
    except SimulationError:
        return ("icarus",)
    return ("icarus", "verilator")


def run_bench(component, bench, folder, *, simulator="icarus", **settings):
    """Run all tests of a bench module on a component.

    Parameters
    ----------
    component : Component
        The bench sees it as ``dut``.
    bench : str
        Module in this folder.
    folder : Path
        Where results and logs go.
    simulator : str
        One of :func:`find_simulators`.
    **settings : int | str
        The bench finds them in its environment, in upper case.

    Returns
    -------
    int
        Tests that ran.

    Raises
    ------
    SimulationError
        If a test failed or none ran, with the end of the log.
    """
    build, runner = _build(bench, to_verilog(component), simulator)
    folder.mkdir(parents=True, exist_ok=True)
    results, log = folder / "results.xml", folder / "bench.log"
    results.unlink(missing_ok=True)
    try:
        runner.test(
            hdl_toplevel="dut", hdl_toplevel_lang="verilog", test_module=bench, build_dir=build,
            test_dir=folder, results_xml=str(results), log_file=log, timescale=("1ns", "1ps"),
            extra_env={name.upper(): str(value) for name, value in settings.items()})
    except (SystemExit, RuntimeError):
        pass  # What counts is in the results: whether the runner raises depends on who called it.
    return _judge(bench, results, log)


def _build(bench, text, simulator):
    """Folder of the built simulation, made if there is none of the same content; and its runner."""
    sources = {"dut.v": text}
    # With -g2012, which cocotb gives, initial values of registers are no events, and an `always @*`
    # that nothing else wakes leaves its outputs unknown.
    arguments = ["-g2005"]
    if simulator == "verilator":
        sources = {_WAIVERS.name: _WAIVERS.read_text(), **sources}
        arguments = ["-Wno-fatal", "--x-assign", "fast", "--x-initial", "fast"]
    key = json.dumps([sources, arguments, simulator, version("cocotb"), shutil.which(simulator)])
    folder = BUILD / f"{simulator}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    BUILD.mkdir(parents=True, exist_ok=True)
    runner = get_runner(simulator)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name, source in sources.items():
                (folder / name).write_text(source)
            try:
                runner.build(
                    sources=[folder / name for name in sources], hdl_toplevel="dut",
                    build_dir=folder, build_args=arguments, timescale=("1ns", "1ps"), always=True,
                    log_file=folder / "build.log")
            except (SystemExit, RuntimeError, subprocess.CalledProcessError) as error:
                raise SimulationError(
                    f"{bench}: {simulator} does not build\n{_tail(folder / 'build.log')}") from error
            (folder / "complete").touch()
    return folder, runner


def _judge(bench, results, log):
    """Count the tests in the results, unless that shows a failure."""
    cases = list(ET.parse(results).getroot().iter("testcase")) if results.exists() else []
    ran = [case.get("name") for case in cases if case.find("skipped") is None]
    failed = [case.get("name") for case in cases
              if case.find("failure") is not None or case.find("error") is not None]
    if ran and not failed:
        return len(ran)
    what = f"failed: {', '.join(failed)}" if failed else "no test ran"
    raise SimulationError(f"{bench}: {what}\n{_tail(log)}")


def _tail(log):
    lines = log.read_text(errors="replace").splitlines() if log.exists() else ["(no log)"]
    return "\n".join(lines[-_TAIL_LINES:])
