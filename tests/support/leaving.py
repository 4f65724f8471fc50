"""Agents that go on without those who are away, on a clock of its own, with what became of all."""

import asyncio
from functools import cache

import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from helpers import quad
from peering import agents, given

import diamond
from diamond.peers.call_errors import Unreachable
from diamond.peers.in_process_transport import InProcessNetwork, run_simulated
from diamond.peers.node import Node
from diamond.peers.timeouts import Timeouts

ROUNDS, EVERY, LABOUR = 12, 3, 1.0  # LABOUR: seconds that a piece of work takes
LIMITS = Timeouts(connect=1.0, round=4.0, give_up=900.0)
FOREVER = 300.0  # by then, all that is possible without the one away is done


async def laborious(function, *given):
    """Work that takes time."""
    if function.__name__ == "think":
        await asyncio.sleep(LABOUR)
    return function(*given)


@cache
def team(network, order="paper", name="gt_sgd"):
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = quad(agents=network.agents)
    return tuple(agents(problem, network, given(name, order=order)))


RING = diamond.network.ring(4)
PATH = diamond.network.path(3)


class Town:
    """Agents with times at which they are away, and links with times at which they are cut.

    `away`: (agent, from, to), killed at the first and started again at the second. `cut`: (agent,
    agent, from, to).
    """

    def __init__(self, folder, network=RING, away=(), cut=(), order="paper", name="gt_sgd"):
        self.team, self.folder, self.network = team(network, order, name), folder, network
        self.away, self.cut = sorted(away, key=lambda one: one[1]), cut
        self.wire = InProcessNetwork(self.hop)
        self.used, self.states, self.ended = {}, {}, {}  # by agent (and exchange); when it was done

    async def hop(self, hop, content):
        now = asyncio.get_running_loop().time()
        for one, other, begin, end in self.cut:
            if {one, other} == {hop.sender, hop.receiver} and begin <= now < end:
                raise Unreachable("the link is cut")
        return content

    def node(self, agent):
        number = agent.number
        watched = Watched(agent, self)
        end, place = self.wire.end(number), self.folder / str(number)
        return Node(watched, ROUNDS, end, place, EVERY, LIMITS, laborious, missing="continue")

    async def live(self, agent):
        """All lives of an agent; one that has finished is there again when the last returns."""
        clock = asyncio.get_running_loop().time
        deaths = [(begin, end) for number, begin, end in self.away if number == agent.number]
        last = max((fault[-1] for fault in (*self.away, *self.cut)), default=0.0)
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
            return await asyncio.gather(*(self.live(agent) for agent in self.team))

        found = run_simulated(everyone())
        return [progress for progress, _ in found], [node for _, node in found]

    def matrix(self, t):
        """The matrix of exchange t as its agents have used it, each its own row."""
        full = self.network.weights.toarray()
        rows = np.zeros_like(full)
        for i, own in enumerate(full):
            up = [j for j, heard in self.used[i, t].items() if heard]
            rows[i, up] = own[up]
            rows[i, i] += 1 - rows[i].sum()
        return rows


class Watched:
    """The agent, with a note of what it uses and becomes in every exchange."""

    def __init__(self, agent, town):
        self._agent, self._town = agent, town

    def __getattr__(self, name):
        return getattr(self._agent, name)

    def __hash__(self):
        return hash(self._agent)  # its digest is computed once

    def __eq__(self, other):
        return self._agent is other._agent

    def step(self, progress, turn, local_result, messages):
        """The agent's own, which must be the same whenever the exchange is made again."""
        me, t = self._agent.number, self._agent.tick(progress, turn)
        used = {j: m is not messages[me] for j, m in messages.items() if j != me}
        assert self._town.used.setdefault((me, t), used) == used
        found = self._agent.step(progress, turn, local_result, messages)
        self._town.ended[me] = asyncio.get_running_loop().time()
        before = self._town.states.setdefault((me, t), found)
        assert same(found.state.x, before.state.x) and same(found.state.u, before.state.u)
        return found


def same(one, other):
    """To the last bit."""
    return (one is None and other is None) or np.array_equal(one, other)
