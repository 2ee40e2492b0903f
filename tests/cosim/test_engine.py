import json
from dataclasses import asdict

import pytest
from simulation import find_simulators, run_bench

from almac.hdl.config import ArrayConfig
from almac.hdl.engine import Engine

pytestmark = [pytest.mark.cocotb, pytest.mark.parametrize("simulator", find_simulators())]


@pytest.mark.parametrize("size", ["2x3x1", "4x8x2"])
def test_program(tmp_path, simulator, size):
    config = ArrayConfig.parse(size, act_depth=192, weight_depth=256, scale_depth=64, param_depth=64, tables=1,
                               command_depth=512)
    assert run_bench(Engine(config), "tb_engine", tmp_path, simulator=simulator,
                     config=json.dumps(asdict(config)), seed=1) == 1
