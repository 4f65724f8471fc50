"""Examples of docstrings: every public name has one, and it runs."""

import doctest
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations
from pages import DOCS

import diamond
from diamond import catalogue

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
METHODS = sorted({*catalogue.names()} - {catalogue.COMPOSED})
NAMES = {name for name in diamond.__all__ if not inspect.ismodule(getattr(diamond, name))}
NEEDS_A_PROBLEM = {  # and thus a block of a page
    "diamond.hypergradient.check",
    "diamond.hypergradient.lipschitz",
    "diamond.implicit.hypergradient",
    "diamond.theory.estimate",
    "diamond.tree.pytree",
}
EXAMPLES = sorted(NAMES - {*METHODS, "__version__"} | {"solve"})


def run_example(value, names):
    """Run the examples of a docstring; return how many statements it has."""
    example = doctest.DocTestParser().get_doctest(
        inspect.getdoc(value) or "", names, value.__name__, None, None
    )
    output = []
    doctest.DocTestRunner(optionflags=FLAGS).run(example, out=output.append)
    assert not output, "".join(output)
    return len(example.examples)


@pytest.mark.wide(keep=["Diverged", "Network", "Problem", "simulate", "stream"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_name_runs(name, tmp_path, monkeypatch, float32):
    monkeypatch.chdir(tmp_path)
    names = {"diamond": diamond, "jax": jax, "jnp": jnp, "np": np}
    if name == "with_optimizers":
        pytest.importorskip("optax", reason="optax is not installed")
    if name == "private":
        pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    with without_optimizations():
        assert run_example(getattr(diamond, name), names)


@pytest.mark.quick
def test_the_examples_of_parts_run(float32, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = DOCS / "reference" / "api" / "examples.txt"
    failed, tried = doctest.testfile(str(path), module_relative=False, optionflags=FLAGS)
    assert not failed and tried > 110


@pytest.mark.quick
def test_every_graph_channel_schedule_and_estimator_has_an_example(hooks):
    modules = ["network", "network.channels", "hypergradient", "implicit", "schedules", "prox"]
    for module in [f"diamond.{name}" for name in [*modules, "tree", "data.partition", "theory"]]:
        functions = [n for n in hooks.public_names(module) if n[0].islower()]
        missing = {f"{module}.{name}" for name in functions} - {*hooks.examples()}
        assert not missing - NEEDS_A_PROBLEM


@pytest.mark.wide(keep=["dsgd"])
@pytest.mark.parametrize("name", METHODS)
def test_the_example_of_a_method_runs(hooks, name, float32):
    names = {"diamond": diamond}
    with without_optimizations():
        exec(hooks.method_example(name).replace("rounds=100", "rounds=2"), names)
    assert names["run"].rounds == 2 and np.isfinite(names["run"].x).all()
