"""Actor-critic on a random game, against the Bellman equation over all joint actions in float64."""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_solution import solve_exactly
from fast_compilation import skip_loss_checks
from helpers import final_progress, ring
from scipy import special

import diamond
from diamond.gallery import actor_critic

SIZES = {"agents": 3, "states": 4, "actions": 2}


@cache
def small(**options):
    return actor_critic(**SIZES | {"discount": 0.7} | options)


def bellman(game, policy):
    """P (s, s') and r (s, i) of `policy` (agents, states, actions), one joint action by one."""
    m, states, actions = policy.shape
    P, r = np.zeros((states, states)), np.zeros((states, m))
    for s, joint in product(range(states), product(range(actions), repeat=m)):
        chance = np.prod([policy[j, s, a] for j, a in enumerate(joint)])
        for j, a in enumerate(joint):
            P[s] += chance * game.transitions[s, j, a] / m
            r[s] += chance * game.rewards[:, s, j, a] / m
    return P, r


def values(game, policy):
    """V_i(s) of every agent."""
    P, r = bellman(game, policy)
    return np.linalg.solve(np.eye(len(P)) - game.discount * P, r)


def team_return(game, x):
    return game.initial_law @ values(game, special.softmax(x, -1)).mean(1)


@pytest.mark.wide
def test_the_hypergradient_is_the_policy_gradient_of_the_mean_return():
    game = small()
    x = np.random.default_rng(1).normal(size=(3, 4, 2))
    critics, gradient = solve_exactly(game, x)
    np.testing.assert_allclose(critics, values(game, special.softmax(x, -1)).T, atol=1e-9)
    np.testing.assert_allclose(game.returns(x), game.initial_law @ np.transpose(critics), atol=1e-9)
    slopes = np.zeros_like(x)
    for where in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[where] = 1e-5
        slopes[where] = (team_return(game, x + step) - team_return(game, x - step)) / 2e-5
    np.testing.assert_allclose(gradient, -slopes, atol=1e-9)
    assert np.abs(slopes).max() > 1e-2


def test_fewer_features_than_states_leave_the_least_bellman_error():
    game = small(features=2)
    x = np.random.default_rng(1).normal(size=(3, 4, 2))
    P, r = bellman(game, special.softmax(x, -1))
    phi = np.asarray(game.rows["train"][0]["phi"])
    phi = phi[np.argsort(game.rows["train"][0]["s"])]
    wanted = np.linalg.lstsq(phi - game.discount * P @ phi, r, rcond=None)[0]
    np.testing.assert_allclose(solve_exactly(game, x)[0], wanted.T, atol=1e-9)
    np.testing.assert_allclose(phi.T @ phi, np.eye(2), atol=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(3))
def test_no_joint_policy_is_better_than_the_planned_one(seed, monkeypatch):
    skip_loss_checks(monkeypatch)
    game = actor_critic(agents=3, states=2, actions=2, discount=0.9, seed=seed)
    best, chosen = game.optimal_policy()
    each = product(range(2), repeat=6)
    found = [
        game.initial_law @ values(game, np.eye(2)[np.reshape(plan, (3, 2))]).mean(1)
        for plan in each
    ]
    np.testing.assert_allclose(best, max(found), rtol=1e-12)
    planned = values(game, np.eye(2)[chosen]).mean(1)
    np.testing.assert_allclose(game.initial_law @ planned, best, rtol=1e-12)


@pytest.mark.wide
def test_agents_learn_the_best_policy_together_and_not_alone(float32):
    game = small()
    exact = diamond.hypergradient.conjugate_gradient(4)
    algorithm = diamond.diamond(10.0, 2.0, 1.0, 1.0, batch=4, hypergradient=exact)
    found = final_progress(game, ring(3), algorithm, 300).state
    best, _ = game.optimal_policy()
    worth = lambda x: game.metrics["return"](x, None, None)
    assert worth(jnp.zeros((3, 4, 2))) < 0.5 * best and worth(found.x.mean(0)) > 0.95 * best
    np.testing.assert_allclose(found.y @ game.initial_law, game.returns(found.x.mean(0)), atol=1e-3)

    @jax.jit
    def alone(x):  # everyone for itself: its own actions, its own rewards
        slopes = jax.jacobian(game.returns)(x)
        own = np.arange(3)
        return x.at[own].add(10.0 * slopes[own, own])

    x = jnp.zeros((3, 4, 2))
    for _ in range(300):
        x = alone(x)
    assert game.returns(x).mean() < 0.9 * best


@pytest.mark.quick
@pytest.mark.parametrize(
    "option, message",
    [
        ({"discount": 1.0}, "discount = 1.0; give 0 to below 1"),
        ({"features": 7}, "features = 7 of 4 states; give at most one a state"),
        ({"actions": 1}, "actions"),
    ],
)
def test_what_is_no_game_is_refused(option, message):
    with pytest.raises(ValueError, match=message):
        actor_critic(**SIZES | option)
