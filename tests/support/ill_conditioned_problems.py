"""Ridge regressions whose lower level is badly conditioned, with the lowest upper loss there is."""

from functools import cache

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from diamond.problem import Problem


def _fit(y, rows):
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2)


def _upper(x, y, rows):
    return _fit(y, rows)


def _scales(features, condition):
    """Of the features, so that the mean of a a^T has that condition."""
    return condition ** (-0.5 * np.arange(features) / (features - 1))


@cache
def shifted(condition=1e3, agents=5, rows=100, features=10, seed=0):
    """x is what y is pulled towards: g = fit + ||y - x||^2 / condition."""
    random, scales = np.random.default_rng(seed), _scales(features, condition)

    def lower(x, y, rows):
        return _fit(y, rows) + jnp.sum((y - x) ** 2) / condition

    truth = random.normal(size=features)
    truth_of_agent = truth + 0.3 * random.normal(size=(agents, features))

    def site(i):
        a = random.normal(size=(rows, features)) * scales
        return {"a": a, "b": a @ (truth_of_agent[i] / scales / 2) + 0.5 * random.normal(size=rows)}

    start = lambda key: (jnp.zeros(features), jnp.zeros(features))
    train, valid = ([site(i) for i in range(agents)] for _ in range(2))
    return Problem(_upper, lower, start, train, valid)


@cache
def grouped(condition=1e3, agents=4, rows=40, features=24, groups=4, seed=1):
    """One penalty a group of features: g = fit + sum_j exp(x_group(j)) y_j^2 / condition."""
    random, scales = np.random.default_rng(seed), _scales(features, condition)
    group = np.arange(features) % groups

    def lower(x, y, rows):
        return _fit(y, rows) + jnp.sum(jnp.exp(x)[group] * y**2) / condition

    truth = random.normal(size=features) * (group < 2) / scales**0.5

    def site():
        a = random.normal(size=(rows, features)) * scales
        return {"a": a, "b": a @ truth + random.normal(size=rows)}

    start = lambda key: (jnp.zeros(groups), jnp.zeros(features))
    train, valid = ([site() for _ in range(agents)] for _ in range(2))
    return Problem(_upper, lower, start, train, valid)


def ridge(rows, penalties, towards):
    """argmin mean (a y - b)^2 + sum_j penalties_j (y_j - towards_j)^2, and half its Hessian."""
    a, b = np.asarray(rows["a"], float), np.asarray(rows["b"], float)
    hessian = a.T @ a / len(a) + np.diag(penalties)
    return np.linalg.solve(hessian, a.T @ b / len(a) + penalties * towards), hessian


def first_and_lowest(problem, condition=1e3):
    """The upper loss at the start, and the lowest, by BFGS on the closed form of y*(x)."""
    x0, y0 = problem.start(0)
    dimension = len(y0)

    def loss(x):
        is_shifted = len(x) == dimension
        penalties = np.ones(dimension) if is_shifted else np.exp(x)[np.arange(dimension) % len(x)]
        losses = []
        for train, valid in zip(problem.rows["train"], problem.rows["valid"]):
            y, _ = ridge(train, penalties / condition, x if is_shifted else np.zeros(dimension))
            losses.append(np.mean((valid["a"] @ y - valid["b"]) ** 2))
        return np.mean(losses)

    zero = np.zeros(len(x0))
    scale = condition**0.5 if len(x0) == dimension else 1.0  # flat directions are long
    solution = minimize(lambda u: loss(scale * u), zero, method="BFGS", options={"gtol": 1e-7})
    return loss(zero), solution.fun
