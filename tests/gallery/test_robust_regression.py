"""Robust regression, against its closed form: where minimax methods and `solve` end."""

import jax
import numpy as np
import pytest
from exact_solution import solve_exactly
from helpers import final_progress, flat, ring

import diamond
from diamond.gallery import robust_regression
from diamond.gallery.stored_predictions import describe_model, stored_prediction

RANDOM = np.random.default_rng(4)


def rows(agent, count=8):
    a = RANDOM.normal(size=(count, 2))
    return {"a": a, "b": a @ [1.0, -1.0] + agent * a[:, 0] + 0.3 * RANDOM.normal(size=count)}


@pytest.fixture(scope="module")
def problem():
    train, valid, test = ([rows(i) for i in (0, 0, 1)] for _ in range(3))
    return robust_regression(train, valid, test, penalty=0.5)


def test_the_closed_form_is_that_of_the_losses(problem):
    x = {"w": RANDOM.normal(size=2), "b": RANDOM.normal()}
    y, gradient = solve_exactly(problem, x)
    np.testing.assert_allclose(y, problem.lower_solution(x), atol=1e-10)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), gradient, problem.gradient(x)
    )
    value = lambda x: problem.losses(x).mean() + problem.losses(x).var() / (2 * problem.penalty)
    slope = (value(x | {"b": x["b"] + 1e-5}) - value(x | {"b": x["b"] - 1e-5})) / 2e-5
    np.testing.assert_allclose(problem.gradient(x)["b"], slope, rtol=1e-7)
    own = problem.rows["train"][2]
    predictions = problem.predict(x, y, own)
    np.testing.assert_allclose(predictions, own["a"] @ x["w"] + x["b"])
    assert stored_prediction(describe_model("robust_regression", {}), 2, 0) == problem.predict
    square = np.mean((predictions - own["b"]) ** 2)
    np.testing.assert_allclose(problem.losses(x)[2], square / 2)
    np.testing.assert_allclose(problem.metrics["test_loss"](x, y, own), square)


def test_the_worst_loss_is_below_that_of_least_squares(problem):
    best = problem.minimizer()
    np.testing.assert_allclose(np.append(*problem.gradient(best).values()), 0, atol=1e-12)
    rows = [problem.rows["train"][i] for i in range(3)]
    least_squares = robust_regression(rows, rows, penalty=1e9).minimizer()
    assert problem.losses(best).max() < 0.95 * problem.losses(least_squares).max()
    weights = 1 + problem.lower_solution(best)
    assert weights.min() > 0 and weights.argmax() == problem.losses(best).argmax() == 2


@pytest.mark.wide(keep=["gda"])
@pytest.mark.parametrize("name", ["gda", "optimistic_gda"])
def test_minimax_methods_end_at_the_solution(problem, name):
    method = getattr(diamond, name)(alpha=0.1, beta=0.5, lower_level="common", batch=16)
    state = final_progress(problem, ring(3), method, 1500).state
    best = problem.minimizer()
    np.testing.assert_allclose(flat(state.x), np.tile([best["b"], *best["w"]], (3, 1)), atol=1e-8)
    np.testing.assert_allclose(state.y, np.tile(problem.lower_solution(best), (3, 1)), atol=1e-8)


@pytest.mark.wide
def test_solve_ends_there_too(problem):
    run = diamond.solve(problem, ring(3), accuracy="exact")
    best = problem.minimizer()
    np.testing.assert_allclose(flat(run.x), np.tile([best["b"], *best["w"]], (3, 1)), atol=1e-3)


@pytest.mark.quick
def test_a_price_that_is_none_and_a_level_that_is_none_are_refused():
    with pytest.raises(ValueError, match="penalty = 0; give a number above 0"):
        robust_regression([rows(0)], [rows(0)], penalty=0)
    with pytest.raises(ValueError, match="'none'; there are 'personal' and 'common'"):
        diamond.gda(lower_level="none")
