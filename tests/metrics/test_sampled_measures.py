"""Measures on fixed samples of rows, against dense evaluations of the same rows in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diamond
from diamond.metrics import sampled_measures
from diamond.metrics.agent_statistics import AgentStatistics
from diamond.metrics.sampled_measures import descend, measure_on_samples
from tests.problem.test_networks_below import network_problem

AGENTS = 3


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    monkeypatch.setattr(sampled_measures, "ROWS", 20)
    monkeypatch.setattr(sampled_measures, "LOWER_ROWS", 10)


def point(problem, seed=5):
    """Return different x and y for every agent."""
    x, y = problem.start(0)
    rng = np.random.default_rng(seed)
    shift = lambda a: a + 0.3 * rng.normal(size=(AGENTS, *a.shape)).astype("float32")
    return jax.tree.map(shift, (x, y))


def measure(problem, x, y, batch, metrics=(), size=None):
    over = AgentStatistics(AGENTS, AGENTS, size=size)
    rows = problem.stack(problem.measured_part)
    return measure_on_samples(problem.objectives(batch), rows, metrics, x, y, None, over)


def error(y, rows):
    a, b = (np.asarray(rows[k], np.float64) for k in "ab")
    w, v = (np.asarray(y[k], np.float64) for k in "wv")
    return (np.tanh(a @ w) @ v - b) ** 2


def first(problem, part, agent, count):
    return jax.tree.map(lambda a: a[:count], problem.rows[part][agent])


def of(tree, agent):
    return jax.tree.map(lambda a: np.asarray(a[agent], np.float64), tree)


@pytest.mark.wide
@pytest.mark.parametrize("batch", [3, 4, 64])
def test_losses_are_averages_of_the_first_rows(batch):
    problem = network_problem(rows=30, agents=AGENTS)
    x, y = point(problem)
    measures, per_agent = measure(problem, x, y, batch)
    mean = np.asarray(x, np.float64).mean(0)
    upper, local, lower = [], [], []
    for i in range(AGENTS):
        loss = error(of(y, i), first(problem, "valid", i, 20)).mean()
        upper.append(loss + 1e-3 * (mean**2).sum())
        local.append(loss + 1e-3 * (np.asarray(x[i], np.float64) ** 2).sum())
        rows = first(problem, "train", i, 10)
        weights = 1 / (1 + np.exp(-np.asarray(x[i], np.float64)))[rows["group"]]
        lower.append((weights * error(of(y, i), rows)).mean())
    expected = {"upper_loss": upper, "local_loss": local, "lower_loss": lower}
    for name, values in expected.items():
        np.testing.assert_allclose(per_agent[name], values, rtol=1e-5)
        np.testing.assert_allclose(measures[name], np.mean(values), rtol=1e-5)
    consensus = ((np.asarray(x, np.float64) - mean) ** 2).sum()
    np.testing.assert_allclose(measures["consensus"], consensus, rtol=1e-5)


@pytest.mark.wide
def test_lower_gradient_is_that_of_all_sampled_rows_at_once():
    problem = network_problem(rows=30, agents=AGENTS)
    x, y = point(problem)
    measures, per_agent = measure(problem, x, y, 3)
    with jax.enable_x64(True):
        norms = []
        for i in range(AGENTS):
            rows = jax.tree.map(jnp.asarray, first(problem, "train", i, 10))
            g = jax.grad(problem.lower, argnums=1)(*map(jnp.asarray, (of(x, i),)), of(y, i), rows)
            norms.append(sum(float((a**2).sum()) for a in jax.tree.leaves(g)) ** 0.5)
    np.testing.assert_allclose(per_agent["lower_gradient"], norms, rtol=1e-5)
    expected = np.mean(np.square(norms)) ** 0.5
    np.testing.assert_allclose(measures["lower_gradient"], expected, rtol=1e-5)


@pytest.mark.wide
def test_agents_with_fewer_rows_than_the_sample_use_all_theirs():
    rng = np.random.default_rng(1)
    rows = [{"a": rng.normal(size=(n, 2)).astype("float32")} for n in (5, 40)]
    loss = lambda x, y, rows: jnp.mean((rows["a"] @ y - x) ** 2)
    problem = diamond.Problem(
        loss, loss, lambda key: (jnp.zeros(()), jnp.ones(2)), rows, rows, convex=False
    )
    x, y = jnp.zeros(2), jnp.ones((2, 2))
    over = AgentStatistics(2, 2)
    arguments = problem.objectives(4), problem.stack("valid"), (), x, y, None, over
    _, per_agent = measure_on_samples(*arguments)
    shuffled = [problem.rows["valid"][i]["a"].astype(float) for i in range(2)]
    expected = [(a[:20].sum(1) ** 2).mean() for a in shuffled]
    np.testing.assert_allclose(per_agent["upper_loss"], expected, rtol=1e-5)


@pytest.mark.wide
def test_metrics_and_groups_of_agents():
    count = {"share": lambda x, y, rows: jnp.mean((rows["b"] > 0).astype(float))}
    problem = network_problem(rows=30, agents=AGENTS, metrics=count)
    x, y = point(problem)
    at_once, in_turn = (
        measure(problem, x, y, 4, tuple(problem.metrics.items()), size)[0] for size in (None, 1)
    )
    expected = np.mean([(first(problem, "valid", i, 20)["b"] > 0).mean() for i in range(AGENTS)])
    np.testing.assert_allclose(at_once["share"], expected, rtol=1e-6)
    for name, value in at_once.items():
        np.testing.assert_allclose(in_turn[name], value, rtol=1e-4, atol=1e-6)


def test_descent_of_a_quadratic_lies_between_one_step_and_the_minimum():
    curvature = np.array([1.0, 4.0, 9.0])
    value = lambda y: 0.5 * jnp.sum(curvature * y**2)
    y = jnp.array([1.0, -2.0, 0.5])
    descent = jax.jit(lambda y: descend(value, jax.grad(value), y))(y)
    start = float(value(y))
    square = float(np.sum((curvature * np.asarray(y)) ** 2))
    np.testing.assert_allclose(descent.first, start, rtol=1e-6)
    np.testing.assert_allclose(descent.square, square, rtol=1e-6)
    assert 0 <= float(descent.last) < start - 0.1 * 0.1 / 9 * square
    at_minimum = descend(value, jax.grad(value), jnp.zeros(3))
    assert float(at_minimum.first) == float(at_minimum.last) == 0


@pytest.mark.wide
def test_value_gap_falls_as_the_lower_level_is_solved():
    problem = network_problem(rows=10, agents=AGENTS, convex=False)
    network = diamond.network.complete(AGENTS)
    algorithm = diamond.f2sa(batch=10, alpha=0.0, beta=0.1)
    run = diamond.simulate(problem, network, algorithm, 500, every=500)
    gap, gradient = run.history["value_gap"], run.history["lower_gradient"]
    assert 0 <= gap[-1] < 0.2 * gap[0]
    assert gradient[-1] < 0.5 * gradient[0]
    assert run.best.upper_loss == run.history["upper_loss"].min()


@pytest.mark.wide
def test_common_lower_level_is_measured_at_the_mean_of_y():
    problem = network_problem(rows=30, agents=AGENTS, lower_level="common")
    x, y = point(problem)
    measures, per_agent = measure(problem, x, y, 4)
    mean = jax.tree.map(lambda a: np.asarray(a, np.float64).mean(0), y)
    losses = []
    for i in range(AGENTS):
        rows = first(problem, "train", i, 10)
        weights = 1 / (1 + np.exp(-np.asarray(x[i], np.float64)))[rows["group"]]
        losses.append((weights * error(mean, rows)).mean())
    np.testing.assert_allclose(measures["lower_loss"], np.mean(losses), rtol=1e-5)
    assert measures["value_gap"] > 0 and "lower_loss" not in per_agent
    spread = sum(
        ((np.asarray(a, np.float64) - np.asarray(a, np.float64).mean(0)) ** 2).sum()
        for a in jax.tree.leaves(y)
    )
    np.testing.assert_allclose(measures["y_consensus"], spread, rtol=1e-5)


@pytest.mark.wide
def test_stopping_and_names_use_sampled_measures_without_a_solution():
    problem = network_problem(convex=False)
    network, algorithm = diamond.network.complete(2), diamond.f2sa(batch=4, alpha=0.0, beta=0.05)
    run = diamond.simulate(problem, network, algorithm, 50, every=1, stop={"upper_loss": 1e3})
    assert run.rounds == 0 and "upper_loss" in run.message
    run = diamond.simulate(problem, network, algorithm, 2, every=1, measure=["upper_loss"])
    assert "upper_loss" in run.history and "value_gap" not in run.history
    with pytest.raises(ValueError, match="stop needs metric"):
        diamond.simulate(problem, network, algorithm, 2, stop={"metric": 1.0})


@pytest.mark.wide
def test_memory_of_a_measurement_is_that_of_a_mini_batch(monkeypatch):
    monkeypatch.setattr(sampled_measures, "ROWS", 1_024)
    monkeypatch.setattr(sampled_measures, "LOWER_ROWS", 1_024)
    problem = network_problem(width=4_000, rows=1_024, agents=1, convex=False)
    x, y = jax.tree.map(lambda a: a[None], problem.start(0))
    over, sizes = AgentStatistics(1, 1), {}
    for batch in (16, 1_024):
        program = jax.jit(
            lambda problem, rows, x, y: measure_on_samples(problem, rows, (), x, y, None, over)
        )
        arguments = problem.objectives(batch), problem.stack("valid"), x, y
        memory = program.lower(*arguments).compile().memory_analysis()
        sizes[batch] = memory.temp_size_in_bytes
    assert sizes[16] < 0.1 * sizes[1_024]


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_the_loss_may_have_more_digits_than_y(kind):
    """Rows and x in float64 make a float64 loss of a float32 y."""
    y = {"w": jnp.array([1.0, -2.0], kind)}
    value = lambda y: jnp.sum(jnp.array([1.0, 4.0], "float64") * y["w"] ** 2) / 2
    descent = jax.jit(lambda y: descend(value, jax.grad(value), y))(y)
    assert descent.first.dtype == descent.last.dtype == jnp.float64
    assert descent.first == 8.5 and descent.square == 65.0 and 0 < descent.last < 1
