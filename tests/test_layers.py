"""Imports point downwards, and algorithms, problems and runtimes know nothing of one another."""

import ast
from pathlib import Path

import pytest

import diamond

ROOT = Path(diamond.__file__).parent

# From the ground up; a module may import from lower layers and from its own. A folder stands for
# the modules in it.
LAYERS = [
    {"_version", "tree", "schedule", "cost", "sampling", "linear", "cache", "memory", "hoist"},
    {"prox"},
    {"best", "colours", "callbacks", "cut", "processes", "stopping", "whole", "names"},
    {"validate", "checkpoint", "held"},
    {"problem"},
    {"network", "data"},
    {"lower", "algorithm", "deferred"},
    {"messages"},
    {"hypergradient"},
    {"probe"},
    {"steps"},
    {"algorithms", "problems"},
    {"catalogue"},
    {"paper"},
    {"measure"},
    {"signs"},
    {"run", "record", "divergence", "theory", "folder", "plot"},  # a run can save and draw itself
    {"peers"},
    {"runtimes", "report"},
    {"demo", "reproduce"},
    {"experiment", "comparison", "advice"},
    {"loading"},
    {""},  # diamond/__init__.py: the public names
    {"cli", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
APART = ["algorithms", "problems", "runtimes", "data", "network"]
MODULES = sorted(ROOT.rglob("*.py"))
OPTIONAL = {"matplotlib", "PIL", "pooch", "platformdirs", "tqdm", "optax"}
OPTIONAL |= {"tensorboardX", "mlflow", "wandb"}
PEERS = {"grpc", "msgpack", "cryptography"}  # of diamond/peers, which the package does not import


def unit(parts):
    """The entry of the table that a module belongs to."""
    return parts[0] if parts else ""


def imported(path):
    """Parts of the package's modules that a module imports, at its top or inside a function."""
    here = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from (parts[1:] for parts in names if parts[0] == "diamond")
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".") if node.module else []
            if node.level:
                base = [*here[: len(here) - node.level + 1], *module]
            elif module[:1] == ["diamond"]:
                base = module[1:]
            else:
                continue
            for alias in node.names:  # `from . import tree`: the name is the module
                inside = ROOT.joinpath(*base, alias.name)
                is_module = inside.is_dir() or inside.with_suffix(".py").exists()
                yield [*base, alias.name] if is_module else base


def owner(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return unit([part for part in parts if part != "__init__"])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path):
    mine = owner(path)
    assert mine in LEVEL, f"give diamond/{mine} its place in LAYERS of {Path(__file__).name}"
    for parts in imported(path):
        other = unit(parts)
        if other == mine:
            continue
        assert LEVEL[other] <= LEVEL[mine], f"{path.name} imports diamond.{'.'.join(parts)}"
        both = mine in APART and other in APART and mine != "runtimes"
        assert not both, f"diamond.{mine} must not know diamond.{other}"
        runs = mine in ("runtimes", "peers")
        assert not runs or other not in ("algorithms", "problems", "data")


def test_no_module_imports_a_private_name_of_another_folder():
    for path in MODULES:
        for parts in imported(path):
            private = [part for part in parts if part.startswith("_") and part != "_version"]
            assert not private or unit(parts) == owner(path), f"{path} imports {parts}"


def test_what_is_optional_is_not_imported_with_the_package():
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            roots = {name.split(".")[0] for name in names}
            assert not roots & OPTIONAL, path
            assert not roots & PEERS or owner(path) == "peers", path
