"""The portfolio, against its closed form: where the compositional method and `solve` end."""

import numpy as np
import pytest
from exact_solution import solve_exactly
from helpers import final_progress, ring

import diamond
from diamond.gallery import portfolio

MADE = dict(agents=3, assets=3, periods=12, risk=1.5)


@pytest.fixture(scope="module")
def problem():
    return portfolio(**MADE)


def test_the_closed_form_is_that_of_the_losses(problem):
    x = np.random.default_rng(2).normal(size=3)
    y, gradient = solve_exactly(problem, x)
    np.testing.assert_allclose(y, problem.lower_solution(x), atol=1e-10)
    np.testing.assert_allclose(gradient, problem.gradient(x), atol=1e-10)
    gains = problem.rows["train"][1]["r"] @ x
    np.testing.assert_allclose(y[1], [gains.mean(), (gains**2).mean()])
    np.testing.assert_allclose(problem.variances(x)[1], gains.var())
    utility = np.mean(
        [1.5 / 2 * (r["r"] @ x).var() - (r["r"] @ x).mean() for r in problem.rows["train"]]
    )
    upper = [problem.upper(x, one, None) for one in problem.lower_solution(x)]
    np.testing.assert_allclose(np.mean(upper), utility)


def test_scgd_ends_at_the_solution(problem):
    best = np.tile(problem.minimizer(), (3, 1))
    assert np.abs(best).max() > 0.1
    method = diamond.scgd(alpha=0.1, beta=0.5, batch=12)
    state = final_progress(problem, ring(3), method, 1500).state
    np.testing.assert_allclose(state.x, best, atol=1e-8)


@pytest.mark.wide
def test_solve_ends_there_too(problem):
    run = diamond.solve(problem, ring(3), accuracy="exact")
    np.testing.assert_allclose(run.x, np.tile(problem.minimizer(), (3, 1)), atol=1e-3)


@pytest.mark.quick
@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"periods": 3}, "periods = 3 of 3 assets; give more"),
        ({"risk": 0.0}, "risk = 0.0 must be positive"),
        ({"agents": 0}, "agents = 0"),
    ],
)
def test_what_has_no_solution_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        portfolio(**MADE | wrong)
