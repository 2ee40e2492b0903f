import pytest
from simulation import find_simulators, run_bench

from almac.hdl.dot.ternary import TernaryDot
from almac.hdl.requantize import Requantize
from almac.hdl.vector import VectorUnit

pytestmark = [pytest.mark.cocotb, pytest.mark.parametrize("simulator", find_simulators())]


@pytest.mark.parametrize("lanes", [1, 3, 16])
def test_dot_product(tmp_path, simulator, lanes):
    run_bench(TernaryDot(lanes=lanes), "tb_dot", tmp_path, simulator=simulator, lanes=lanes)


def test_requantizer(tmp_path, simulator):
    assert run_bench(Requantize(), "tb_requantize", tmp_path, simulator=simulator) == 3


@pytest.mark.parametrize("lanes", [1, 5])
def test_vector_unit(tmp_path, simulator, lanes):
    ran = run_bench(VectorUnit(lanes=lanes), "tb_vector", tmp_path, simulator=simulator, lanes=lanes)
    assert ran == 3
