"""Regression against ridge regressions in closed form, and the slopes of their validation error."""

import numpy as np
import pytest
from exact_solution import solve_exactly
from fast_compilation import skip_loss_checks

from diamond.gallery import regression

RANDOM = np.random.default_rng(5)
P = 3


def rows(count):
    a = RANDOM.normal(size=(count, P))
    return {"a": a, "b": a @ [1.0, -2.0, 0.0] + 1 + 0.1 * RANDOM.normal(size=count)}


TRAIN, VALID = [rows(8), rows(8)], [rows(5), rows(5)]


def ridge(x, train):
    """(w; b) = (Z'Z / n + diag(exp(x), 0) / p)^-1 Z't / n, Z = (a, 1): b is not penalized."""
    z = np.column_stack([train["a"], np.ones(len(train["b"]))])
    penalty = np.diag([*np.exp(x) / P, 0.0])
    return np.linalg.solve(z.T @ z / len(z) + penalty, z.T @ train["b"] / len(z))


def objective(x):
    """1/m sum_i f_i(x, y_i*(x))."""
    off = [
        v["a"] @ (y := ridge(x, t))[:P] + y[P] - v["b"] for t, v in zip(TRAIN, VALID, strict=True)
    ]
    return np.mean([np.mean(each**2) for each in off])


@pytest.mark.wide
def test_the_models_and_the_hypergradient_are_those_of_the_closed_form(monkeypatch):
    skip_loss_checks(monkeypatch)
    x = np.array([0.5, -1.0, 0.2])
    y, gradient = solve_exactly(regression(TRAIN, VALID), x)
    for agent, train in enumerate(TRAIN):
        found = [*y["w"][agent], y["b"][agent]]
        np.testing.assert_allclose(found, ridge(x, train), atol=1e-9)
    turns = 1e-6 * np.eye(P)
    slopes = [(objective(x + turn) - objective(x - turn)) / 2e-6 for turn in turns]
    np.testing.assert_allclose(gradient, slopes, atol=1e-8)
