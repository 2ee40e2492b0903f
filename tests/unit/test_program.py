import zipfile

import numpy as np
import pytest
from networks import conv_network, interpret, mixed_network, random_codes

from almac.compiler import program as program_module
from almac.compiler.emit import emit
from almac.compiler.graph import Fold
from almac.compiler.program import Program, ProgramError
from almac.compiler.schedule import schedule
from almac.hdl.command import COMMAND_WORDS, Space
from almac.hdl.config import ArrayConfig
from almac.sim.interpreter import decode_command


def compiled(graph, **depths):
    return emit(schedule(graph, ArrayConfig.parse("4x4x1", **depths)), graph)


@pytest.fixture(scope="module")
def program():
    return compiled(mixed_network(np.random.default_rng(0)))


@pytest.fixture
def saved(program, tmp_path):
    """Path of a saved program."""
    return program.save(tmp_path / "net")


FIELDS = ("config", "inputs", "outputs", "placements", "layers", "uploads", "ends")


@pytest.mark.parametrize("depths", [{}, {"weight_depth": 72, "scale_depth": 8}])
def test_round_trip(tmp_path, depths):
    graph = conv_network(np.random.default_rng(0), shape=(6, 4, 4), count=23, kernel=(3, 3), planes=2)
    before = compiled(graph, **depths)
    before.save(tmp_path)
    after = Program.load(tmp_path)
    assert bool(after.uploads) == bool(depths)
    assert {name: getattr(after, name) for name in FIELDS} == {name: getattr(before, name) for name in FIELDS}
    assert set(after.images) == set(before.images)
    for name, image in before.images.items():
        assert after.images[name].dtype == np.uint8
        np.testing.assert_array_equal(after.images[name], image)
    assert after.digest == before.digest


def test_round_trip_of_a_folded_input(program, tmp_path):
    fold = Fold(kernel=(3, 3), strides=(1, 2), dilations=(1, 1), pads=(1, 0, 1, 0), pad_code=-5)
    [port] = program.inputs
    folded = program_module.replace(program, inputs=(program_module.replace(port, fold=fold),))
    folded.save(tmp_path)
    assert Program.load(tmp_path).inputs == folded.inputs


def test_same_program_same_file(program, tmp_path):
    assert program.save(tmp_path / "a").read_bytes() == program.save(tmp_path / "b").read_bytes()


def test_file_or_folder(saved):
    assert Program.load(saved).digest == Program.load(saved.parent).digest


def test_nothing_but_the_file_stays(saved):
    assert list(saved.parent.iterdir()) == [saved]


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ProgramError, match=r"does not exist; `almac compile MODEL\.onnx -o FOLDER` makes one$"):
        Program.load(tmp_path)


def test_truncated_file_is_refused(saved):
    whole = saved.read_bytes()
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        saved.write_bytes(whole[:length])
        with pytest.raises(ProgramError, match=r"is not a whole program .*; compile the model again$"):
            Program.load(saved)


def test_damaged_file_is_refused(saved, program):
    """A bit of every place in turn: a program is refused or the same one, whatever is damaged."""
    whole = saved.read_bytes()
    refused = 0
    for place in range(0, len(whole), max(1, len(whole) // 997)):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1:])
        try:
            assert Program.load(saved).digest == program.digest, place
        except ProgramError:
            refused += 1
    assert refused > 900


def test_exchanged_contents_are_refused(saved):
    with zipfile.ZipFile(saved) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["body"] = parts["body"][:-1] + bytes([parts["body"][-1] ^ 1])
    with zipfile.ZipFile(saved, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    with pytest.raises(ProgramError, match=r"is damaged: its checksum differs; compile the model again$"):
        Program.load(saved)


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY", b"onnx" * 100])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "program.npz"
    path.write_bytes(content)
    with pytest.raises(ProgramError, match="is not a whole program"):
        Program.load(path)


def test_other_archives_are_refused(tmp_path):
    np.savez(tmp_path / "program.npz", weights=np.zeros(3))
    with pytest.raises(ProgramError, match="is not a whole program"):
        Program.load(tmp_path)


def test_other_versions_are_refused(program, tmp_path, monkeypatch):
    monkeypatch.setattr(program_module, "FILE_VERSION", 1)
    program.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ProgramError, match=r"has file version 1, this is for 2; compile the model again$"):
        Program.load(tmp_path)


def last_flags(program):
    commands = program.images[Space.COMMAND.name].reshape(-1, COMMAND_WORDS, 4)
    return [int(decode_command(words).last) for words in commands]


def test_stepped_program_stops_after_every_layer(program):
    assert last_flags(program) == [0] * (len(program.ends) - 1) + [1]
    ends = {layer.first + layer.commands - 1 for layer in program.layers}
    assert last_flags(program.stepped()) == [int(k in ends) for k in range(len(program.ends))]


def test_flipped_bit_changes_a_result():
    rng = np.random.default_rng(1)
    program = compiled(conv_network(rng, raw=True))
    codes = random_codes(rng, (3, 4, 5))
    flipped = program.flip_bit("conv")
    assert (interpret(flipped, codes).activations != interpret(program, codes).activations).any()
    assert (flipped.images["WEIGHT"] != program.images["WEIGHT"]).sum() == 1
