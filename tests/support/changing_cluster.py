"""Sites in one process whose members change, each started again some time after its death."""

import asyncio
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from crash_cluster import LIMITS
from lockstep_agents import with_own_rows

import diamond
from diamond.core import cost_counter
from diamond.network import changing, path, ring
from diamond.sites.rounds.epoch_run import EpochRun, make_epoch_node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

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
    return diamond.Problem(upper, lower, start, rows, [2 * part[::-1] for part in rows])


class ChangingCluster:
    """All sites of a run with changes, each started again some seconds after its death."""

    def __init__(
        self,
        folder,
        algorithm,
        network=CHANGES,
        problem=None,
        kills=(),
        down=3.0,
        rounds=ROUNDS,
        options_of=lambda number: {},
    ):
        self.options_of = options_of  # more options of the nodes of an agent
        self.rounds = rounds
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
        options |= self.options_of(number)
        fixed = make_agent, self.rounds, self.wire.transport(number)
        make_node = make_epoch_node(*fixed, **options)
        place = self.folder and self.folder / str(number)
        site = EpochRun(number, self.network.epochs, self.rounds, make_node, folder=place)
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


def simulate(cluster):
    problem = cluster.problem.select_agents(range(cluster.network.agents))
    fixed = problem, cluster.network, cluster.algorithm, cluster.rounds
    return diamond.simulate(*fixed, measure="cheap")


def check_bits(cluster, found):
    run = simulate(cluster)
    for i, progress in enumerate(found):
        costs = [run.costs[name][i] for name in cost_counter.Cost._fields]
        np.testing.assert_array_equal(cost_counter.total(progress.spent), costs)
        wanted = jax.tree.map(lambda a, i=i: np.asarray(a)[i], run.state)
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(progress.state), strict=True):
            np.testing.assert_array_equal(a, np.asarray(b))


def check_sums(cluster):
    """The sum of trackers is that of directions after every round, and right after a change."""
    for t in range(1, ROUNDS + 1):
        members = MEMBERS[max(r for r in MEMBERS if r <= t)]
        states = [cluster.sums[t][i] for i in members]
        u, p = (sum(np.asarray(getattr(state, part)) for state in states) for part in "up")
        assert np.abs(u - p).max() < 1e-12 * max(1, np.abs(p).max())
