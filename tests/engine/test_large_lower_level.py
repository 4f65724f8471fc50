"""Runs whose y is large: rounds overwrite the state, and other states live on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diamond
from diamond.algorithms.parts import directions
from diamond.core.sampling import key
from diamond.engine import single_device
from diamond.engine.forecast import forecast
from diamond.engine.rollback_policy import HostRollbackPolicy
from diamond.engine.round_program import donating_run_rounds, run_rounds_in_place
from diamond.engine.single_device import SingleDevice
from diamond.engine.single_driver import SingleDriver
from diamond.hardware.device_memory import memory_need
from diamond.metrics.divergence_error import Diverged
from diamond.metrics.measures import parse_measures
from diamond.problem import bilevel_problem
from diamond.schedules.deferred import ResolutionContext, resolve
from tests.problem.test_networks_below import network_problem

NETWORK = diamond.network.complete(2)
ALGORITHM = diamond.f2sa(batch=4, alpha=0.01, beta=0.02)


@pytest.fixture
def large(monkeypatch):
    """A problem that counts as large, though small enough for a fast test."""
    monkeypatch.setattr(bilevel_problem, "LARGE", 10)
    return network_problem(convex=False)


def leaves(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves((run.last_x, run.last_y, run.state))]


@pytest.mark.wide
def test_overwritten_states_give_the_same_bits(monkeypatch):
    runs = {}
    for limit in (10, 20_000):
        monkeypatch.setattr(bilevel_problem, "LARGE", limit)
        problem = network_problem(convex=False)
        assert problem.is_large == (limit == 10)
        runs[limit] = diamond.simulate(problem, NETWORK, ALGORITHM, 12, every=4)
    for a, b in zip(leaves(runs[10]), leaves(runs[20_000]), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(
        runs[10].history["upper_loss"], runs[20_000].history["upper_loss"], rtol=1e-5
    )


@pytest.mark.wide
def test_rounds_delete_the_state_before(large):
    backend = SingleDevice(large, NETWORK, 4, "blocks")
    measures = parse_measures(None, large)
    driver = SingleDriver(large, NETWORK, ALGORITHM, 0, "blocks", backend, measures)
    before = driver.progress.state.y
    driver.run_checked_rounds(3)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
    assert driver.t == 3 and not any(leaf.is_deleted() for leaf in jax.tree.leaves(driver.progress))


@pytest.mark.wide
def test_best_point_is_on_the_host_and_stays_valid(large):
    run = diamond.simulate(large, NETWORK, ALGORITHM, 12, every=4)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves((run.best.x, run.best.y)))
    index = int(np.argmin(run.history["upper_loss"]))
    again = diamond.simulate(large, NETWORK, ALGORITHM, int(run.history["round"][index]))
    for a, b in zip(jax.tree.leaves(run.best.y), jax.tree.leaves(again.last_y), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.wide
def test_resumed_run_has_the_same_bits_and_leaves_the_first_run_intact(large):
    whole = diamond.simulate(large, NETWORK, ALGORITHM, 12, every=4)
    half = diamond.simulate(large, NETWORK, ALGORITHM, 6, every=4)
    values = [leaf.copy() for leaf in leaves(half)]
    resumed = diamond.simulate(large, NETWORK, ALGORITHM, 12, every=4, resume=half)
    for a, b in zip(leaves(whole), leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(values, leaves(half), strict=True):
        np.testing.assert_array_equal(a, b)


def test_saved_states_are_host_arrays_and_a_rollback_returns_to_them(large):
    backend = SingleDevice(large, NETWORK, 4, "blocks")
    measures = parse_measures(None, large)
    inputs = large, NETWORK, ALGORITHM, 0, "blocks", backend, measures
    driver = SingleDriver(*inputs, shrink=True)
    policy = driver.rollback
    assert isinstance(policy, HostRollbackPolicy)
    first = [np.array(leaf) for leaf in jax.tree.leaves(driver.progress.state)]
    driver.run_checked_rounds(100)
    expected = [np.array(leaf) for leaf in jax.tree.leaves(driver.progress.state)]
    driver.run_checked_rounds(103)
    assert policy.start.state is None
    assert all(
        isinstance(leaf, np.ndarray) for state in policy.recent for leaf in jax.tree.leaves(state)
    )
    largest = max(
        np.linalg.norm(np.concatenate([a[i].ravel() for a in expected[:3]])) for i in (0, 1)
    )
    np.testing.assert_allclose(policy.norms, [largest], rtol=1e-5)
    for t, state in ((100, expected), (0, first)):  # the start is not stored, but made again
        target = policy.pop_target()
        assert int(target.t) == t
        for a, b in zip(jax.tree.leaves(target.state), state, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_broken_run_says_so_and_has_its_history(large):
    algorithm = diamond.f2sa(batch=4, alpha=1e3, beta=1e8)
    with pytest.raises(Diverged, match="divide beta by ten") as error:
        diamond.simulate(large, NETWORK, algorithm, 200, every=50, on_divergence="stop")
    run = error.value.run
    assert run.status == "diverged" and len(run.history["round"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((run.x, run.y)))
    assert f"are those of round {run.best.round}, its best" in run.message
    assert "on_divergence='shrink'" in run.message and run.snapshot is None


@pytest.mark.wide
def test_forecast_of_a_large_problem(large):
    estimate = forecast(large, NETWORK, ALGORITHM, 100)
    assert estimate.samples > 0 and estimate.seconds > 0


def test_bfloat16_reaches_y_and_masters_stay_float32():
    dtypes = set()

    def lower(x, y, rows):
        dtypes.add(str(jax.tree.leaves(y)[0].dtype))
        return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) * (1 + x**2)

    rng = np.random.default_rng(0)
    rows = [{"a": rng.normal(size=(8, 3)), "b": rng.normal(size=8)} for _ in range(2)]
    rows = jax.tree.map(lambda a: a.astype("float32"), rows)
    init = lambda key: (jnp.zeros((), "float32"), jnp.ones(3, "float32"))
    problem = diamond.Problem(lower, lower, init, rows, rows, convex=False)
    dtypes.clear()
    runs = [
        diamond.simulate(problem, NETWORK, ALGORITHM, 20, precision=precision)
        for precision in (None, "bf16")
    ]
    assert "bfloat16" in dtypes
    assert {leaf.dtype.name for leaf in jax.tree.leaves((runs[1].x, runs[1].y))} == {"float32"}
    np.testing.assert_allclose(runs[1].y, runs[0].y, atol=0.02)
    assert np.abs(np.asarray(runs[1].y) - np.asarray(runs[0].y)).max() > 0


@pytest.mark.filterwarnings("ignore:the lower level is not strongly convex")
@pytest.mark.parametrize("name", ["f2sa_fused", "soba"])
def test_agents_in_turn_end_where_agents_side_by_side_do(monkeypatch, name):
    """One agent and one pass at a time, each overwriting its y and z, against all at once.

    A batch is all rows in another order: passes of products take their rows for g_y too.
    """
    batch = 12  # rows of an agent
    algorithm = getattr(diamond, name)(batch=batch, alpha=0.01, beta=0.02, delta=0.02)
    if name == "f2sa_fused":
        algorithm = diamond.with_optimizers(algorithm, y="adam(1e-2)", z="adam(1e-2)")
    runs = []
    for limit in (10, 20_000):
        monkeypatch.setattr(bilevel_problem, "LARGE", limit)
        monkeypatch.setattr(directions, "LARGE", limit)
        monkeypatch.setattr(single_device, "IN_TURN", {"cpu": limit})
        problem = network_problem(convex=False)
        options = {"backend": SingleDevice(problem, NETWORK, batch, "blocks")}
        in_turn = options["backend"].rounds.program is run_rounds_in_place
        assert in_turn == (limit == 10)
        runs.append(diamond.simulate(problem, NETWORK, algorithm, 8, every=8, **options))
    for a, b in zip(leaves(runs[0]), leaves(runs[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.wide
def test_agents_in_turn_need_the_activations_of_one_agent_and_one_pass(monkeypatch, float32):
    monkeypatch.setattr(directions, "LARGE", 10)

    def loss(x, y, rows):
        a = rows
        for _ in range(6):
            a = jnp.tanh(a @ y)
        return jnp.mean(a**2) * jnp.exp(x) + jnp.mean(y**2)

    rows = [np.ones((512, 16), "float32")] * 4
    init = lambda key: (jnp.float32(0.0), jnp.eye(16, dtype="float32"))
    problem = diamond.Problem(loss, loss, init, rows, rows, convex=False)
    network = diamond.network.ring(4)
    backend = SingleDevice(problem, network, 256, "blocks")
    algorithm = diamond.f2sa_fused(batch=256, alpha=0.1, beta=0.1, delta=0.1)
    algorithm = resolve(algorithm, ResolutionContext(problem, network, 256, 0)).algorithm
    progress = backend.initial_run_progress(algorithm, *problem.start(0))
    inputs = algorithm, backend.working, backend.mixing, key(0), progress, np.int32(1)
    in_turn, side_by_side = (
        memory_need(program.lower(*inputs, sampling="blocks", size=4).compile()).extra
        for program in (run_rounds_in_place, donating_run_rounds)
    )
    activations = 6 * 256 * 16 * 4  # bytes of one agent and pass
    assert activations < in_turn < 2.5 * activations
    assert side_by_side > 4 * activations
