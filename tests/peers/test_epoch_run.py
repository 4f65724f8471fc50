"""Sites that join and leave, in one process: the bits of the simulation, with kills or without."""

import asyncio
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from crash_cluster import LIMITS
from lockstep_agents import build_algorithm, with_own_rows

import diamond
from diamond.network import changing, path, ring
from diamond.peers.epoch_run import EpochRun, make_epoch_node
from diamond.peers.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.peers.site_agent import Agent

# Agent 4 joins in round 4, agent 1 leaves in round 9, agent 5 joins and 0 leaves in round 13.
MEMBERS = {0: [0, 1, 2, 3], 4: [0, 1, 2, 3, 4], 9: [0, 2, 3, 4], 13: [2, 3, 4, 5]}
NETWORKS = {0: ring(4), 4: ring(5), 9: path(4), 13: ring(4)}
CHANGES = changing(NETWORKS, members=MEMBERS)
ROUNDS, EVERY = 18, 3


def upper(x, y, rows):
    return jnp.mean((y - rows) ** 2) + 0.1 * x @ x


def lower(x, y, rows):
    return jnp.mean(0.5 * (y - rows) ** 2 * (1 + 0.1 * jnp.tanh(x))) + 0.1 * y @ x


@cache
def problem_of(agents):
    """A problem without products of matrices, whose sums have one order everywhere."""
    rows = [np.random.default_rng(i).normal(i, 1, (20, 3)) for i in range(agents)]
    start = lambda key: (jnp.zeros(3), jnp.zeros(3))
    return diamond.Problem(upper, lower, start, rows, [part[::-1].copy() for part in rows])


class ChangingCluster:
    """All sites of a run with changes, each started again some seconds after its death."""

    def __init__(self, folder, algorithm, network=CHANGES, problem=None, kills=(), down=3.0):
        self.folder, self.algorithm, self.network = folder, algorithm, network
        self.problem = problem or problem_of(network.agents)
        self.wire, self.tasks, self.deaths = InProcessNetwork(), {}, 0
        self.kills, self.down = list(kills), down  # (agent, round) at which the agent dies
        self.sums = {}  # of trackers and of directions by round

    def make(self, number):
        def make_agent(epoch):
            fixed = with_own_rows(self.problem, number), (epoch or self.network.epochs[0]).network
            return Agent(*fixed, self.algorithm, number, epoch=epoch)

        options = {"every": EVERY, "timeouts": LIMITS, "run_blocking": run_inline}
        make_node = make_epoch_node(make_agent, ROUNDS, self.wire.transport(number), **options)
        place = self.folder and self.folder / str(number)
        site = EpochRun(number, self.network.epochs, ROUNDS, make_node, place)
        site.node.on_round = lambda progress: self.on_round(number, progress)
        return site

    def on_round(self, number, progress):
        self.sums.setdefault(progress.t, {})[number] = progress.state
        if (number, progress.t) in self.kills:
            self.kills.remove((number, progress.t))
            self.wire.nodes.pop(number)
            self.tasks[number].cancel()

    async def run_lives(self, number):
        while True:
            site = self.wire.nodes[number] = self.make(number)
            task = self.tasks[number] = asyncio.ensure_future(site.run())
            await asyncio.wait([task])
            if not task.cancelled():
                return task.result()
            self.deaths += 1
            await asyncio.sleep(self.down)

    def run(self):
        async def everyone():
            return await asyncio.gather(*map(self.run_lives, range(self.network.agents)))

        return run_simulated(everyone())


def check_bits(cluster, found):
    run = diamond.simulate(
        cluster.problem, cluster.network, cluster.algorithm, ROUNDS, measure="cheap"
    )
    for i, progress in enumerate(found):
        wanted = jax.tree.map(lambda a: np.asarray(a)[i], run.state)
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(progress.state), strict=True):
            np.testing.assert_array_equal(a, np.asarray(b))


@pytest.mark.parametrize(
    ("name", "order"), [("gt_sgd", "paper"), ("diamond", "atc"), ("dsgd", None)]
)
def test_sites_give_the_bits_of_the_simulation(tmp_path, name, order):
    cluster = ChangingCluster(tmp_path, build_algorithm(name, order=order))
    found = cluster.run()
    assert [p.t for p in found] == [13, 9, 18, 18, 18, 18]
    check_bits(cluster, found)


def test_kills_around_every_change_leave_the_bits_as_they_are(tmp_path):
    kills = [(0, 3), (1, 4), (4, 4), (2, 4), (3, 5), (1, 9), (0, 9), (4, 9), (2, 11), (5, 13)]
    kills += [(0, 13), (3, 13), (3, 14), (5, 16), (2, 18)]
    cluster = ChangingCluster(tmp_path, build_algorithm("gt_sgd"), kills=kills)
    found = cluster.run()
    assert cluster.deaths == len(kills) and not cluster.kills
    check_bits(cluster, found)


def test_the_trackers_keep_their_sum_at_every_change(tmp_path):
    cluster = ChangingCluster(tmp_path, build_algorithm("gt_sgd"))
    cluster.run()
    for t in range(1, ROUNDS + 1):
        members = MEMBERS[max(r for r in MEMBERS if r <= t)]
        states = [cluster.sums[t][i] for i in members]
        u, p = (sum(np.asarray(getattr(state, part)) for state in states) for part in "up")
        assert np.abs(u - p).max() < 1e-12 * max(1, np.abs(p).max())
