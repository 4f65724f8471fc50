"""The content of the wheel: every tracked file below diamond/ is in it."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def tracked():
    """Files below diamond/ that belong to the source, relative to the root."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a clone: git cannot tell which files belong to the source")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "diamond"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in set(listed.stdout.split()) if (ROOT / name).is_file())


@pytest.fixture(scope="module")
def packed(tracked, tmp_path_factory):
    """Names of the files in a wheel that is built from a copy of the source."""
    pytest.importorskip("setuptools", minversion="77", reason="building needs setuptools 77")
    source, wheels = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in [*tracked, "pyproject.toml", "README.md", "LICENSE"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-c", BUILD, str(wheels)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.wide
def test_the_wheel_has_every_file_of_the_package(tracked, packed):
    missing = [name for name in tracked if name not in packed]
    assert not missing, f"not in the wheel: {missing}; add them to tool.setuptools.package-data"
    assert "diamond/py.typed" in tracked


def test_the_wheel_has_nothing_else(tracked, packed):
    beyond = {name for name in packed if ".dist-info/" not in name} - set(tracked)
    assert not beyond
