import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("boards", "compiler", "hdl", "host", "sim")
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def packages(folder):
    """Folders with an ``__init__.py``, as paths from the root."""
    return [init.parent.relative_to(ROOT) for init in (ROOT / folder).rglob("__init__.py")]


def test_every_package_is_listed():
    on_disk = {".".join(path.parts) for path in packages("almac")}
    on_disk |= {".".join(("almac", *path.parts)) for folder in FOLDERS for path in packages(folder)}
    assert set(SETUPTOOLS["packages"]) == on_disk


def test_every_folder_with_sources_is_a_package():
    for folder in ("almac", *FOLDERS):
        for source in (ROOT / folder).rglob("*.py"):
            assert (source.parent / "__init__.py").exists(), source


def test_every_folder_is_mapped():
    assert SETUPTOOLS["package-dir"] == {"almac": "almac"} | {f"almac.{folder}": folder for folder in FOLDERS}


def test_folders_are_not_imported_as_top_level_packages():
    assert not {name.partition(".")[0] for name in sys.modules} & set(FOLDERS)
