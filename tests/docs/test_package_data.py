"""A wheel holds every file that the package reads."""

import tomllib
from pathlib import Path

import pytest

import diamond

pytestmark = pytest.mark.quick

ROOT = Path(diamond.__file__).parent


def test_every_file_that_is_not_python_is_package_data():
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]
    covered = {
        file
        for package, globs in patterns.items()
        for pattern in globs
        for file in ROOT.parent.joinpath(*package.split(".")).glob(pattern)
    }
    files = {path for path in ROOT.rglob("*") if path.is_file() and path.suffix != ".py"}
    files -= {path for path in files if "__pycache__" in path.parts}
    missing = sorted(str(path.relative_to(ROOT)) for path in files - covered)
    assert not missing, f"not in the wheel: {missing}; add them to tool.setuptools.package-data"
    assert ROOT / "py.typed" in files  # the search finds files at all
