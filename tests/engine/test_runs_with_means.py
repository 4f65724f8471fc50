"""Runs of a method that sends exact means: the same bits by all backends, or refused."""

import jax
import numpy as np
import pytest
from exact_mean_method import MeanMethod
from fast_compilation import skip_loss_checks
from helpers import final_progress, flat, quad, same_bits

import diamond
from diamond.core.sampling import key
from diamond.engine.lanes import LaneBackend
from diamond.engine.multi_device import MultiDevice
from diamond.engine.round_program import initial_progress
from diamond.network.channels import drops, quantized

NETWORK = diamond.network.erdos_renyi(5, 0.6, seed=2)


@pytest.fixture(autouse=True)
def without_loss_checks(monkeypatch):
    skip_loss_checks(monkeypatch)


def on_devices(problem, method, rounds, devices):
    backend = MultiDevice(problem, NETWORK, method.batch, "blocks", devices)
    first = initial_progress(method, *problem.start(0), problem.agents)
    after, _ = backend.run_until(method, key(0), backend.scatter_progress(first), rounds)
    return backend.gather(after.state)


def in_lanes(problem, methods, rounds):
    backend = LaneBackend(problem, NETWORK, 3, (1, len(methods)), sampling="blocks")
    first = backend.initial_progress(backend.combine(methods), [problem.start(0) for _ in methods])
    after, _ = backend.run_rounds(backend.combine(methods), [0] * len(methods), first, rounds)
    return [backend.progress_of_run(after, i).state for i in range(len(methods))]


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["mean", "around"])
def test_all_agents_and_backends_have_the_same_means(kind):
    problem, method = quad(agents=5), MeanMethod(0.1, kind)
    alone = final_progress(problem, NETWORK, method, 6).state
    for leaf in jax.tree.leaves(alone.mean):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
    two, three = (on_devices(problem, method, 6, devices) for devices in (1, 2))
    assert same_bits(two, three)
    np.testing.assert_allclose(flat(two), flat(alone), atol=1e-14)
    lanes = in_lanes(problem, [method, MeanMethod(0.2, kind)], 6)
    np.testing.assert_allclose(flat(lanes[0]), flat(alone), atol=1e-14)


@pytest.mark.wide
def test_equal_gradients_have_means_of_equal_bits_on_all_backends():
    """Float32 counts of rows: sums that are exact in any backend."""
    problem, method = quad(agents=5), MeanMethod()
    states = [
        final_progress(problem, NETWORK, method, 2).state,
        on_devices(problem, method, 2, 3),
        in_lanes(problem, [method, method], 2)[1],
    ]
    assert all((np.asarray(state.mean["rows"]) == 1).all() for state in states)


@pytest.mark.wide
def test_the_mean_is_that_of_one_agent_with_all_rows():
    problem = quad(agents=5)
    run = diamond.simulate(problem, NETWORK, MeanMethod(0.1), 3, every=3)
    states = [final_progress(problem, NETWORK, MeanMethod(0.1), t).state for t in (2, 3)]
    step = states[0].x - states[1].x
    np.testing.assert_allclose(step, states[1].mean["gradient"], atol=1e-15)
    np.testing.assert_array_equal(run.last_x, states[1].x)
    assert np.ptp(run.last_x, axis=0).max() == 0


@pytest.mark.wide
def test_lost_messages_leave_the_mean_exact():
    problem, ring = quad(agents=5), diamond.network.ring(5)
    exact, lossy = (
        final_progress(problem, net, MeanMethod(), 4).state
        for net in (ring, ring.through(drops(0.3)))
    )
    assert same_bits(exact, lossy)


@pytest.mark.parametrize(
    "network",
    [
        diamond.network.ring(5).through(quantized(8)),
        diamond.network.ring(5).masked(),
        diamond.network.complete(5).robust(),
        diamond.network.ring(5).with_liar(1, "noise"),
        diamond.network.ring(5).every(2),
    ],
)
def test_networks_without_exact_means_are_refused(network):
    with pytest.raises(ValueError, match="cannot combine exact means with"):
        diamond.simulate(quad(agents=5), network, MeanMethod(), 2)


def test_a_mean_travels_alone():
    with pytest.raises(ValueError, match="in two stages"):
        diamond.simulate(quad(agents=5), NETWORK, MeanMethod(0.1, "mixed"), 2)
