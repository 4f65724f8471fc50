"""RLHF, against the best policy in closed form: the losses, and where `solve` ends."""

import jax
import numpy as np
import pytest
from exact_solution import solve_exactly
from fast_compilation import skip_loss_checks
from helpers import ring
from scipy import optimize, special

import diamond
from diamond.gallery import rlhf

SMALL = dict(agents=3, prompts=4, answers=3, features=2, seed=3)  # l has one minimum


@pytest.fixture(scope="module")
def problem():
    return rlhf(**SMALL)


def softmax(a):
    return np.exp(a) / np.exp(a).sum(-1, keepdims=True)


def test_the_losses_are_their_formulas(problem):
    random = np.random.default_rng(3)
    x, y = random.normal(size=2), random.normal(size=(4, 3))
    rows = problem.rows["valid"][1]
    upper = lower = wins = 0.0
    for row, s in enumerate(rows["s"]):
        rewards, reference = rows["a"][row] @ x, softmax(rows["reference"][row])
        policy = softmax(rows["reference"][row] + y[s])
        best = softmax(rows["reference"][row] + rewards / 0.5)
        lower += (special.rel_entr(best, policy).sum() + y[s].mean() ** 2 / 2) / 4
        for a, b in np.ndindex(3, 3):
            first = 1 / (1 + np.exp(rewards[b] - rewards[a]))
            votes = np.array([rows["share"][row, a, b], rows["share"][row, b, a]])
            loss = special.rel_entr(votes, [first, 1 - first]).sum()
            drawn = policy[a] * policy[b] * (a != b) / (1 - policy @ policy)
            upper += drawn * loss / 4
            wins += policy[a] * reference[b] * rows["preference"][row, a, b] / 4
    found = problem.upper(x, y, rows), problem.lower(x, y, rows)
    np.testing.assert_allclose(found, [upper + 0.005 * x @ x, lower], rtol=1e-10)
    np.testing.assert_allclose(problem.metrics["win_rate"](x, y, rows), wins, rtol=1e-6)
    np.testing.assert_allclose(problem.predict(x, y, rows).sum(-1), 1, rtol=1e-6)


def test_votes_are_shares_of_pairs(problem):
    shares = problem.shares
    np.testing.assert_allclose(shares + np.swapaxes(shares, -1, -2), 1)
    np.testing.assert_allclose(shares * 40, np.round(shares * 40), atol=1e-9)  # 1/2 of a and a
    assert np.abs(rlhf(**SMALL, votes=100_000).shares - problem.preferences).max() < 0.02


def test_the_best_policy_and_the_gradient_are_those_of_the_losses(problem):
    x = np.array([0.7, -0.4])
    y, gradient = solve_exactly(problem, x)
    np.testing.assert_allclose(y, problem.lower_solution(x), atol=1e-8)
    np.testing.assert_allclose(softmax(problem.reference + y), problem.best_policy(x), atol=1e-8)
    np.testing.assert_allclose(gradient, jax.grad(problem.value)(x), atol=1e-7)
    gain = lambda policy: (
        np.sum(policy * (problem.features @ x), -1)
        - 0.5 * np.sum(special.rel_entr(policy, np.exp(problem.reference)), -1)
    )
    best = np.asarray(problem.best_policy(x))
    others = np.random.default_rng(1).dirichlet(np.full(3, 0.3), size=(20, *best.shape[:2]))
    assert np.all(gain(best) > np.max([gain(0.9 * best + 0.1 * other) for other in others], 0))


@pytest.mark.wide
def test_solve_ends_at_the_least_value(problem):
    value = jax.jit(jax.value_and_grad(problem.value))
    best = optimize.minimize(
        lambda x: [np.asarray(a, float) for a in value(x)], np.zeros(2), jac=True
    )
    run = diamond.solve(problem, ring(3), accuracy="exact")
    np.testing.assert_allclose(run.x, np.tile(best.x, (3, 1)), atol=1e-2)
    wins = problem.win_rate(problem.best_policy(best.x))
    np.testing.assert_allclose(run.history["win_rate"][-1], wins, atol=1e-3)
    assert wins > 0.6
    np.testing.assert_allclose(problem.win_rate(np.exp(problem.reference)), 0.5, atol=1e-6)


def test_networks_have_the_same_losses_on_their_scores():
    networks = rlhf(**SMALL, width=5)
    x, y = networks.start(0)
    rows = networks.rows["valid"][0]
    scores = lambda net: np.tanh(rows["a"] @ net["w"] + net["b"]) @ net["out"]
    square = lambda net: sum(np.sum(leaf**2) for leaf in jax.tree.leaves(net))
    best = softmax(rows["reference"] + scores(x) / 0.5)
    divergences = special.rel_entr(best, softmax(rows["reference"] + scores(y))).sum(-1)
    expected = np.mean(divergences + scores(y).mean(-1) ** 2 / 2) + 0.005 * square(y)
    np.testing.assert_allclose(networks.lower(x, y, rows), expected, rtol=1e-6)
    assert networks.best_policy(x).shape == (3, 4, 3)


@pytest.mark.quick
def test_what_has_no_policy_is_refused(monkeypatch):
    skip_loss_checks(monkeypatch)
    with pytest.raises(ValueError, match="answers = 1"):
        rlhf(answers=1)
    with pytest.raises(ValueError, match="temperature = 0; give a number above 0"):
        rlhf(temperature=0)


def test_solve_moves_away_from_a_start_that_solves_the_lower_level(float32):
    """g_y is 0 there but for rounding, which says nothing of how far x may move at first."""
    run = diamond.solve(rlhf(**SMALL | {"seed": 0}), ring(3), progress=False)
    loss = run.history["upper_loss"]
    assert run.message.startswith("converged") and np.nanmin(loss) < 0.7 * loss[0]
