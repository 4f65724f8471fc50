"""The imports of the documentation: each resolves, and type checkers follow it."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import uses_every_import
from fast_compilation import skip_loss_checks

import diamond

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".mypy_cache" / "public"  # kept: a change is checked in seconds
SCRIPT = Path(__file__).with_name("uses_every_import.py")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOTTED = re.compile(r"(?<![\w./-])diamond(?:\.[A-Za-z_]\w*)+(?![\w/-])")
FROM = re.compile(r"^\s*from (diamond[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def resolve(name):
    """The value of a dotted name, importing the modules on the way."""
    parts = name.split(".")
    value = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(value, part):
            importlib.import_module(".".join(parts[:i]))
        value = getattr(value, part)
    return value


def documented(page):
    """The names of the package that a page mentions or imports."""
    text = page.read_text()
    dotted = {name for name in DOTTED.findall(text) if not name.endswith((".toml", ".py"))}
    imported = {
        f"{module}.{name.strip()}"
        for module, names in FROM.findall(text)
        for name in names.split(",")
    }
    return dotted | imported


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_of_the_documentation_is_there(page):
    for name in documented(page):
        resolve(name)


def test_the_script_uses_every_public_name():
    """As `diamond.name`, or imported from there."""
    tree = ast.parse(SCRIPT.read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    used |= {alias.name for node in imports for alias in node.names}
    assert not {*diamond.__all__} - used


@pytest.mark.wide
def test_type_checkers_follow_every_import():
    pytest.importorskip("mypy")
    options = ["--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={CACHE}"]
    command = [sys.executable, "-m", "mypy", *options, SCRIPT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr


@pytest.mark.wide
def test_the_script_runs(tmp_path, monkeypatch):
    result = uses_every_import.main(tmp_path)
    assert list(result.runs) == [("mine", 0)]
    skip_loss_checks(monkeypatch)  # made by the tests of each problem of the gallery
    random = np.random.default_rng(0)
    rows = [{"a": random.normal(size=(6, 2)), "b": np.arange(6) % 2} for _ in range(3)]
    made = uses_every_import.problems(rows, tmp_path)
    assert all(isinstance(problem, diamond.Problem) for problem in made)
    assert all(network.agents > 2 for network in uses_every_import.networks())
    assert "beta" in uses_every_import.schedules() and uses_every_import.files(tmp_path)


def test_every_method_takes_a_batch():
    for make in uses_every_import.METHODS:
        assert make(batch=4).batch in (1, 4)  # 1: gradients on all rows
