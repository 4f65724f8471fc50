"""Problems of benchopt's benchmark_bilevel: SOBA on a stand-in goes as written out in numpy."""

import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations

HERE = Path(__file__).parents[2] / "benchmarks" / "benchopt"
ROWS, INNER, OUTER, STEP, RATIO = 6, 3, 2, 0.2, 2.0


def module(name, path):
    spec = importlib.util.spec_from_file_location(name, HERE / path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


ADAPTER = module("diamond_adapter", "benchmark_utils/diamond_adapter.py")


def objective():
    """As their `Objective.get_objective`: means over samples start, .., start + batch_size - 1."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, ROWS, INNER))
    c = random.normal(size=(ROWS, OUTER))

    def cut(rows, start, batch_size):
        return jax.lax.dynamic_slice_in_dim(jnp.asarray(rows, jnp.float32), start, batch_size)

    @partial(jax.jit, static_argnames="batch_size")
    def inner(y, x, start=0, batch_size=1):
        rows, other = cut(a, start, batch_size), cut(c, start, batch_size)
        return jnp.mean((rows @ y - other @ x) ** 2) / 2 + 0.5 * y @ y

    @partial(jax.jit, static_argnames="batch_size")
    def outer(y, x, start=0, batch_size=1):
        return jnp.mean((cut(b, start, batch_size) @ y - 1) ** 2) / 2 + 0.1 * x @ x

    arguments = {
        "f_inner": inner,
        "f_outer": outer,
        "n_inner_samples": ROWS,
        "n_outer_samples": ROWS,
    }
    arguments |= {"inner_var0": jnp.zeros(INNER), "outer_var0": jnp.ones(OUTER)}
    return arguments, (a, b, c)


def soba(data, rounds):
    """SOBA on all rows, in float64: x, y and v at once, with steps STEP (t + 1)^-1/2."""
    a, b, c = data
    y, v, x = np.zeros(INNER), np.zeros(INNER), np.ones(OUTER)
    hessian = a.T @ a / ROWS + np.eye(INNER)
    for t in range(rounds):
        step = STEP / (t + 1) ** 0.5
        g_y = a.T @ (a @ y - c @ x) / ROWS + y
        f_y = b.T @ (b @ y - 1) / ROWS
        h = 0.2 * x - c.T @ (a @ v) / ROWS  # f_x + g_xy v
        x, y, v = x - step / RATIO * h, y - step * g_y, v - step * (hessian @ v + f_y)
    return y, x


@pytest.mark.wide
def test_it_is_the_same_method_with_the_same_steps():
    arguments, data = objective()
    with without_optimizations():
        problem, method = ADAPTER.problem(**arguments), ADAPTER.method("soba", ROWS, STEP, RATIO)
        run = ADAPTER.Rounds(problem, method, 1, shrinks=False)
        run.advance(4)
        run.advance(3)  # pieces of any length
    for values, expected in zip(run.variables, soba(data, 7)):
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)


def test_the_solver_of_benchopt_runs(monkeypatch):
    name = "benchopt.stopping_criterion"  # benchopt itself may be the folder of our solvers
    pytest.importorskip(name, reason="benchopt is not installed: pip install benchopt")
    monkeypatch.setitem(sys.modules, "benchmark_utils", ModuleType("benchmark_utils"))
    monkeypatch.setitem(sys.modules, "benchmark_utils.diamond_adapter", ADAPTER)
    solver = module("solver", "solvers/diamond.py").Solver.get_instance(
        method="soba",
        batch_size="full",
        step_size=STEP,
        outer_ratio=RATIO,
        eval_freq=7,
        random_state=1,
    )
    arguments, data = objective()
    turns = iter([True, False])
    with without_optimizations():
        solver.set_objective(**arguments)
        solver.run(lambda: next(turns))
    result, expected = solver.get_result(), soba(data, 7)
    np.testing.assert_allclose(result["inner_var"], expected[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result["outer_var"], expected[1], rtol=1e-4, atol=1e-6)
