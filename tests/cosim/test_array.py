import json
from dataclasses import asdict

import pytest
from simulation import find_simulators, run_bench

from almac.hdl.column import Column
from almac.hdl.config import ArrayConfig

pytestmark = [pytest.mark.cocotb, pytest.mark.parametrize("simulator", find_simulators())]


@pytest.mark.parametrize(("size", "index"), [("1x1x1", 0), ("3x5x2", 1), ("4x8x1", 0)])
def test_column(tmp_path, simulator, size, index):
    config = ArrayConfig.parse(size, act_depth=64, tables=2)
    ran = run_bench(Column(config, index=index), "tb_column", tmp_path, simulator=simulator,
                    config=json.dumps(asdict(config)), column=index)
    assert ran == 6
