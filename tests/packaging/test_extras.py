"""Extras: what the code imports is declared, and what messages recommend exists."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from diamond import callbacks
from diamond.cli.app import EXTRA_BY_PACKAGE

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
SOURCES = sorted((ROOT / "diamond").rglob("*.py"))
TEXTS = [*SOURCES, ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOR_DEVELOPMENT = {"all", "dev", "docs"}
LARGE = {"torch"}  # not part of `all`
# IPython is there in a notebook; no release of torchax works yet (see `diamond.torch`).
NOT_DECLARED = {"ipython", "torchax"}
# Distributions whose name is not that of the module.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "jaxlib": "jax",
    "pydantic_core": "pydantic",
    "sklearn": "scikit-learn",
}


def distributions(requirements):
    """Names of the distributions that requirements name, in lower case."""
    names = (re.match(r"[\w.-]+", text).group() for text in requirements)
    return {name.lower().replace("_", "-") for name in names}


def recommended(text):
    """Extras that a text says to install."""
    found = re.findall(r"(?:diamond-bilevel|'\.|\"\.)\[([\w,-]+)\]", text)
    return {name for names in found for name in names.split(",")}


def imported(path):
    """Modules outside the standard library that a file imports, at its top or in a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        else:
            continue
        yield from {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"diamond"}


def test_every_extra_that_a_text_recommends_exists():
    found = {path: recommended(path.read_text(encoding="utf-8")) for path in TEXTS}
    assert {"data", "net"} <= set().union(*found.values())
    assert not {path: names - set(EXTRAS) for path, names in found.items() if names - set(EXTRAS)}


def test_every_extra_of_a_missing_package_has_that_package():
    for module, extra in EXTRA_BY_PACKAGE.items():
        declared = EXTRAS[extra.strip("[]")] if extra else PROJECT["dependencies"]
        name = DISTRIBUTIONS.get(module, module).lower().replace("_", "-")
        assert name in distributions(declared), module


@pytest.mark.parametrize("package, make", [
    ("tensorboardX", lambda: callbacks.tensorboard("runs")),
    ("mlflow", lambda: callbacks.mlflow("experiment")),
    ("wandb", lambda: callbacks.wandb("project")),
])  # fmt: skip
def test_every_extra_of_a_tracker_exists(package, make, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError) as raised, make():
        pass
    (extra,) = recommended(str(raised.value))
    assert any(name.startswith(package.lower()) for name in distributions(EXTRAS[extra]))


@pytest.mark.wide
def test_every_import_is_declared():
    optional = (set(EXTRAS) - FOR_DEVELOPMENT) | {"all"}
    texts = [*PROJECT["dependencies"], *(text for name in optional for text in EXTRAS[name])]
    declared = distributions(texts)
    modules = {module for path in SOURCES for module in imported(path)}
    assert {"jax", "PIL", "pyarrow"} <= modules
    names = {DISTRIBUTIONS.get(name, name).lower().replace("_", "-") for name in modules}
    assert names - declared == NOT_DECLARED


def test_the_extra_all_has_every_extra_for_users():
    assert recommended(EXTRAS["all"][0]) == set(EXTRAS) - FOR_DEVELOPMENT - LARGE


def test_every_dependency_has_a_lower_bound():
    ranges = set(EXTRAS) - FOR_DEVELOPMENT
    users = [text for name in ranges for text in EXTRAS[name]]
    assert [text for text in PROJECT["dependencies"] + users if ">=" not in text] == []
