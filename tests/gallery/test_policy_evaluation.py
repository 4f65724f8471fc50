"""Policy evaluation, against its closed form; where a run ends, and what the truth is."""

import numpy as np
import pytest
from exact_solution import solve_exactly
from fast_compilation import skip_loss_checks
from helpers import final_progress, ring

import diamond
from diamond.gallery import policy_evaluation


def test_the_closed_form_is_that_of_the_losses_and_a_run_ends_there():
    made = policy_evaluation(agents=3, states=6, features=3, visits=4, discount=0.7)
    x = np.random.default_rng(2).normal(size=3)
    y, gradient = solve_exactly(made, x)
    np.testing.assert_allclose(y, made.lower_solution(x), atol=1e-10)
    np.testing.assert_allclose(gradient, made.gradient(x), atol=1e-10)
    best = made.minimizer()
    np.testing.assert_allclose(made.gradient(best), 0, atol=1e-12)
    algorithm = diamond.sparkle(alpha=0.3, beta=2.0, delta=2.0, batch=24)
    state = final_progress(made, ring(3), algorithm, 600).state
    np.testing.assert_allclose(state.x, np.tile(best, (3, 1)), atol=1e-6)
    found = made.metrics["value_error"](best, y, made.rows["valid"][0])
    np.testing.assert_allclose(found, np.mean((made.features @ best - made.values) ** 2))


@pytest.mark.quick
def test_many_visits_and_all_features_find_the_values_of_the_process(monkeypatch):
    skip_loss_checks(monkeypatch)
    made = policy_evaluation(agents=2, states=5, features=5, visits=20_000, discount=0.6)
    np.testing.assert_allclose(made.features @ made.minimizer(), made.values, atol=0.05)
    assert np.abs(made.values).max() > 0.5


@pytest.mark.quick
def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(ValueError, match="features = 7 of 4 states; give at most one a state"):
        policy_evaluation(states=4, features=7)
    with pytest.raises(ValueError, match="give 0 to below 1"):
        policy_evaluation(discount=1.0)
