"""What is measured, against the closed form, against scipy, and against plain numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ESTIMATORS, agent_of, build, final_progress, flat, logistic, quad, ring
from scipy.optimize import minimize

import diamond
from diamond import hypergradient as hg
from diamond.metrics import lower_solution
from diamond.metrics.exact_measures import measure
from diamond.problem import Problem

OPTIONS = dict(alpha=0.05, beta=0.2, batch=3, hypergradient=ESTIMATORS["neumann_sum"])


@pytest.fixture(scope="module")
def q():
    return quad(rows=(12, 5, 1, 9), noise=1.0)


@pytest.fixture(scope="module")
def run(q):
    return diamond.simulate(q, ring(4), build("gt_sgd", **OPTIONS), 8, every=4)


@pytest.mark.quick
def test_the_three_terms_and_both_sums(q, run):
    x, y, last = (
        np.asarray(run.last_x),
        np.asarray(run.last_y),
        {k: v[-1] for k, v in run.history.items()},
    )
    mean = x.mean(0)
    stationarity = np.sum(q.gradient(mean) ** 2)
    consensus = np.sum((x - mean) ** 2)
    gap = np.sum((q.lower_solution(x) - y) ** 2)
    assert last["stationarity"] == pytest.approx(stationarity, rel=1e-9)
    assert last["consensus"] == pytest.approx(consensus, rel=1e-12)
    assert last["lower_error"] == pytest.approx(gap, rel=1e-9)
    assert last["metric"] == pytest.approx(stationarity + consensus + gap, rel=1e-9)
    assert last["definition1"] == pytest.approx(stationarity + consensus / 4 + gap, rel=1e-9)
    assert consensus > 1e-4 and gap > 1e-3 and last["solver_error"] < 1e-10
    assert last["curvature"] == pytest.approx(1.5, rel=0.02)  # L of the quadratic


@pytest.mark.wide
def test_the_upper_loss_is_the_objective_and_the_local_loss_each_agents_own(q, run):
    x, y = np.asarray(run.last_x), np.asarray(run.last_y)
    mean = x.mean(0)
    loss = lambda i, x, y: float(q.upper(x, y, q.rows["valid"][i]))
    objective = [loss(i, mean, q.lower_solution(mean)[i]) for i in range(4)]
    local = [loss(i, x[i], y[i]) for i in range(4)]
    for name, expected in (("upper_loss", objective), ("local_loss", local)):
        np.testing.assert_allclose(run.per_agent[name][-1], expected, rtol=1e-11)
        assert run.history[name][-1] == pytest.approx(np.mean(expected), rel=1e-11)


def test_agents_own_measures_add_up(q, run):
    assert run.per_agent["consensus"].shape == (3, 4)
    for name in ("consensus", "lower_error"):
        np.testing.assert_allclose(run.per_agent[name].sum(1), run.history[name], rtol=1e-12)
    per_agent = np.sum((q.lower_solution(np.asarray(run.last_x)) - run.last_y) ** 2, axis=1)
    np.testing.assert_allclose(run.per_agent["lower_error"][-1], per_agent, rtol=1e-9)


def test_the_start_is_measured_too(q, run):
    assert run.history["round"].tolist() == [0, 4, 8]
    zero = np.zeros(3)
    assert run.history["stationarity"][0] == pytest.approx(np.sum(q.gradient(zero) ** 2), rel=1e-9)
    assert run.history["consensus"][0] == 0
    gap = np.sum(q.lower_solution(zero) ** 2)
    assert run.history["lower_error"][0] == pytest.approx(gap, rel=1e-9)


def test_measuring_costs_no_oracle_call(q, run):
    often = diamond.simulate(q, ring(4), build("gt_sgd", **OPTIONS), 8, every=1)
    for name, spent in run.costs.items():
        np.testing.assert_array_equal(spent, often.costs[name])
        assert run.history[name][0] == 0


@pytest.fixture(scope="module")
def curved():
    """A logistic run with unequal agents, and test rows."""
    problem = logistic(rows=(10, 3, 7), test=True)
    algorithm = build("gt_sgd", **OPTIONS | {"hypergradient": hg.neumann_sum(3, 3.0)})
    return problem, diamond.simulate(problem, ring(3), algorithm, 4)


@pytest.mark.wide
def test_y_star_is_the_minimizer_that_scipy_finds(curved):
    problem, run = curved
    objectives = problem.objectives()
    for i in range(3):
        objectives_of_agent = agent_of(objectives, i)
        x, y = jax.tree.map(lambda a, i=i: a[i], (run.last_x, run.last_y))
        solution = jax.jit(lower_solution.solve_lower_level)(objectives_of_agent, x, y)
        rows = problem.rows["train"][i]
        value = jax.jit(lambda w, rows=rows, x=x: problem.lower(x, {"w": w}, rows))
        gradient = jax.jit(jax.grad(value))
        slope = lambda w, gradient=gradient: np.asarray(gradient(w))
        best = minimize(lambda w, value=value: float(value(w)), np.zeros(3), jac=slope, tol=1e-12)
        np.testing.assert_allclose(solution.y["w"], best.x, atol=1e-8)
        np.testing.assert_allclose(slope(solution.y["w"]), 0, atol=1e-12)
        assert 0 <= solution.error < 4e-11
        gap = np.sum((best.x - y["w"]) ** 2)
        assert run.per_agent["lower_error"][-1, i] == pytest.approx(float(gap), rel=1e-6)


def test_y_star_is_found_from_far_away():
    """Where a full Newton step on the flat ends of the logistic loss overshoots."""
    problem = logistic(rows=(10, 3, 7), test=True)
    objectives_of_agent, (x, y) = agent_of(problem.objectives(), 0), problem.start(0)
    x = jax.tree.map(lambda a: a - 4, x)  # hardly regularized
    solve = jax.jit(lower_solution.solve_lower_level)
    near = solve(objectives_of_agent, x, y)
    far = solve(objectives_of_agent, x, {"w": jnp.array([30.0, -50.0, 40.0])})
    np.testing.assert_allclose(far.y["w"], near.y["w"], atol=1e-9)
    assert far.error < 4e-11


@pytest.mark.wide
def test_the_gradient_is_that_of_the_solved_problem(curved):
    problem, run = curved
    mean = jax.tree.map(lambda a: a.mean(0), run.last_x)
    objectives = problem.objectives()

    def total(x):
        """l(x) by 40 plain Newton steps an agent, differentiated through."""
        losses = []
        for i in range(3):
            objectives_of_agent, w = agent_of(objectives, i), jnp.zeros(3)
            g = lambda w, objectives_of_agent=objectives_of_agent: objectives_of_agent.g(
                x, {"w": w}, None
            )
            step = lambda w, _, g=g: (w - jnp.linalg.solve(jax.hessian(g)(w), jax.grad(g)(w)), None)
            losses.append(
                objectives_of_agent.f(x, {"w": jax.lax.scan(step, w, length=40)[0]}, None)
            )
        return sum(losses) / 3

    gradient = jax.jit(jax.grad(total))(mean)
    expected = sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(gradient))
    assert run.history["stationarity"][-1] == pytest.approx(expected, rel=1e-7)


@pytest.mark.wide
def test_metrics_are_measured_on_test_rows(curved):
    problem, run = curved
    y = np.asarray(run.last_y["w"])
    per_agent = [
        np.mean(rows["in"]["a"] @ w * rows["out"][0] > 0)
        for w, rows in zip(y, problem.rows["test"])
    ]
    assert run.history["accuracy"][-1] == pytest.approx(np.mean(per_agent), rel=1e-6)
    np.testing.assert_allclose(run.per_agent["accuracy"][-1], per_agent, rtol=1e-6)
    assert problem.measured_part == "test" and logistic().measured_part == "valid"


def test_a_lower_level_that_is_not_strongly_convex_is_not_called_solved():
    rows = [np.random.default_rng(0).normal(size=(6, 2))]
    bumpy = lambda x, y, rows: jnp.mean(jnp.cos(rows @ y)) + jnp.sum(x * y)
    init = lambda key: (jnp.zeros(2), jnp.array([0.1, -0.2]))
    objectives_of_agent = agent_of(Problem(bumpy, bumpy, init, rows, rows).objectives(), 0)
    assert (
        jax.jit(lower_solution.solve_lower_level)(objectives_of_agent, *init(None)).error > 1e-3
    )  # a warning is made of that


@pytest.mark.wide
def test_measures_of_one_function_call(q):
    """`measure` alone, at a point of one's own."""
    state = final_progress(q, ring(4), build("gt_sgd", **OPTIONS), 8).state
    objectives = q.objectives(3)
    together, per_agent = measure(objectives, objectives.valid, {}, state.x, state.y)
    assert set(per_agent) < set(together) and "consensus" in per_agent
    spread = flat(state.x) - flat(state.x).mean(0)
    assert float(together["consensus"]) == pytest.approx(np.sum(spread**2), rel=1e-12)


