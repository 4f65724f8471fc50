"""Mixing before the step or after it: the same fixed point, other steps that are stable."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from fast_compilation import skip_divergence_diagnosis, skip_measures
from helpers import (
    ALGORITHMS,
    ESTIMATORS,
    TRACKED,
    build,
    final_progress,
    flat,
    progress_by_round,
    quad,
    ring,
)

import diamond
from diamond.network import from_graph

STEPS = dict(alpha=0.05, beta=0.2, eta=0.3, gamma=0.6, batch=3, period=3)
EXACT = dict(eta=1.0, gamma=1.0, batch=12, period=1, hypergradient=ESTIMATORS["exact"])
still = lambda **options: quad(noise=0.0, **options)


@pytest.mark.wide
@pytest.mark.parametrize("name", TRACKED)
def test_adapt_then_combine_written_out(name):
    """x_{t+1} = M (x_t - alpha u_t) with u_t = M u_{t-1} + p_t - p_{t-1}, from the p of the run."""
    network = diamond.network.path(4, "metropolis")
    algorithm = build(name, hypergradient=ESTIMATORS["neumann_sum"], order="atc", **STEPS)
    states = [s.state for s in progress_by_round(quad(), network, algorithm, 6)]
    u, old = np.zeros_like(states[0].x), np.zeros_like(states[0].x)
    for now, after in pairwise(states):
        u = network.matrix @ u + after.p - old
        old = np.asarray(after.p)
        np.testing.assert_allclose(after.x, network.matrix @ (now.x - 0.05 * u), atol=1e-12)
        np.testing.assert_allclose(np.mean(after.u, 0), np.mean(after.p, 0), atol=1e-12)
    assert np.ptp(after.u, axis=0).min() > 1e-3  # not because all agents agree


@pytest.mark.wide
def test_without_tracking_the_step_along_p_is_mixed():
    algorithm = build("dsgd", hypergradient=ESTIMATORS["neumann_sum"], order="atc", **STEPS)
    early = build("dsgd", hypergradient=ESTIMATORS["neumann_sum"], **STEPS)
    average = from_graph(nx.complete_graph(4), np.full((4, 4), 0.25))
    late, first = (final_progress(quad(), average, a, 1).state for a in (algorithm, early))
    np.testing.assert_allclose(late.x, np.broadcast_to(np.mean(first.x, 0), (4, 3)), atol=1e-14)
    assert np.ptp(first.x, axis=0).min() > 1e-4


@pytest.mark.wide
@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_agent_does_not_see_the_order(name):
    problem = quad(agents=1)
    given = dict(hypergradient=ESTIMATORS["neumann_sum"], **STEPS)
    paper, late = (
        final_progress(problem, ring(1), build(name, order=order, **given), 8).state
        for order in ("paper", "atc")
    )
    np.testing.assert_allclose(late.x, paper.x, atol=1e-13)
    np.testing.assert_allclose(late.y, paper.y, atol=1e-13)


def stable(order, alpha):
    """Whether GT-SGD without noise ends at the minimizer."""
    algorithm = build("gt_sgd", alpha=alpha, beta=0.6, order=order, **EXACT)
    quadratic = still()
    network = diamond.network.ring(4, "max_degree")
    try:
        run = diamond.simulate(quadratic, network, algorithm, 3000, every=3000)
    except diamond.Diverged:
        return False
    return bool(np.abs(flat(run.x) - quadratic.minimizer()).max() < 1e-6)


@pytest.mark.wide
def test_both_orders_end_at_the_minimizer_and_the_later_one_takes_larger_steps(monkeypatch):
    skip_divergence_diagnosis(monkeypatch)
    ladder = 0.02 * 2.0 ** np.arange(8)[::-1]
    largest = {
        order: next(alpha for alpha in ladder if stable(order, alpha)) for order in ("paper", "atc")
    }
    assert largest["atc"] >= 2 * largest["paper"]


@pytest.mark.wide
def test_the_traffic_is_the_same(monkeypatch):
    skip_measures(monkeypatch)
    sent = [
        diamond.simulate(
            quad(),
            ring(4),
            build("diamond", hypergradient=ESTIMATORS["neumann"], order=order, **STEPS),
            5,
        ).history["bytes"]
        for order in ("paper", "atc")
    ]
    np.testing.assert_array_equal(*sent)


def test_another_order_is_refused():
    with pytest.raises(ValueError, match="no order 'cta'; there are 'paper' and 'atc'"):
        diamond.gt_sgd(order="cta")
