"""Imports point downwards, and algorithms, problems and engine know nothing of one another."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import diamond

pytestmark = pytest.mark.quick

ROOT = Path(diamond.__file__).parent

# Modules that users import, as in `from diamond.schedules import power`.
PUBLIC = ["algorithm", "callbacks", "cost", "prox", "schedule", "tree"]  # two are earlier names
# From the ground up: a folder imports from those above it in this list, and from itself.
LAYERS = [
    "_version",
    "core",  # arithmetic on trees, linear solvers by products, sampling, counting
    "hardware",  # memory, devices, processes, compiled programs
    "data",  # data sets, readers of files, partitions
    "problem",  # what the agents solve, with the rows that each has
    "torch",  # PyTorch modules and data sets as losses and rows
    "network",  # who talks to whom, and with which weights
    "schedules",  # schedules, and numbers left open until a run
    "privacy",  # accounting of differential privacy, and a site's ledger
    "interface",  # a round as one agent sees it: what algorithms say, and engine run
    "hypergradient",  # estimates, and the exact one with y*(x)
    "implicit",  # minimizers, roots and fixed points as differentiable functions
    "auto",  # the rule that chooses step sizes
    "gallery",  # the gallery
    "algorithms",  # one file a method; what they are made of in parts/
    "catalogue",  # every method by its name
    "records",  # what a run leaves behind: an object, a folder, a picture
    "metrics",  # what is measured and said of a run while it is made
    "theory",  # the paper's theory as numbers
    "report",  # from run folders to a page
    "sites",  # agents as processes of their own
    "engine",  # how rounds are run
    "estimators",  # estimators as scikit-learn has them
    "config",  # TOML files as validated objects: experiments, federations and their parts
    "experiment",  # experiments as runs on disk: plan, execute, resume, compare, load
    "tuning",  # candidates compared by trials: one tuner for all
    "reproduce",  # the experiments of the paper
    "advice",  # which method to prefer, from measurements and the benchmark
    "templates",  # demos, and the files that `diamond new` writes
    "bench",  # every method, every problem, the same rules
    *PUBLIC,
    "",  # diamond/__init__.py: the public names
    "cli",  # the command
    "__main__",
]
LEVEL = {name: level for level, name in enumerate(LAYERS)}
APART = ["algorithms", "gallery", "engine", "data", "network"]
MODULES = sorted(ROOT.rglob("*.py"))
OPTIONAL = {"matplotlib", "PIL", "pooch", "platformdirs", "tqdm", "optax"}
OPTIONAL |= {"tensorboardX", "mlflow", "wandb", "torch", "torchax", "dp_accounting"}
ESTIMATOR_PACKAGES = {"sklearn"}  # of diamond/estimators, likewise
# Of diamond/sites, which the package does not import.
SITE_PACKAGES = {"msgpack", "cryptography", "prometheus_client"}


def unit(parts):
    """The folder that a module belongs to."""
    return parts[0] if parts else ""


def imported(path, types=True):
    """Parts of the package's modules that a module imports, at its top or inside a function."""
    here = path.relative_to(ROOT).parts[:-1]
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    checks = [n for n in nodes if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    skipped = {*()} if types else {leaf for n in checks for leaf in ast.walk(n)}
    for node in nodes:
        if node in skipped:
            continue
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


def module(path):
    """Parts of the name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return tuple(part for part in parts if part != "__init__")


def owner(path):
    return unit(module(path))


@pytest.mark.wide
@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path):
    mine = owner(path)
    assert mine in LEVEL, f"give diamond/{mine} its place in LAYERS of tests/docs/test_layers.py"
    for parts in imported(path):
        other = unit(parts)
        if other == mine:
            continue
        assert LEVEL[other] < LEVEL[mine], f"{path.name} imports diamond.{'.'.join(parts)}"
        both = mine in APART and other in APART and mine != "engine"
        assert not both, f"diamond.{mine} must not know diamond.{other}"
        runs = mine in ("engine", "sites")
        assert not runs or other not in ("algorithms", "gallery", "data")


def test_no_modules_import_each_other():
    """Not even inside functions; what only types need does not count."""
    graph = {module(p): {*map(tuple, imported(p, types=False))} - {module(p)} for p in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_the_package_shows_its_folders_and_nothing_else():
    loose = {path.stem for path in ROOT.glob("*.py")}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert loose == {"__init__", "__main__", "_version", *PUBLIC}
    assert folders == {*LAYERS} - {"", "_version", "__main__", *PUBLIC}


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
            assert not roots & ESTIMATOR_PACKAGES or owner(path) == "estimators", path
            assert not roots & SITE_PACKAGES or owner(path) == "sites", path
