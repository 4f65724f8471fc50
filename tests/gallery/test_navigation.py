"""Navigation: the hypergradient is the policy gradient, and the plan is the best there is."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, without_optimizations

from diamond.gallery import navigation
from diamond.metrics import lower_solution

AGENTS = 2


@cache
def game():
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        return navigation(agents=AGENTS, evaluation=60)


@pytest.mark.wide
def test_the_hypergradient_is_the_gradient_of_each_agents_return():
    made = game()
    best, plan = made.optimal_policy()
    x = jnp.asarray(np.array([0.4, 0.7])[:, None, None] * plan)  # which meets no wall either

    def both(own, number, starts):
        """By the critic, and along the paths that the policy leads to."""
        y = lower_solution.solve_lower_level(own, x, jnp.zeros(15)).y
        slope = jax.grad(lambda x: -made.returns(x, starts)[number])(x)
        return own.f(x, y, None), lower_solution.hypergradient(own, x, y), slope

    problem = made.objectives()
    starts = problem.valid.data["s"]
    with without_optimizations():
        value, found, wanted = jax.jit(jax.vmap(both))(problem, jnp.arange(AGENTS), starts)
    np.testing.assert_allclose(found, wanted, atol=1e-6 * np.abs(wanted).max())
    own = [made.returns(x, s)[i] for i, s in enumerate(starts)]
    np.testing.assert_allclose(value, np.negative(own), rtol=1e-6)
    assert best > np.mean(own)


def test_the_plan_is_stationary_and_its_return_is_as_said():
    made = game()
    best, plan = made.optimal_policy()
    corners = (
        np.sqrt(1 / 3) * np.array(np.meshgrid(*[[-1, 1]] * 2 * AGENTS)).reshape(2 * AGENTS, -1).T
    )
    mean = jax.jit(lambda x: made.returns(x, corners).mean())  # exact for squares: E s s' = I / 3
    value, slope = jax.jit(jax.value_and_grad(mean))(jnp.asarray(plan))
    assert value == pytest.approx(best, rel=1e-9)
    assert np.abs(slope).max() < 1e-8
    nobody = mean(jnp.zeros(plan.shape))
    assert best > nobody + 0.5


def test_alone_nobody_moves():
    """Nobody is paid for where it goes itself: its own move only costs."""
    made = game()
    starts = np.random.default_rng(1).uniform(-1, 1, (50, 2 * AGENTS))
    own = jnp.arange(AGENTS)
    slopes = jax.jit(jax.jacobian(lambda x: made.returns(x, starts)))
    slope = slopes(jnp.zeros((AGENTS, 2, 2 * AGENTS + 1)))
    assert np.abs(slope[own, own]).max() == 0 < np.abs(slope).max()


def test_a_path_is_of_steps_of_the_policy():
    made = game()
    x, start = 0.1 * np.ones((AGENTS, 2, 5)), np.array([0.5, 0.0, -0.5, 0.9])
    path = made.path(x, start, 3)
    np.testing.assert_allclose(path[0], start)
    after = start + 0.1 * (start.sum() + 1)
    assert after.max() > 1
    np.testing.assert_allclose(path[1], np.minimum(after, 1), rtol=1e-6)  # a wall
    assert np.abs(made.path(10 * x, start)).max() == 1
    for wrong in ({"agents": 1}, {"discount": 1.0}, {"effort": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            navigation(**wrong)
