"""Fair weights, against dense numpy in float64; an agent whose labels are noise loses its own."""

import numpy as np
import pytest
from exact_solution import solve_exactly
from helpers import final_progress, ring
from softmax_regression import reference

import diamond
from diamond.gallery import fair_weights

RANDOM = np.random.default_rng(6)
P, Q, REGULARIZER = 3, 3, 0.01
TRUTH = 2 * RANDOM.normal(size=(P, Q))


def rows(count, noise=False):
    a = RANDOM.normal(size=(count, P))
    b = np.argmax(a @ TRUTH, 1)
    return {"a": a, "b": RANDOM.permutation(b) if noise else b}


TRAIN = [rows(30, noise=True), rows(24), rows(36)]
VALID = [rows(n) for n in (20, 30, 40)]


@pytest.mark.wide
def test_the_gradient_is_that_of_dense_algebra_and_noise_loses_its_weight():
    problem = fair_weights(TRAIN, VALID, classes=Q, regularizer=REGULARIZER)
    x, agent = np.array([0.5, 0.3, 0.2]), np.repeat(np.arange(3), [30, 24, 36])
    y, gradient = solve_exactly(problem, x)
    wanted, effect = reference(3 * x[agent], TRAIN, VALID, Q, REGULARIZER)
    np.testing.assert_allclose(np.vstack([y["w"], y["b"]]), wanted, atol=1e-9)
    np.testing.assert_allclose(gradient, 3 * np.bincount(agent, effect), atol=1e-9)

    algorithm = diamond.diamond_common(0.05, 0.3, 0.3, 0.5, 0.5, batch=12, order="atc")
    weights = final_progress(problem, ring(3), algorithm, 300).state.x.mean(0)
    assert weights[0] < 0.02 < 0.2 < weights[1:].min()
    np.testing.assert_allclose(weights.sum(), 1, atol=1e-9)
