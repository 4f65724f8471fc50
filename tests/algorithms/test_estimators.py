"""Plain, momentum and recursive estimates: the formulas, on numbers, and their statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ESTIMATORS, progress_by_round, quad, ring

import diamond
from diamond.algorithms.parts.gradient_estimators import EstimatorInputs, Momentum, Plain, Recursive
from diamond.algorithms.parts.variables import Point
from diamond.core.cost_counter import Cost
from diamond.core.sampling import Sample
from diamond.schedules.step_schedules import constant

SAMPLE = Sample(1, 2, 3, jnp.array([4]), jnp.uint32(5))
NOW, LAST, OLD = Point(3.0, 5.0), Point(2.0, 7.0), Point(10.0, 20.0)


def gradients(points, sample):
    """h = 2 x + y, g_y = x - 3 y, and 100 more on all rows; one gradient a point."""
    extra = 100.0 if sample.upper is None else 0.0
    each = [Point(2 * at.x + at.y + extra, at.x - 3 * at.y) for at in points]
    return each, Cost(1, len(points), 0, 0)


def given(t, arrays=(NOW, LAST, OLD)):
    return EstimatorInputs(*arrays, None, t, SAMPLE)


def test_plain():
    result, _, cost = Plain(False)(gradients, given(4))
    assert result == Point(11, -12) and cost == (1, 1, 0, 0)
    assert Plain(True)(gradients, given(4))[0] == Point(111, -12)


@pytest.mark.quick
@pytest.mark.parametrize("t, eta, gamma", [(4, 0.25, 0.5), (0, 0.25, 0.5), (4, 9.0, -9.0)])
def test_momentum_is_eqs_6_and_7(t, eta, gamma):
    handed = []

    def watched(points, sample):
        handed.append((points, sample))
        return gradients(points, sample)

    arrays = jax.tree.map(jnp.asarray, (NOW, LAST, OLD))
    result, _, cost = Momentum(constant(eta), constant(gamma))(watched, given(t, arrays))
    e, g = (1, 1) if t == 0 else np.clip((eta, gamma), 0, 1)
    assert result[0] == pytest.approx(11 + (1 - e) * (10 - 11))  # h(last) = 2 * 2 + 7
    assert result[1] == pytest.approx(-12 + (1 - g) * (20 + 19))  # g_y(last) = 2 - 21
    assert handed == [([NOW, LAST], SAMPLE)]  # both points at once, on the one sample of the round
    assert cost == (1, 2, 0, 0)


@pytest.mark.quick
def test_spider_resets_every_period_and_recurs_in_between():
    arrays = jax.tree.map(jnp.asarray, (NOW, LAST, OLD))
    for t in range(7):
        (p, v, _), _, cost = Recursive(3)(gradients, given(t, arrays))
        if t % 3 == 0:
            assert (p, v) == (111, -12) and cost == (1, 1, 0, 0)
        else:
            assert (p, v) == (10 + 11 - 11, 20 - 12 + 19) and cost == (1, 2, 0, 0)


@pytest.mark.wide
def test_without_noise_momentum_is_the_exact_gradient():
    q = quad(noise=0.0)
    algorithm = diamond.diamond(0.05, 0.2, 0.3, 0.1, 1, ESTIMATORS["exact"])
    for progress in progress_by_round(q, ring(4), algorithm, 12)[1:]:
        state = progress.state
        x, y, _ = map(np.asarray, state.last[0])  # p_t and v_t belong to (x_t, y_t)
        np.testing.assert_allclose(state.p, q.surrogate(x, y), rtol=1e-11, atol=1e-12)
        v = np.einsum("ivy,iy->iv", q.A, y) - np.einsum("iyx,ix->iy", q.B, x) - q.b
        np.testing.assert_allclose(state.v, v, rtol=1e-11, atol=1e-12)
    assert np.abs(state.x).min() > 1e-3  # it did move


@pytest.mark.wide
def test_at_frozen_iterates_the_variance_tends_to_eta_over_2_minus_eta():
    q = quad(noise=1.0)
    eta, gamma, rounds, skip = 0.5, 0.2, 2500, 50
    algorithm = diamond.diamond(0.0, 0.0, eta, gamma, 1, ESTIMATORS["exact"])
    result = progress_by_round(q, ring(4), algorithm, rounds, seed=1)[skip:]
    p, v = (np.stack([getattr(s.state, name) for s in result]) for name in ("p", "v"))
    assert not np.asarray(result[-1].state.x).any() and not np.asarray(result[-1].state.y).any()
    zero = np.zeros((4, 4))
    rows = {part: [r["point"] for r in q.rows[part]] for part in ("train", "valid")}
    # One sample of h at zero is c - B' A^-1 a_n, of g_y it is -b_n.
    h = [-(a - a.mean(0)) @ np.linalg.solve(A, B) for a, A, B in zip(rows["valid"], q.A, q.B)]
    sigma_p = np.mean([(e**2).sum(1).mean() for e in h])
    sigma_v = np.mean([((b - b.mean(0)) ** 2).sum(1).mean() for b in rows["train"]])
    spread = lambda a, mean: ((a - mean) ** 2).sum(-1).mean()
    ratio_p = spread(p, q.surrogate(zero[:, :3], zero)) / sigma_p
    ratio_v = spread(v, -q.b) / sigma_v
    assert ratio_p == pytest.approx(eta / (2 - eta), rel=0.1)
    assert ratio_v == pytest.approx(gamma / (2 - gamma), rel=0.15)
