import pytest

from almac.boards.targets import DEFAULT, TargetError, find, targets
from almac.hdl.config import ArrayConfig


def test_listed_targets_are_found_by_their_names():
    listed = list(targets())
    assert listed == [find(target.name) for target in listed]
    assert len({target.name for target in listed}) == len(listed) > 1


def test_default_is_listed():
    assert DEFAULT in {target.name for target in targets()}


def test_other_sizes_can_be_named():
    target = find("sim-3x5x2")
    assert target.config == ArrayConfig(lanes=3, rows=5, columns=2)
    assert target.name == "sim-3x5x2"
    assert "3 lanes x 5 rows x 2 columns" in target.description


@pytest.mark.parametrize(("name", "message"), [
    ("sim-16x16", r"^target 'sim-16x16': Size must be written lanes x rows x columns \(16x16x1\), not '16x16'$"),
    ("sim-65x16x1", r"^target 'sim-65x16x1': lanes must be within 1\.\.64, not 65$"),
    ("sim-16x0x1", r"^target 'sim-16x0x1': rows must be within 1\.\.64, not 0$"),
    ("sin-16x16x1", r"^there is no target 'sin-16x16x1'; close ones: sim-16x16x1, "),
    ("16x16x4", r"^there is no target '16x16x4'; close ones: sim-16x16x4, "),
    ("arty", r"^there is no target 'arty'; close ones: sim-8x8x1, .*sim-64x64x1-deep; sim-LxRxC stands for any "),
    ("sim", r"^there is no target 'sim'; close ones: sim-"),
    ("", r"^there is no target ''; close ones: sim-"),
])
def test_other_names_are_refused(name, message):
    with pytest.raises(TargetError, match=message):
        find(name)
