"""The runtime: chunks, seeds, recompilation, divergence."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ESTIMATORS, build, final_progress, quad, ring, same_bits

import diamond
from diamond import Diverged
from diamond import hypergradient as hg
from diamond.core.sampling import key
from diamond.engine import round_program as _round
from diamond.engine.round_program import run_rounds
from diamond.network.mixing.mixer import mixer
from diamond.problem import Problem
from diamond.schedules.deferred import ResolutionContext, resolve

OPTIONS = dict(alpha=0.05, beta=0.2, eta=0.3, gamma=0.3, batch=3, period=4)


def simulate(
    name="diamond", problem=None, rounds=15, seed=0, every=7, sampling="blocks", **options
):
    algorithm = build(name, **OPTIONS | {"hypergradient": ESTIMATORS["neumann_sum"]} | options)
    problem = problem or quad()
    return diamond.simulate(problem, ring(4), algorithm, rounds, seed, every, sampling)


@pytest.mark.wide
def test_chunks_of_any_length_give_the_same_bits():
    one, seven = simulate(every=1), simulate(every=7)
    assert same_bits(one.state, seven.state)
    for name, spent in one.costs.items():
        np.testing.assert_array_equal(spent, seven.costs[name])
    assert one.history["round"].tolist() == list(range(16))
    assert seven.history["round"].tolist() == [0, 7, 14, 15]
    for name in set(one.history) - {"seconds"}:
        np.testing.assert_array_equal(one.history[name][[0, 7, 14, 15]], seven.history[name])
    assert one.rounds == 15 and (np.diff(one.history["seconds"]) > 0).all()


@pytest.mark.quick
def test_the_same_seed_is_the_same_run_and_another_is_another():
    one, two, three = simulate(seed=3), simulate(seed=3), simulate(seed=4)
    assert same_bits(one.state, two.state)
    assert np.abs(one.x - three.x).max() > 1e-4
    assert (one.seed, three.seed) == (3, 4)


@pytest.mark.wide
def test_row_sampling_is_another_run_of_the_same_kind():
    blocks, rows = simulate(rounds=60), simulate(rounds=60, sampling="rows")
    assert np.abs(blocks.x - rows.x).max() > 1e-4
    q = quad()
    for run in (blocks, rows):
        assert run.history["stationarity"][-1] < 0.1 * run.history["stationarity"][0]
        assert np.linalg.norm(np.mean(run.x, 0) - q.minimizer()) < 0.5
    for cost, spent in blocks.costs.items():
        np.testing.assert_array_equal(spent, rows.costs[cost])
    assert rows.sampling == "rows"


def test_no_rounds_measure_the_start():
    run = simulate(rounds=0)
    assert run.history["round"].tolist() == [0] and run.rounds == 0
    assert not np.asarray(run.x).any() and all((c == 0).all() for c in run.costs.values())
    assert "0 rounds of 4 agents" in repr(run)


def test_entries_are_handed_out_as_they_are_made():
    seen = []
    algorithm = build("diamond", hypergradient=ESTIMATORS["neumann_sum"], **OPTIONS)
    run = diamond.simulate(quad(), ring(4), algorithm, 15, every=7, on_evaluation=seen.append)
    assert [entry["round"] for entry in seen] == [0, 7, 14, 15]
    assert [entry["metric"] for entry in seen] == run.history["metric"].tolist()


@pytest.mark.wide
def test_only_a_new_program_compiles():
    simulate()
    programs = lambda: sum(one._cache_size() for one in run_rounds.programs.values())
    before = programs()
    simulate(seed=9)
    simulate(rounds=4, every=3)
    simulate(alpha=0.01, beta=0.1, eta=0.9, gamma=0.8)
    simulate(problem=quad(seed=5))  # new data of the same shapes
    simulate(hypergradient=hg.neumann_sum(5, 2.5))
    path = diamond.network.path(4)
    algorithm = build("diamond", hypergradient=ESTIMATORS["neumann_sum"], **OPTIONS)
    diamond.simulate(quad(), path, algorithm, 3)
    assert programs() == before
    simulate(batch=2)
    assert programs() > before  # the count does count


TRACED = []


def ridge():
    """The paper's meta-learning regularizer: g contains 1/2 ||y||^2, so L_g >= 1."""

    def lower(x, y, rows):
        TRACED.append(1)
        return jnp.mean(jnp.sum((y - rows) * x, -1)) + 0.5 * jnp.sum(y**2)

    def upper(x, y, rows):
        return jnp.mean(jnp.sum((y - rows) ** 2, -1)) + 0.5 * jnp.sum(x**2)

    random = np.random.default_rng(6)
    rows = [random.normal(size=(6, 2)) for _ in range(4)]
    return Problem(upper, lower, lambda key: (jnp.ones(2), jnp.ones(2)), rows, rows)


