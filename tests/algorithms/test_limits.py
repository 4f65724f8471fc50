"""Methods that are other methods in a limit, or end where others do."""

import numpy as np
import pytest
from helpers import final_progress, flat, logistic, quad, ring

import diamond
from diamond.network import channels

GIVEN = dict(alpha=0.05, beta=0.2, delta=0.15, batch=3)
PERSONAL = dict(directions="carried", x="gossip", y="local")


def final(method, problem=None, network=None, rounds=8):
    problem = problem or logistic(lower_level=method.lower_levels[0])
    return final_progress(problem, network or ring(problem.agents), method, rounds).state


def close(one, two):
    for name in "xyz":
        a, b = getattr(one, name), getattr(two, name)
        np.testing.assert_allclose(flat(a), flat(b), rtol=1e-12, atol=1e-14)


LIMITS = {
    "fsla without momentum": (
        diamond.fsla(**GIVEN, eta=1.0),
        diamond.compose(**PERSONAL, estimator="plain", update_order="y z x", **GIVEN),
    ),
    "srba on all rows": (
        diamond.srba(**GIVEN, period=1),
        diamond.compose(**PERSONAL, estimator="full", **GIVEN),
    ),
    "br_fedbi without average": (
        diamond.br_fedbi(**GIVEN, theta=1.0),
        diamond.d_soba(**GIVEN, theta=1.0),
    ),
    "s3ldbo that skips nothing": (
        diamond.s3ldbo(**GIVEN, probability=1.0),
        diamond.sldbo(**GIVEN),
    ),
    "c2dfb with one step, on its own": (
        diamond.c2dfb(**GIVEN, inner=1),
        diamond.compose(
            "penalty", "plain", "gt", "gt", "gt", "yz x", "common", order="paper", **GIVEN
        ),
    ),
}


@pytest.mark.wide(keep=["fsla without momentum"])
@pytest.mark.parametrize("name", LIMITS)
def test_a_method_is_another_in_a_limit(name):
    one, two = map(final, LIMITS[name])
    close(one, two)


@pytest.mark.wide
def test_momentum_of_fsla_is_on_x_alone_and_matters():
    """Its y and z are those without momentum as long as x does not move."""
    still = GIVEN | {"alpha": 0.0}
    with_momentum, without = (final(diamond.fsla(**still, eta=eta)) for eta in (0.3, 1.0))
    close(with_momentum, without)
    moving = [final(diamond.fsla(**GIVEN, eta=eta)).x[0] for eta in (0.3, 1.0)]
    assert np.abs(moving[0] - moving[1]).max() > 1e-4


def test_a_snapshot_costs_rounds_their_derivatives():
    problem = quad(lower_level="common")
    some, every = (
        diamond.simulate(problem, ring(4), diamond.s3ldbo(**GIVEN, probability=p), 400, every=400)
        for p in (0.25, 1.0)
    )
    for name in ("gradients", "hvps", "jvps"):
        assert some.history[name][-1] / every.history[name][-1] == pytest.approx(0.25, abs=0.07)
    assert some.history["bytes"][-1] == every.history["bytes"][-1]


@pytest.mark.wide
def test_compressed_differences_end_where_whole_messages_do():
    problem = quad(agents=6, rows=4, noise=0.0, lower_level="common")
    method = diamond.c2dfb(0.02, 0.1, 0.1, lam=20.0, inner=3, batch=2)
    whole, few = (
        final(method, problem, network, 3000)
        for network in (ring(6), ring(6).through(channels.top(0.5)))
    )
    np.testing.assert_allclose(few.x, whole.x, atol=1e-8)


@pytest.mark.wide
def test_the_estimator_of_pzobo_leads_to_the_solution_as_its_directions_grow():
    problem = quad(agents=1, rows=4, noise=0.0)
    one = diamond.network.complete(1)
    given = dict(beta=0.4, inner=40, batch=2)
    best = problem.minimizer()
    errors = []
    for directions in (1, 400):
        alpha = diamond.schedules.power(4.0, 40.0, 1.0)
        state = final(diamond.pzobo(alpha, directions=directions, **given), problem, one, 300)
        errors.append(np.abs(np.asarray(state.x) - best).max() / np.abs(best).max())
    assert errors[1] < 0.02 and errors[1] < errors[0] < 0.5


def test_the_probability_of_a_snapshot_is_one():
    with pytest.raises(ValueError, match="probability = 0: the share of rounds"):
        diamond.s3ldbo(probability=0)
    with pytest.raises(ValueError, match="gamma = 0: the Moreau envelope"):
        diamond.sun_dsbo(gamma=0)
    with pytest.raises(ValueError, match="spread = 0 must be positive"):
        diamond.pzobo(spread=0)
