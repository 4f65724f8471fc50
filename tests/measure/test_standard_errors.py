"""Standard errors of what is measured on a sample of a stream cover what all its rows would say."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import quickly
from streaming import AGENTS, NOISE, WEIGHTS, draw, endless, loss, solved, upper_loss

import diamond
from diamond.measure.measures import _measure

ROWS, SEEDS = 100, 100
X = np.array([[0.1, 0.2]] * AGENTS) + np.arange(AGENTS)[:, None] / 10
Y = np.full((AGENTS, 2), 0.5)


def measured(problem, x, y):
    """The measures on SEEDS samples, as one program."""
    given, rows = problem.objectives(), problem.stack(problem.measured)

    def sample(key):
        number = jnp.arange(AGENTS)
        keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i), ROWS))(number)
        return jax.vmap(jax.vmap(draw, (0, None)))(keys, number)

    def look(key):
        one, two, three = (sample(k) for k in jax.random.split(key, 3))
        part = lambda held, data: replace(held, sample=replace(held.sample, data=data))
        train = part(given.train, one)
        valid = train if given.lower is None else part(given.valid, two)
        about = replace(given, train=train, valid=valid), replace(rows, data=three)
        return _measure(*about, tuple(problem.metrics.items()), x, y, None)[0]

    with quickly():
        return jax.device_get(jax.jit(jax.vmap(look))(jax.random.split(jax.random.key(1), SEEDS)))


def truth(level):
    mean = X.mean(0)
    slope = [
        (upper_loss(mean + e, level) - upper_loss(mean - e, level)) / 2e-5 for e in 1e-5 * np.eye(2)
    ]
    pooled = solved(mean, WEIGHTS.mean(0))
    best = [solved(x, w) for x, w in zip(X, WEIGHTS)] if level == "personal" else [pooled] * AGENTS
    error = ((Y - WEIGHTS) ** 2).sum(1).mean() + NOISE**2
    return {
        "upper_loss": upper_loss(mean, level),
        "stationarity": np.square(slope).sum(),
        "lower_error": ((best - Y) ** 2).sum(),
        "local_loss": error,
        "error": error,
    }


def covers(found, wanted):
    """About 95 of 100: outside of 88 to 100, less than once in two hundred."""
    for name, true in wanted.items():
        off, error = np.abs(found[name] - true), found[name + "_se"]
        assert 88 <= (off < 1.96 * error).sum() <= 100, name
        spread = found[name].std()
        assert 0.75 < error.mean() / spread < 1.5, name  # not by being large


@pytest.mark.parametrize("level", ["personal", "common"])
def test_they_cover_the_truth_of_a_lower_level(level):
    found = measured(endless(level, evaluation=ROWS), X, Y)
    covers(found, truth(level))
    assert (found["metric_se"] >= found["stationarity_se"]).all()


def test_they_cover_the_truth_without_one():
    rows = diamond.stream(draw, AGENTS, evaluation=ROWS)
    alone = lambda x, rows: loss(x, x, rows)
    problem = diamond.Problem(alone, None, lambda key: jnp.zeros(2), rows, metrics={"error": alone})
    found = measured(problem, X, None)
    mean = X.mean(0)
    at = lambda x: ((x - WEIGHTS) ** 2).sum(1).mean() + NOISE**2
    own = np.mean([((x - w) ** 2).sum() + NOISE**2 for x, w in zip(X, WEIGHTS)])
    slope = 2 * (mean - WEIGHTS.mean(0))
    covers(found, {"upper_loss": at(mean), "stationarity": slope @ slope, "error": own})
    assert (found["lower_error_se"] == 0).all()


def test_rows_that_are_all_there_is_have_none():
    problem = endless()
    stored = diamond.Problem(
        problem.upper,
        problem.lower,
        problem.init,
        list(problem.rows["train"]),
        list(problem.rows["valid"]),
    )
    assert not stored.stack("train").sampled and problem.stack("train").sampled
    found = jax.eval_shape(
        lambda o, r: _measure(o, r, (), X, Y, None)[0], stored.objectives(), stored.stack("valid")
    )
    assert not [name for name in found if name.endswith("_se")]
