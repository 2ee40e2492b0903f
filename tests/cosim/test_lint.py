import subprocess
from pathlib import Path

import pytest
from simulation import to_verilog

from almac.hdl.config import ArrayConfig
from almac.hdl.top import Top

WAIVERS = Path(__file__).parents[2] / "sim" / "amaranth.vlt"


@pytest.mark.parametrize("size", ["1x1x1", "3x5x2", "16x16x1"])
def test_verilog_is_clean(tmp_path, size):
    text = to_verilog(Top(ArrayConfig.parse(size)), "top")
    (tmp_path / "top.v").write_text(text)
    for command in (
            ["verilator", "--lint-only", "-Wall", "--top-module", "top", WAIVERS, "top.v"],
            ["iverilog", "-g2001", "-t", "null", "-s", "top", "top.v"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout + done.stderr == ""


def test_lint_sees_a_fault(tmp_path):
    (tmp_path / "top.v").write_text(
        "module top(input a, output b, output c);\n  assign b = a;\nendmodule\n")
    done = subprocess.run(["verilator", "--lint-only", "-Wall", WAIVERS, "top.v"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "UNDRIVEN" in done.stderr


def test_verilog_is_reproducible():
    config = ArrayConfig.parse("3x5x2")
    assert to_verilog(Top(config)) == to_verilog(Top(config))
