import json
from dataclasses import asdict

import pytest
from simulation import find_simulators, run_bench

from almac.hdl.config import ArrayConfig
from almac.hdl.top import Top

pytestmark = [pytest.mark.cocotb, pytest.mark.parametrize("simulator", find_simulators())]


@pytest.mark.parametrize("size", ["1x1x1", "3x5x2", "4x8x1"])
def test_program(tmp_path, simulator, size):
    config = ArrayConfig.parse(size, act_depth=512, weight_depth=1024, scale_depth=128,
                               param_depth=64, tables=1, command_depth=1024)
    run_bench(Top(config), "tb_top", tmp_path, simulator=simulator, config=json.dumps(asdict(config)),
              seed=1)
