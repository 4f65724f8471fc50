"""One agent with its own rows only has the trajectory of the simulation."""

import copy
from functools import cache

import jax
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, without_optimizations
from helpers import final_progress, flat, quad, ring
from lockstep_agents import (
    NAMES,
    agents,
    build_algorithm,
    run_lockstep,
    stack_states,
    with_own_rows,
)

import diamond
from diamond.sites.identity.handshake import compute_digests, describe_differences
from diamond.sites.rounds.site_agent import Agent

NETWORKS = [ring(5), diamond.network.erdos_renyi(5, 0.6, seed=2)]
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


@cache
def problem():
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        return quad(agents=5)


CASES = [
    pytest.param(name, precision, order, marks=[pytest.mark.slow] * (precision == "float32"))
    for name in NAMES
    for precision, order in (("float32", "paper"), ("float64", "atc"))
]


@pytest.mark.wide
@pytest.mark.parametrize(("name", "precision", "order"), CASES)
def test_the_trajectory_is_the_simulated_one(name, precision, order):
    algorithm, close = build_algorithm(name, order=order), TOLERANCE[precision]
    with without_optimizations(), jax.enable_x64(precision == "float64"):
        for network in NETWORKS:
            first, wanted = (
                final_progress(problem(), network, algorithm, t, seed=4) for t in (1, 12)
            )
            found = run_lockstep(agents(problem(), network, algorithm, seed=4), 12)
            state = stack_states(found)
            assert flat(wanted.state).dtype == precision
            agree(wanted.state, state, first.state, close)
            np.testing.assert_array_equal(wanted.spent, [p.spent for p in found])


def agree(one, other, first, close):
    """Each leaf, to `close` of the largest entry it has or had: u has shrunk since, by far."""
    for a, b, c in zip(*map(jax.tree.leaves, (one, other, first)), strict=True):
        largest = max(np.abs(a).max(), np.abs(c).max())
        np.testing.assert_allclose(a, b, atol=close * largest, rtol=0)


@pytest.mark.wide
def test_all_rows_of_an_agent_may_differ_in_number():
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        uneven = quad(agents=2, rows=(7, 12))
    network = diamond.network.path(2)
    algorithm = build_algorithm("dsgd", order="paper")
    with without_optimizations():
        wanted = final_progress(uneven, network, algorithm, 8)
        found = run_lockstep(agents(uneven, network, algorithm), 8)
    np.testing.assert_allclose(flat(wanted.state), flat(stack_states(found)), atol=1e-13)


def test_a_problem_with_the_rows_of_others_is_refused():
    with pytest.raises(ValueError, match="rows of 5 agents; a peer needs one with its own"):
        Agent(problem(), NETWORKS[0], build_algorithm("dsgd"), 0)
    with pytest.raises(ValueError, match="no agent 5; the network has 0 to 4"):
        Agent(with_own_rows(problem(), 0), NETWORKS[0], build_algorithm("dsgd"), 5)


@pytest.mark.wide
def test_agents_of_one_run_agree_and_any_change_is_named():
    one, two = (
        compute_digests(agent, 9)
        for agent in agents(problem(), NETWORKS[0], build_algorithm("dsgd"))[:2]
    )
    assert one == two and describe_differences(one, two) == ""
    alone, network = with_own_rows(problem(), 0), NETWORKS[0]
    other = copy.copy(alone)
    other.lower = lambda x, y, rows: 2 * alone.lower(x, y, rows)
    changed = {
        "problem": Agent(other, network, build_algorithm("dsgd"), 0),
        "algorithm": Agent(alone, network, build_algorithm("dsgd", alpha=0.06), 0),
        "algorithm ": Agent(alone, network, build_algorithm("dsgd", alpha=None), 0),
        "network": Agent(alone, NETWORKS[1], build_algorithm("dsgd"), 0),
        "seed": Agent(alone, network, build_algorithm("dsgd"), 0, seed=1),
        "sampling": Agent(alone, network, build_algorithm("dsgd"), 0, sampling="rows"),
    }
    for name, agent in changed.items():
        assert (
            describe_differences(one, compute_digests(agent, 9)).split(" (")[0]
            == f"another {name.strip()}"
        )
    assert describe_differences(one, compute_digests(changed["problem"], 10)).count("another") == 2
    assert describe_differences(one, None) == "it does not name the difference"
