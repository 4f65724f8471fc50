"""Distillation against the ridge regression of its synthetic rows, in closed form."""

import numpy as np
import pytest
from exact_solution import solve_exactly
from fast_compilation import skip_loss_checks

from diamond.gallery import distillation

RANDOM = np.random.default_rng(3)
P, Q, EACH, PENALTY = 3, 2, 2, 0.2


def rows(count):
    a = RANDOM.normal(size=(count, P))
    return {"a": a, "b": (a[:, 0] > 0).astype(int)}


TRAIN, VALID = [rows(4), rows(4)], [rows(5), rows(5)]


def closed(x):
    """(w; b) = (Z'Z / n + penalty)^-1 Z'E / n, Z = (x, 1): a model of the synthetic rows alone."""
    z = np.column_stack([x, np.ones(len(x))])
    e = np.eye(Q)[np.repeat(np.arange(Q), EACH)]
    return np.linalg.solve(z.T @ z / len(x) + PENALTY * np.eye(P + 1), z.T @ e / len(x))


def objective(x):
    """1/m sum_i f_i(x, y*(x)), over all rows that an agent has."""
    found = closed(x)
    losses = []
    for t, v in zip(TRAIN, VALID):
        a, b = np.concatenate([t["a"], v["a"]]), np.concatenate([t["b"], v["b"]])
        off = np.column_stack([a, np.ones(len(a))]) @ found - np.eye(Q)[b]
        losses.append((off**2).sum(1).mean() / 2)
    return np.mean(losses)


@pytest.mark.wide
def test_the_model_and_the_hypergradient_are_those_of_the_closed_form(monkeypatch):
    skip_loss_checks(monkeypatch)
    problem = distillation(TRAIN, VALID, classes=Q, each=EACH, regularizer=PENALTY)
    x = RANDOM.normal(size=(Q * EACH, P))
    y, gradient = solve_exactly(problem, x)
    for agent in range(2):
        found = np.vstack([y["w"][agent], y["b"][agent]])
        np.testing.assert_allclose(found, closed(x), atol=1e-10)
    step = 1e-6
    slopes = [
        (objective(x + step * turn) - objective(x - step * turn)) / (2 * step)
        for turn in np.eye(x.size).reshape(-1, *x.shape)
    ]
    np.testing.assert_allclose(np.ravel(gradient), slopes, atol=1e-8)


@pytest.mark.quick
def test_rows_that_cannot_be_distilled_are_refused():
    with pytest.raises(ValueError, match=r"regularizer = 0; give a number above 0"):
        distillation(TRAIN, VALID, classes=Q, regularizer=0)
    with pytest.raises(ValueError, match="each"):
        distillation(TRAIN, VALID, classes=Q, each=0)
