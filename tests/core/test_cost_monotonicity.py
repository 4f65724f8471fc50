"""Costs only grow: whatever is given, left open, found anew or never asked for again."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_measures, without_optimizations
from helpers import ALGORITHMS, build, quad, ring
from hypothesis import given, settings
from hypothesis import strategies as st
from lockstep_agents import agents, run_lockstep

import diamond
from diamond import hypergradient as hg
from diamond.core import cost_counter
from diamond.core.cost_counter import Cost
from diamond.engine.many_runs import simulate_many
from diamond.interface.round_interface import Method
from diamond.schedules.deferred import ResolutionContext, ResolvedValue, count_exchanges, resolve

AGENTS = 4
POINT = jnp.zeros((AGENTS, 1))
GIVEN = {"alpha": 0.05, "beta": 0.2, "eta": 0.3, "gamma": 0.3, "period": 4}
CHAIN = {"terms": 32, "lipschitz": 1.6}  # K as found here: one program less to compile
GROWING = ("samples", "gradients", "hvps", "jvps", "bytes")
OPEN = diamond.dsgd(beta=0.2, batch=4, hypergradient=hg.neumann(8))  # alpha and L are learned
ROUNDS = 20


@pytest.fixture(autouse=True, scope="module")
def compiled_quickly():
    with without_optimizations():
        yield


@dataclasses.dataclass(frozen=True)
class Nothing(Method):
    """An algorithm that leaves nothing open: what was found, tests ask for."""


asked = st.tuples(
    st.sampled_from("abcd"),
    st.lists(st.integers(0, 2**33), min_size=4, max_size=4),
    st.integers(0, 9),
    st.integers(0, 3),
    st.booleans(),
)


@pytest.mark.wide
@settings(max_examples=200, deadline=None)
@given(looks=st.lists(st.lists(asked, max_size=5), min_size=1, max_size=5), forget=st.booleans())
def test_what_finding_cost_is_never_taken_back(looks, forget):
    """Numbers asked for at one look and not at the next, lasting or not: the counters, the bytes
    and the talks are those of everything that was ever computed."""
    network = diamond.network.ring(AGENTS)
    context = ResolutionContext(None, network, 1, 0)
    counter = np.zeros((AGENTS, 2, 4), np.uint32)
    truth, agreed, talks = np.zeros((AGENTS, 4), np.uint64), 0, 0
    for i, look in enumerate(looks):
        if i:
            context = context.after_rounds(POINT, POINT, forget)
        for name, (samples, *rest), numbers, times, lasting in look:
            spent = Cost(np.arange(AGENTS) + samples, *rest)  # each agent its own, or all the same
            resolved_values = ResolvedValue(1.0, spent, numbers, times, lasting)
            if name not in context.memory:
                truth += np.stack([np.broadcast_to(c, AGENTS) for c in spent], 1).astype(np.uint64)
                agreed, talks = agreed + numbers, talks + times
            context.cached(name, lambda _, resolved_values=resolved_values: resolved_values)
        resolved = resolve(Nothing(), context)
        counter = np.asarray(
            cost_counter.add(counter, cost_counter.agent_counters(resolved.cost, AGENTS))
        )
        assert (cost_counter.total(counter) == truth).all()
        assert resolved.bytes == agreed * 8 * network.diameter * 2 * len(network.edges)
        assert count_exchanges(context.memory) == (agreed, talks)


def test_a_negative_cost_is_refused():
    with pytest.raises(ValueError, match="taken back"):
        cost_counter.agent_counters(Cost(samples=np.array([3, -1])), 2)


def open_or_given(name, numbers):
    chain = {key: CHAIN[key] for key in CHAIN if key in numbers}
    summed = name in ("interact", "svr_interact")
    make = hg.neumann_sum if summed else hg.neumann
    steps = {key: GIVEN[key] for key in GIVEN if key in numbers}
    return build(name, batch=4, hypergradient=make(**chain), **steps)


@settings(max_examples=16, deadline=None)
@given(name=st.sampled_from(sorted(ALGORITHMS)), numbers=st.sets(st.sampled_from([*GIVEN, *CHAIN])))
def test_every_set_of_given_numbers_of_every_algorithm(name, numbers):
    """Found at the start and anew at two more places: every charge is a cost, none a refund."""
    problem, network, algorithm = quad(), ring(AGENTS), open_or_given(name, numbers)
    context, bytes, rounds = ResolutionContext(problem, network, algorithm.batch, 0), 0, 0
    for point in range(3):
        if point:
            move = lambda a, by=0.1 * point: a + by
            context = context.after_rounds(*jax.tree.map(move, context.point))
        resolved = resolve(algorithm, context)
        cost_counter.agent_counters(
            resolved.cost, problem.agents
        )  # raises where anything is negative
        assert resolved.bytes >= bytes and resolved.rounds >= rounds
        bytes, rounds = resolved.bytes, resolved.rounds


def grows(history):
    for name in GROWING:
        assert (np.diff(np.asarray(history[name], float)) >= 0).all(), name
        assert history[name][-1] < 1e7, name


@pytest.mark.wide
def test_every_runtime_counts_the_same(monkeypatch):
    skip_measures(monkeypatch)
    problem, network = quad(), ring(AGENTS)
    run = diamond.simulate(problem, network, OPEN, ROUNDS, every=5)
    grows(run.history)
    cut = diamond.simulate(problem, network, OPEN, ROUNDS, every=5, devices=2)
    (side,) = simulate_many(problem, network, [(OPEN, 0)], ROUNDS, every=5, batched=True)
    for name in GROWING:
        np.testing.assert_array_equal(cut.history[name], run.history[name])
        np.testing.assert_array_equal(side.history[name], run.history[name])
    peers = run_lockstep(agents(problem, network, OPEN), ROUNDS)
    spent = cost_counter.total(np.stack([one.spent for one in peers]))
    np.testing.assert_array_equal(spent.T, list(run.costs.values()))
