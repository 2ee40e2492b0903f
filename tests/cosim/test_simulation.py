import pytest
from checker import Checker
from simulation import SimulationError, check_verilator, find_simulators, run_bench, to_verilog

from almac.hdl.dot.ternary import TernaryDot


@pytest.mark.cocotb
@pytest.mark.parametrize(("bench", "message"), [
    ("tb_failing", "tb_failing: failed: is_wrong\n"),
    ("tb_idle", "tb_idle: failed: compares_nothing\n"),
    ("tb_empty", "tb_empty: no test ran\n"),
    ("tb_missing", "tb_missing: no test ran\n"),
])
def test_bad_bench_raises(tmp_path, bench, message):
    with pytest.raises(SimulationError) as caught:
        run_bench(TernaryDot(lanes=1), bench, tmp_path)
    assert str(caught.value).startswith(message)


@pytest.mark.cocotb
def test_log_tells_the_values(tmp_path):
    with pytest.raises(SimulationError, match="act: 0, expected 1"):
        run_bench(TernaryDot(lanes=1), "tb_failing", tmp_path)


def test_checker_wants_a_comparison():
    with pytest.raises(AssertionError, match="compared nothing"), Checker():
        pass


def test_checker_wants_whole_lists():
    with pytest.raises(AssertionError, match="1 items, not 2"), Checker() as check:
        check.equal_lists([1], [1, 2], "list")


def test_checker_keeps_an_error():
    with pytest.raises(KeyError), Checker():
        raise KeyError


@pytest.mark.parametrize("line", ["Verilator 5.006 2023-01-22 rev (Debian 5.006-3)", "Verilator 4.228 2",
                                  " rev vUNKNOWN-built20260516-4e853d8"])
def test_old_verilator_is_refused(line):
    with pytest.raises(SimulationError, match=r"^cocotb needs Verilator 5\.036 or newer, not [^.]*"):
        check_verilator(line)


@pytest.mark.parametrize("line", ["Verilator 5.036 2025-04-27", "Verilator 5.052 2026-09-05", "Verilator 6.002 x"])
def test_new_verilator_is_taken(line):
    check_verilator(line)


def test_icarus_is_always_there():
    assert find_simulators()[0] == "icarus"


def test_verilog_has_no_paths():
    text = to_verilog(TernaryDot(lanes=2))
    assert "module dut" in text
    assert ".py" not in text
