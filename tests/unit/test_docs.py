"""The READMEs tell what the code says."""

import re
from dataclasses import is_dataclass
from pathlib import Path

import pytest
from amaranth import Shape

from almac.compiler import graph
from almac.hdl.command import COMMAND, Opcode, Space
from almac.hdl.frame import IDENTITY, REQUEST, RESPONSE, STATUS, Request, Status

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"{folder}/README.md" for folder in (
    "boards", "compiler", "hdl", "host", "sim", "examples/digits"))]


def tables(path):
    """Rows of every table, by the first cell of its head."""
    found, name = {}, None
    for line in (ROOT / path).read_text().splitlines():
        if not line.startswith("|"):
            name = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if name is None:
            name = cells[0]
            found[name] = []
        elif not set(cells[0]) <= {"-"} or not cells[0]:
            found[name].append(cells)
    return found


@pytest.mark.parametrize(("name", "layout"), [
    ("field", COMMAND), ("request field", REQUEST), ("response field", RESPONSE),
    ("identity field", IDENTITY), ("status field", STATUS)])
def test_layouts(name, layout):
    written = [(row[0], int(row[1])) for row in tables("hdl/README.md")[name]]
    assert written == [(field, Shape.cast(entry.shape).width) for field, entry in layout]


def test_members_of_enums():
    text = (ROOT / "hdl/README.md").read_text()
    assert [row[0] for row in tables("hdl/README.md")["opcode"]] == [opcode.name for opcode in Opcode]
    assert [row[0] for row in tables("hdl/README.md")["space"]] == [
        space.name for space in Space]
    for member in (*Request, *Status):
        assert member.name in text


def test_ops():
    text = (ROOT / "compiler/README.md").read_text()
    ops = [name for name in graph.__all__ if is_dataclass(getattr(graph, name))]
    assert len(ops) > 8
    for name in ops:
        assert re.search(rf"\b{name}\b", text) or name in {"Graph", "Op", "Value"}, name


def test_passes():
    named = {row[0].strip("`") for row in tables("compiler/README.md")["pass"]}
    assert named == {f"passes/{path.name}" for path in (ROOT / "compiler/passes").glob("*.py")
                     if path.name != "__init__.py"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_files_exist(document):
    text = (ROOT / document).read_text()
    paths = re.findall(r"`([a-z_./-]+\.(?:py|md|cpp|onnx))`", text)
    for path in paths:
        places = [ROOT / path, (ROOT / document).parent / path]
        assert any(place.exists() for place in places), f"{document} names {path}"


def test_commands_are_documented():
    from almac.cli import commands
    from almac.cli.main import app

    assert commands
    text = (ROOT / "README.md").read_text()
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        assert f"almac {name}" in text, name
