"""Standard errors of what is measured on a sample of a stream cover what all its rows would say."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import agent_of
from ridge_streams import (
    AGENTS,
    NOISE,
    WEIGHTS,
    draw,
    exact_lower_solution,
    loss,
    ridge,
    stream_problem,
    upper_loss,
)

import diamond
from diamond.metrics.agent_statistics import AgentStatistics
from diamond.metrics.exact_measures import _measure
from diamond.metrics.lower_solution import AgentOracle, MeanOracle
from diamond.metrics.standard_errors import (
    DifferentialCoefficients,
    MeasuredPoints,
    _agent_variances,
    _directions,
    _lower_error,
)

ROWS, SEEDS = 100, 100
X = np.array([[0.1, 0.2]] * AGENTS) + np.arange(AGENTS)[:, None] / 10
Y = np.full((AGENTS, 2), 0.5)


def measured(problem, x, y):
    """The measures on SEEDS samples, as one program."""
    inputs, rows = problem.objectives(), problem.stack(problem.measured_part)

    def sample(key):
        number = jnp.arange(AGENTS)
        keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i), ROWS))(number)
        return jax.vmap(jax.vmap(draw, (0, None)))(keys, number)

    def look(key):
        one, two, three = (sample(k) for k in jax.random.split(key, 3))
        part = lambda held, data: replace(held, sample=replace(held.sample, data=data))
        train = part(inputs.train, one)
        valid = train if inputs.lower is None else part(inputs.valid, two)
        details = replace(inputs, train=train, valid=valid), replace(rows, data=three)
        return _measure(*details, tuple(problem.metrics.items()), x, y, None)[0]

    with without_optimizations():
        return jax.device_get(jax.jit(jax.vmap(look))(jax.random.split(jax.random.key(1), SEEDS)))


def truth(level):
    mean = X.mean(0)
    slope = [
        (upper_loss(mean + e, level) - upper_loss(mean - e, level)) / 2e-5 for e in 1e-5 * np.eye(2)
    ]
    pooled = exact_lower_solution(mean, WEIGHTS.mean(0))
    best = (
        [exact_lower_solution(x, w) for x, w in zip(X, WEIGHTS)]
        if level == "personal"
        else [pooled] * AGENTS
    )
    error = ((Y - WEIGHTS) ** 2).sum(1).mean() + NOISE**2
    return {
        "upper_loss": upper_loss(mean, level),
        "stationarity": np.square(slope).sum(),
        "lower_error": ((best - Y) ** 2).sum(),
        "local_loss": error,
        "error": error,
    }


def covers(result, expected):
    """About 95 of 100: outside of 88 to 100, less than once in two hundred."""
    for name, true in expected.items():
        off, error = np.abs(result[name] - true), result[name + "_se"]
        assert 88 <= (off < 1.96 * error).sum() <= 100, name
        spread = result[name].std()
        assert 0.75 < error.mean() / spread < 1.5, name  # not by being large


@pytest.mark.wide
@pytest.mark.parametrize("level", ["personal", "common"])
def test_they_cover_the_truth_of_a_lower_level(level):
    result = measured(stream_problem(level, evaluation=ROWS), X, Y)
    covers(result, truth(level))
    assert (result["metric_se"] >= result["stationarity_se"]).all()


def test_they_cover_the_truth_without_one():
    rows = diamond.stream(draw, AGENTS, evaluation=ROWS)
    alone = lambda x, rows: loss(x, x, rows)
    problem = diamond.Problem(alone, None, lambda key: jnp.zeros(2), rows, metrics={"error": alone})
    result = measured(problem, X, None)
    mean = X.mean(0)
    upper_loss_at = lambda x: ((x - WEIGHTS) ** 2).sum(1).mean() + NOISE**2
    mean_error = np.mean([((x - w) ** 2).sum() + NOISE**2 for x, w in zip(X, WEIGHTS)])
    slope = 2 * (mean - WEIGHTS.mean(0))
    covers(
        result,
        {"upper_loss": upper_loss_at(mean), "stationarity": slope @ slope, "error": mean_error},
    )
    assert (result["lower_error_se"] == 0).all()


def part(seed, rows):
    random = np.random.default_rng(seed)
    return {"a": random.normal(size=(rows, 2)), "b": random.normal(size=rows)}


def sampled(objectives):
    """The same, as if its rows were a sample."""
    parts = {name: getattr(objectives, name) for name in ("train", "valid")}
    return replace(objectives, **{n: replace(rows, is_sample=True) for n, rows in parts.items()})


def solution(x, *agents):
    """y*(x) of agents (rows, their weights) with one lower level, in closed form."""
    heavy = [weights[:, None] * rows["a"] for rows, weights in agents]
    square = sum(a.T @ rows["a"] for a, (rows, _) in zip(heavy, agents)) / len(agents)
    right = sum(a.T @ rows["b"] for a, (rows, _) in zip(heavy, agents)) / len(agents)
    return jnp.linalg.solve(square + jnp.diag(jnp.exp(x)), right)


def spread(influences):
    """The variance of a sum of means over rows, from the derivative by the weight of each row."""
    return sum(jnp.var(variances, ddof=1) / len(variances) for variances in influences)


@pytest.mark.wide
def test_influences_are_derivatives_by_the_weights_of_rows():
    """dq = alpha df + v dh + u dy*."""
    train, valid, x = part(1, 6), part(2, 5), jnp.array([0.3, -0.4])
    alpha, v, u = 0.7, jnp.array([1.0, -2.0]), jnp.array([0.5, 1.5])

    def quantity(lower, upper):
        fit = lambda x: upper @ (valid["a"] @ solution(x, (train, lower)) - valid["b"]) ** 2
        return alpha * fit(x) + v @ jax.grad(fit)(x) + u @ solution(x, (train, lower))

    @jax.jit
    def both(objectives_of_agent, lower, upper):
        coefficients = DifferentialCoefficients(jnp.array([alpha]), v[None], u[None])
        result = _agent_variances(
            objectives_of_agent, x, solution(x, (train, lower)), coefficients
        )[0]
        return result, spread(jax.grad(quantity, (0, 1))(lower, upper))

    objectives_of_agent = sampled(agent_of(ridge([train], [valid]).objectives(1), 0))
    with without_optimizations():
        result, expected = both(objectives_of_agent, jnp.full(6, 1 / 6), jnp.full(5, 1 / 5))
    assert float(result) == pytest.approx(float(expected), rel=1e-7)


def test_at_a_common_solution_the_error_is_that_of_every_agent():
    """y_i = y* = y + e: sum_i ||y* - y_i||^2 = m |e|^2, of which sqrt(3) m E |e|^2 is given."""
    train, x, m = [part(1, 6), part(3, 6)], jnp.array([0.3, -0.4]), 2
    weights = [jnp.full(6, 1 / 6)] * m

    @jax.jit
    def both(problem):
        def mean(function, *inputs):
            variances = jax.vmap(
                lambda objectives_of_agent: function(AgentOracle(objectives_of_agent), *inputs)
            )(problem)
            return jax.tree.map(lambda a: a.mean(0), variances)

        y = solution(x, *zip(train, weights))
        everywhere = lambda a: jnp.tile(a, (m, 1))
        points = MeasuredPoints(everywhere(x), everywhere(y), x, y, y, x, lambda a: a)
        inputs = problem, points, AgentStatistics(m, m), MeanOracle(mean, 12)
        along = lambda d: lambda *weights: d @ solution(x, *zip(train, weights))
        variances = [spread(jax.grad(along(d), (0, 1))(*weights)) for d in _directions(1, x)]
        return _lower_error(*inputs), jnp.sqrt(3.0) * m * sum(variances) / len(variances)

    with without_optimizations():
        result, expected = both(sampled(ridge(train, train, "common").objectives(1)))
    assert float(result) == pytest.approx(float(expected), rel=1e-7)


@pytest.mark.wide
def test_rows_that_are_all_there_is_have_none():
    problem = stream_problem()
    stored = diamond.Problem(
        problem.upper,
        problem.lower,
        problem.init,
        list(problem.rows["train"]),
        list(problem.rows["valid"]),
    )
    assert not stored.stack("train").is_sample and problem.stack("train").is_sample
    result = jax.eval_shape(
        lambda o, r: _measure(o, r, (), X, Y, None)[0], stored.objectives(), stored.stack("valid")
    )
    assert not [name for name in result if name.endswith("_se")]
