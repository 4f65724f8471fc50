"""Steps where a channel damps mixing: what the rule takes is of (1 - gamma) I + gamma M."""

from types import SimpleNamespace

import numpy as np
import pytest

from diamond import network, schedule
from diamond.auto import step_sizes
from diamond.network import channels
from diamond.network.spectrum import tracking_limit
from diamond.numbers.open_numbers import next_refresh, refreshes

pytestmark = pytest.mark.quick


def noisy(made, gamma):
    return made.through(channels.noise(snr=20), gamma=gamma)


def test_a_damped_ring_has_the_eigenvalues_of_the_closed_form():
    """The Laplacian of a ring has 2 - 2 cos(2 pi k / m), at most 4; M = I - V / 6."""
    survives = lambda k, gamma: 1 - gamma * (2 - 2 * np.cos(2 * np.pi * k / 6)) / 6
    for gamma in (1.0, 0.3, 0.01):
        made = noisy(network.ring(6), gamma).damped()
        assert made.lam == pytest.approx(survives(1, gamma), rel=1e-9)
        assert made.least == pytest.approx(survives(3, gamma), rel=1e-9)
        assert made.damping == 1 and made.edges == network.ring(6).edges
        np.testing.assert_allclose(made.matrix.sum(0), 1.0)
    plain = network.ring(6)
    assert plain.damped() is plain


def test_a_damped_one_way_ring_and_a_damped_sequence():
    """R = (I + P) / 2 with the roots of unity for eigenvalues of P."""
    made = noisy(network.one_way_ring(5), 0.4).damped()
    wanted = abs(0.6 + 0.4 * (1 + np.exp(2j * np.pi / 5)) / 2)
    assert made.lam == pytest.approx(wanted, rel=1e-9)
    turns = network.one_peer(4).through(channels.drops(0.1), gamma=0.5).damped()
    product = np.eye(4)
    for one in network.one_peer(4).rounds:
        product = (0.5 * np.eye(4) + 0.5 * one.matrix) @ product
    second = np.sort(np.abs(np.linalg.eigvals(product)))[-2]
    assert turns.lam == pytest.approx(second ** (1 / len(turns.rounds)), rel=1e-6)


def rate(made, round, monkeypatch):
    """How fast y in common follows, where curvature does not slow it down."""
    monkeypatch.setattr(step_sizes, "_condition", lambda setting: 1 / step_sizes.MARGIN)
    problem = SimpleNamespace(lower_level="common")
    setting = SimpleNamespace(problem=problem, network=made, round=round)
    return step_sizes._rate(setting, 1, "gossip")


def test_y_in_common_follows_as_slowly_as_mixing_is_damped(monkeypatch):
    gap = 1 - network.ring(6).lam
    assert rate(network.ring(6), 0, monkeypatch) == pytest.approx(0.5 * gap)
    assert rate(noisy(network.ring(6), 0.3), 0, monkeypatch) == pytest.approx(0.5 * 0.3 * gap)
    fading = noisy(network.ring(6), schedule.power(0.5, 1.0, 1.0))  # 0.5 / (1 + t)
    for t, later in ((0, 25), (25, 50), (70, 100)):
        wanted = 0.5 * 0.5 / (1 + later) * gap
        assert rate(fading, t, monkeypatch) == pytest.approx(wanted, rel=1e-5)
    looks = refreshes(10_000)
    assert [next_refresh(t) for t in looks[:-1]] == looks[1:] and next_refresh(0) == looks[0]


def test_tracking_over_damped_one_way_links_is_as_stable_as_their_matrices():
    made = network.one_way_ring(6)
    setting = SimpleNamespace(network=noisy(made, 0.2), round=0)
    mixed = [0.8 * np.eye(6) + 0.2 * m.toarray() for m in (made.weights, made.shares)]
    rows, columns = (type(made.weights)(m) for m in mixed)
    wanted = 0.5 * tracking_limit([rows], [columns], early=False)
    assert step_sizes._stable(setting, "gt", "atc") == pytest.approx(wanted)
    assert wanted != pytest.approx(0.5 * made.tracking["atc"])
