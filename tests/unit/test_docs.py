"""The READMEs tell what the code says."""

import re
from dataclasses import is_dataclass
from math import prod
from pathlib import Path

import pytest
from amaranth import Shape

from almac.cli import commands  # noqa: F401 - registers the commands
from almac.cli.main import app
from almac.compiler import graph
from almac.hdl.command import COMMAND, COMMAND_WORDS, Opcode, Space, words_of
from almac.hdl.config import ArrayConfig
from almac.hdl.frame import IDENTITY, MAX_PAYLOAD, REQUEST, RESPONSE, STATUS, Request, Status
from almac.hdl.timing import FETCH_CYCLES, FIRST_FETCH_CYCLES

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"{folder}/README.md" for folder in (
    "boards", "compiler", "hdl", "host", "sim", "examples/digits", "tests/models"))]

#: Paths that a document may name although the repository does not hold them.
MADE = {".venv/", "~/.cache/almac"}


def tables(path):
    """Rows of every table, by the first cell of its head; two tables with the same one are refused."""
    found, name = {}, None
    for line in (ROOT / path).read_text().splitlines():
        if not line.startswith("|"):
            name = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if name is None:
            name = cells[0]
            assert not name or name not in found, f"{path} has two tables of {name!r}"
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


@pytest.mark.parametrize(("name", "members"), [
    ("opcode", Opcode), ("space", Space), ("request", Request), ("status", Status)])
def test_members(name, members):
    written = [(row[0], int(row[1])) for row in tables("hdl/README.md")[name]]
    assert written == [(member.name, member.value) for member in members]


@pytest.mark.parametrize("size", ["4x6x1", "16x8x2"])
def test_words(size):
    config = ArrayConfig.parse(size)
    for name, _, bits, *_ in tables("hdl/README.md")["space"]:
        factors = [int(factor) if factor.isdecimal() else getattr(config, factor) for factor in bits.split(" x ")]
        assert words_of(Space[name], config)[0] == prod(factors), name


def test_numbers_in_prose():
    text = " ".join((ROOT / "hdl/README.md").read_text().split())
    assert f"a command is {COMMAND_WORDS} words of 32 bits" in text
    assert f"shows {FIRST_FETCH_CYCLES}, and each further one at least {FETCH_CYCLES} cycles" in text
    assert f"at most {MAX_PAYLOAD} bytes of payload" in text


def test_ops():
    text = (ROOT / "compiler/README.md").read_text().split("## Ops\n")[1].split("\n## ")[0]
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
    text = re.sub(r"^    .*$", "", (ROOT / document).read_text(), flags=re.MULTILINE)
    tokens = re.findall(r"`([\w.~/-]+)`", text)
    paths = {token for token in tokens if "/" in token or re.search(r"\.(cpp|md|onnx|py|toml|vlt)$", token)}
    for path in paths - MADE:
        places = [ROOT / path, (ROOT / document).parent / path]
        assert any(place.exists() for place in places), f"{document} names {path}"


def test_commands_are_documented():
    text = (ROOT / "README.md").read_text()
    assert app.registered_commands
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        assert f"almac {name}" in text, name
