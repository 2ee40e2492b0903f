"""The imports between the folders point one way."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAY_IMPORT = {
    "hdl": set(),
    "compiler": {"hdl"},
    "sim": {"hdl", "compiler", "host"},
    "host": {"hdl", "compiler"},
    "boards": {"hdl"},
}

#: What hardware and compiler agree on; everything else in hdl/ is none of the compiler's business.
SHARED = {"almac.hdl.command", "almac.hdl.config", "almac.hdl.dot.code", "almac.hdl.shapes", "almac.hdl.timing"}


def imports(path):
    """Full names of our modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module="almac", level=0, names=aliases):
                names = [f"almac.{alias.name}" for alias in aliases]
            case ast.ImportFrom(module=str(module), level=0):
                names = [module]
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom():
                raise AssertionError(f"{path} has a relative import")
            case _:
                continue
        yield from (name for name in names if name.startswith("almac."))


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports(folder):
    assert sources(folder)
    for path in sources(folder):
        assert {name.split(".")[1] for name in imports(path)} <= MAY_IMPORT[folder] | {folder}, path


def test_compiler_imports_only_what_it_shares_with_the_hardware():
    for path in sources("compiler"):
        assert {name for name in imports(path) if name.startswith("almac.hdl")} <= SHARED, path