@pytest.mark.wide
@pytest.mark.parametrize("largest", [1e15, 1e25])
def test_measures_find_the_solution_below_penalties_of_very_different_size(largest):
    """In float32: the penalty of a useless feature grows without end."""
    random = np.random.default_rng(5)
    a, b = random.normal(size=(40, 12)), random.normal(size=40)
    penalties = np.geomspace(1e-2, largest, 12)
    rows = {"a": a.astype(np.float32), "b": b.astype(np.float32)}
    start = np.log(penalties).astype(np.float32), np.full(12, 0.1, np.float32)

    def upper(x, y, rows):
        return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) / 2

    def lower(x, y, rows):
        return upper(x, y, rows) + jnp.sum(jnp.exp(x) * y**2) / 2

    given = Problem(upper, lower, lambda key: jax.tree.map(jnp.asarray, start), [rows], [rows])
    run = diamond.simulate(given, diamond.network.complete(1), diamond.dsgd(alpha=0.0, beta=0.0), 0)
    curvature = a.T @ a / 40 + np.diag(penalties)
    solution = np.linalg.solve(curvature, a.T @ b / 40)
    residual = a @ solution - b
    gradient = -penalties * solution * np.linalg.solve(curvature, a.T @ residual / 40)
    assert run.history["upper_loss"][0] == pytest.approx(residual @ residual / 80, rel=1e-5)
    assert run.history["stationarity"][0] == pytest.approx(gradient @ gradient, rel=1e-3)