@pytest.fixture(scope="module")
def diverged():
    """The published constants: beta_0 = 79."""
    steps = diamond.schedules.paper(10, 10, 0.1, 0.1)
    algorithm = diamond.diamond(**steps, batch=3, hypergradient=hg.neumann(4, 1.5))
    problem = ridge()
    # The last states before are beyond 1e154, where squares overflow: no warning of that besides.
    growth = pytest.warns(RuntimeWarning, match=r"^[upv] has grown")
    with growth, pytest.raises(Diverged) as caught:
        diamond.simulate(problem, ring(4), algorithm, 1000, every=50)
    return problem, algorithm, caught.value


@pytest.mark.wide
def test_divergence_names_round_quantity_and_cause(diverged):
    _, algorithm, error = diverged
    message, beta = str(error), float(algorithm.schedule_values(0)["beta"])
    assert f"diverged in round {error.round}:" in message
    assert error.quantity in message and " of agent " in message
    assert f"beta_0 = {beta:.3g} exceeds 2/L_g = 2" in message
    assert f"divide beta by {beta / 2:.0f} or more" in message


@pytest.mark.wide
def test_divergence_keeps_the_last_good_state(diverged):
    problem, algorithm, error = diverged
    run = error.run
    assert run.rounds == error.round > 50
    for leaf in jax.tree.leaves((run.x, run.y)):
        assert np.isfinite(leaf).all()
    assert same_bits(run.state, final_progress(problem, ring(4), algorithm, error.round).state)
    with pytest.raises(AssertionError):  # one round more is not finite
        final_progress(problem, ring(4), algorithm, error.round + 1)
    assert run.history["round"][-1] <= error.round and run.history["round"][-1] % 50 == 0


@pytest.mark.wide
def test_a_second_run_does_not_trace_the_losses_again(diverged):
    problem, _, _ = diverged
    before = len(TRACED)
    steps = diamond.schedules.paper(0.1, 1, 0.1, 0.1)
    again = diamond.diamond(**steps, batch=3, hypergradient=hg.neumann(4, 1.7))
    run = diamond.simulate(problem, ring(4), again, 20, seed=1, every=3)
    assert run.rounds == 20 and len(TRACED) == before > 0


def test_a_lipschitz_constant_that_is_too_small_is_named():
    with (
        pytest.warns(RuntimeWarning, match=r"up to 1.5 at round 0, above lipschitz = 1e-80 that"),
        pytest.raises(Diverged, match=r"lipschitz = 1e-80 lies below half of L_g = 1.5,") as error,
    ):
        simulate(hypergradient=hg.neumann_sum(5, 1e-80))
    assert "or None to have it estimated" in str(error.value)
    assert error.value.round == 0 and error.value.quantity.startswith("p")
    assert not np.asarray(error.value.run.x).any()  # the start is kept


def test_an_alpha_that_is_too_large_is_named():
    with pytest.raises(Diverged, match="alpha is the likely cause") as e:
        simulate(alpha=50.0, rounds=2000, every=2000)
    assert "alpha = 50" in str(e.value) and "try alpha ten times smaller" in str(e.value)
    assert "beta stays below 2/L_g = 1.3" in str(e.value)


@pytest.mark.wide
def test_groups_of_agents_give_the_same_round():
    """Agents are taken through their gradients side by side, or in groups that fit a cache."""
    problem = quad(agents=7, rows=(4, 9, 5, 1, 8, 6, 3))
    algorithm = build("svr_interact", hypergradient=ESTIMATORS["neumann"], **OPTIONS)
    algorithm = resolve(algorithm, ResolutionContext(problem, None, 3, 0)).algorithm
    fixed = algorithm, problem.objectives(3), mixer(ring(7)), key(0), "blocks"
    first = _round.initial_progress(algorithm, *problem.start(0), 7)
    results = []
    for size in (7, 3, 1):  # 3 leaves one agent over
        once = jax.jit(partial(_round.run_round, *fixed, size=size))
        results.append(once(once(first)))  # one round on all rows, one on blocks
    ungrouped, *groups = results
    for other in groups:
        assert same_bits(ungrouped.spent, other.spent)
        for one, two in zip(*(jax.tree.leaves(p.state) for p in (ungrouped, other))):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-13)


@pytest.mark.wide
def test_single_precision(float32):
    run = simulate(problem=quad(seed=8), rounds=30)
    assert run.x.dtype == run.y.dtype == jnp.float32
    with jax.enable_x64(True):
        wide = simulate(problem=quad(seed=8), rounds=30)
        assert wide.x.dtype == jnp.float64
    np.testing.assert_allclose(run.x, wide.x, atol=2e-5)
    np.testing.assert_allclose(run.history["metric"], wide.history["metric"], rtol=1e-2)
    assert (run.history["solver_error"] < 2e-3).all()
    for cost, spent in run.costs.items():
        np.testing.assert_array_equal(spent, wide.costs[cost])
