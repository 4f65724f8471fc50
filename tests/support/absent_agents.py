"""Agents that continue without absent ones, on a simulated clock; every exchange is recorded."""

import asyncio
from functools import cache

import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from helpers import quad
from lockstep_agents import agents, build_algorithm

import diamond
from diamond.sites.rounds.node import Node
from diamond.sites.transport.errors import Unreachable
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_simulated
from diamond.sites.transport.timeouts import Timeouts

ROUNDS, EVERY, WORK_SECONDS = 12, 3, 1.0  # WORK_SECONDS: of one computation
LIMITS = Timeouts(connect=1.0, round=4.0, give_up=900.0)
FOREVER = 300.0  # by then, all that is possible without the one away is done


async def run_slowly(function, *args):
    """Work that takes time."""
    if function.__name__ == "compute":
        await asyncio.sleep(WORK_SECONDS)
    return function(*args)


@cache
def team(network, order="paper", name="gt_sgd"):
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = quad(agents=network.agents)
    return tuple(agents(problem, network, build_algorithm(name, order=order)))


RING = diamond.network.ring(4)
PATH = diamond.network.path(3)


class AbsenceScenario:
    """Agents with times at which they are absent, and links with times at which they are cut.

    `absences`: (agent, from, to), killed at the first and started again at the second. `cuts`:
    (agent, agent, from, to).
    """

    def __init__(self, folder, network=RING, absences=(), cuts=(), order="paper", name="gt_sgd"):
        self.team, self.folder, self.network = team(network, order, name), folder, network
        self.absences, self.cuts = sorted(absences, key=lambda absence: absence[1]), cuts
        self.wire = InProcessNetwork(self.cut_links)
        self.sources_used, self.states, self.end_times = {}, {}, {}

    async def cut_links(self, hop, content):
        now = asyncio.get_running_loop().time()
        for i, j, begin, end in self.cuts:
            if {i, j} == {hop.sender, hop.receiver} and begin <= now < end:
                raise Unreachable("the link is cut")
        return content

    def node(self, agent):
        number = agent.number
        recording = RecordingAgent(agent, self)
        transport, place = self.wire.transport(number), self.folder / str(number)
        return Node(
            recording, ROUNDS, transport, place, EVERY, LIMITS, run_slowly, missing="continue"
        )

    async def run_lives(self, agent):
        """All lives of an agent; one that has finished is there again when the last returns."""
        clock = asyncio.get_running_loop().time
        deaths = [(begin, end) for number, begin, end in self.absences if number == agent.number]
        last = max((fault[-1] for fault in (*self.absences, *self.cuts)), default=0.0)
        while True:
            node = self.wire.nodes[agent.number] = self.node(agent)
            task = asyncio.ensure_future(node.run())
            death = next(((b, e) for b, e in deaths if e > clock()), None)
            await asyncio.wait([task], timeout=death and max(0.0, death[0] - clock()))
            self.wire.nodes.pop(agent.number)
            if task.done() and clock() >= last:
                return task.result(), node
            back = last if task.done() else death[1]
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(back - clock())

    def run(self):
        """Where everyone stands at the end, and their nodes."""

        async def everyone():
            return await asyncio.gather(*(self.run_lives(agent) for agent in self.team))

        results = run_simulated(everyone())
        return [progress for progress, _ in results], [node for _, node in results]

    def matrix(self, t):
        """The matrix of exchange t as its agents have used it, each its own row."""
        full = self.network.weights.toarray()
        rows = np.zeros_like(full)
        for i, row in enumerate(full):
            up = [j for j, is_used in self.sources_used[i, t].items() if is_used]
            rows[i, up] = row[up]
            rows[i, i] += 1 - rows[i].sum()
        return rows


class RecordingAgent:
    """The agent, with a record of the messages used and the state after every exchange."""

    def __init__(self, agent, scenario):
        self._agent, self._scenario = agent, scenario

    def __getattr__(self, name):
        return getattr(self._agent, name)

    def __hash__(self):
        return hash(self._agent)  # its digest is computed once

    def __eq__(self, other):
        return self._agent is other._agent

    def finish_exchange(self, progress, exchange, local_result, messages):
        """The agent's own, which must be the same whenever the exchange is made again."""
        me, t = self._agent.number, self._agent.tick(progress, exchange)
        sources_used = {j: m is not messages[me] for j, m in messages.items() if j != me}
        assert self._scenario.sources_used.setdefault((me, t), sources_used) == sources_used
        after = self._agent.finish_exchange(progress, exchange, local_result, messages)
        self._scenario.end_times[me] = asyncio.get_running_loop().time()
        before = self._scenario.states.setdefault((me, t), after)
        assert same_bits(after.state.x, before.state.x) and same_bits(after.state.u, before.state.u)
        return after


def same_bits(one, other):
    """To the last bit."""
    return (one is None and other is None) or np.array_equal(one, other)
