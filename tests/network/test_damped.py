"""Mixing that a channel damps: (1 - gamma) I + gamma M has the eigenvalues of the closed form."""

from types import SimpleNamespace

import numpy as np
import pytest

from diamond import network
from diamond.algorithms.parts import learned_algorithm
from diamond.network import channels
from diamond.network.spectrum import tracking_limit

pytestmark = pytest.mark.quick


def noisy(made, gamma):
    return made.through(channels.noise(snr=20), gamma=gamma)


def test_a_damped_ring_has_the_eigenvalues_of_the_closed_form():
    """The Laplacian of a ring has 2 - 2 cos(2 pi k / m), at most 4; M = I - V / 6."""
    survives = lambda k, gamma: 1 - gamma * (2 - 2 * np.cos(2 * np.pi * k / 6)) / 6
    for gamma in (1.0, 0.3, 0.01):
        made = noisy(network.ring(6), gamma).with_damped_weights()
        assert made.lam == pytest.approx(survives(1, gamma), rel=1e-9)
        assert made.min_eigenvalue == pytest.approx(survives(3, gamma), rel=1e-9)
        assert made.damping == 1 and made.edges == network.ring(6).edges
        np.testing.assert_allclose(made.matrix.sum(0), 1.0)
    plain = network.ring(6)
    assert plain.with_damped_weights() is plain


def test_a_damped_one_way_ring_and_a_damped_sequence():
    """R = (I + P) / 2 with the roots of unity for eigenvalues of P."""
    made = noisy(network.one_way_ring(5), 0.4).with_damped_weights()
    wanted = abs(0.6 + 0.4 * (1 + np.exp(2j * np.pi / 5)) / 2)
    assert made.lam == pytest.approx(wanted, rel=1e-9)
    turns = network.one_peer(4).through(channels.drops(0.1), gamma=0.5).with_damped_weights()
    product = np.eye(4)
    for one in network.one_peer(4).phases:
        product = (0.5 * np.eye(4) + 0.5 * one.matrix) @ product
    second = np.sort(np.abs(np.linalg.eigvals(product)))[-2]
    assert turns.lam == pytest.approx(second ** (1 / len(turns.phases)), rel=1e-6)


def test_a_tracked_y_over_damped_one_way_links_takes_half_the_limit_of_their_matrices():
    made = network.one_way_ring(6)
    context = SimpleNamespace(network=noisy(made, 0.2), round=0)
    mixed = [0.8 * np.eye(6) + 0.2 * m.toarray() for m in (made.weights, made.shares)]
    rows, columns = (type(made.weights)(m) for m in mixed)
    limit = 0.5 * tracking_limit([rows], [columns], sends_before_gradient=False)
    share = learned_algorithm._stable_share(context, 1e9).value
    assert share == pytest.approx(learned_algorithm.MARGIN * limit)
    assert limit != pytest.approx(0.5 * made.tracking_limits["atc"])
