"""One method of each family among peers: the simulated trajectory, also killed on the way.

A round of several exchanges, stages that tell nothing before, between and after them, messages of
y and z, duals, tables whose size is found: what DIAMOND and its kin do not have.
"""

from itertools import count

import numpy as np
import optax
import pytest
from crash_cluster import ROUNDS, Cluster, Killed, watch_instants
from fast_compilation import skip_measures, without_optimizations
from helpers import final_progress, flat, quad, ring, same_bits
from lockstep_agents import agents, run_lockstep, stack_states

import diamond
from diamond.hypergradient import exact

GIVEN = dict(alpha=0.05, beta=0.2, delta=0.2, batch=3)
ADAM = diamond.with_optimizers(
    diamond.f2sa_fused(batch=3), x=optax.adam(0.05), y=optax.adamw(0.05), z=optax.adam(0.05)
)
METHODS = {
    "sparkle": (diamond.sparkle(**GIVEN, theta=0.5), "common", 1),
    "in turn": (diamond.sparkle(**GIVEN, theta=0.5, plan="y z x"), "common", 3),
    "ma_dsbo": (diamond.ma_dsbo(**GIVEN, theta=0.5, inner=2), "common", 5),
    "adasdbo": (diamond.adasdbo(batch=3), "common", 1),
    "f2sa": (diamond.f2sa(**GIVEN, inner=2), "personal", 1),  # silent stages first
    "itd": (diamond.itd(0.05, 0.2, inner=2), "personal", 1),  # silent stages last
    "saba": (diamond.saba(**GIVEN), "personal", 1),  # a table whose size is found
    "extra": (diamond.extra(0.05, 0.2, 3, exact()), "personal", 1),  # tells before it computes
    "exact_diffusion": (diamond.exact_diffusion(0.05, batch=3), "none", 1),
    "adam": (ADAM, "personal", 1),  # states of optimizers
}


@pytest.mark.wide(keep=["itd"])
@pytest.mark.parametrize("name", METHODS)
def test_the_trajectory_is_the_simulated_one(name):
    method, level, exchange_count = METHODS[name]
    problem, network = quad(lower_level=level), ring(4)
    with without_optimizations():
        wanted = final_progress(problem, network, method, 4, seed=4)
        team = agents(problem, network, method, seed=4)
        found = run_lockstep(team, 4)
    assert team[0].exchange_count == exchange_count
    np.testing.assert_allclose(flat(wanted.state), flat(stack_states(found)), atol=1e-12)
    np.testing.assert_array_equal(wanted.spent, [p.spent for p in found])


@pytest.mark.wide
def test_what_is_sent_is_what_is_counted(monkeypatch):
    skip_measures(monkeypatch)
    method, level, _ = METHODS["ma_dsbo"]
    problem, network = quad(lower_level=level), ring(4)
    with without_optimizations():
        run = diamond.simulate(problem, network, method, 4, every=4)
        team = agents(problem, network, method)
    vectors = (2 + 2) * 2 * 4 + 2 * 3  # y and z of 4 numbers, x of 3, each with its tracker
    assert team[0].bytes_per_round == 8 * vectors
    assert run.history["bytes"][-1] == 4 * 2 * 4 * team[0].bytes_per_round
    assert run.messages == 4 * 5 * 2 * 4


@pytest.mark.wide
@pytest.mark.parametrize("name", ["in turn", "ma_dsbo", "adam"])
def test_killed_at_any_exchange_it_ends_in_the_same_bits(name, tmp_path, monkeypatch):
    method, level, _ = METHODS[name]
    problem, network = quad(agents=3, lower_level=level), diamond.network.path(3)
    with without_optimizations():
        team = tuple(agents(problem, network, method))
        wanted = run_lockstep(team, ROUNDS)
        instants = (5, 33, 62) if name == "adam" else (5, 33, 62, 95)
        for n in instants:  # of the agent in the middle, of some 90 to 220
            cluster, seen = Cluster(tmp_path / str(n), agents=team), count()

            def on_instant(agent, label, n=n, seen=seen):
                if agent == 1 and next(seen) == n:
                    raise Killed

            with watch_instants(monkeypatch, on_instant):
                found = cluster.run()
            assert cluster.deaths + cluster.late_kills == 1, n
            assert [p.t for p in found] == [ROUNDS] * 3
            assert all(same_bits(one, other) for one, other in zip(found, wanted, strict=True))
