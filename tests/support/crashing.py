"""Networks of agents in one process that can be killed at any instant and start again."""

import asyncio
from contextlib import contextmanager
from functools import cache
from itertools import count

import pytest
from fast_compilation import skip_loss_checks
from helpers import quad
from peering import agents, given

import diamond
from diamond.peers.call_errors import Unreachable
from diamond.peers.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.peers.message_exchange import ExchangeRunner
from diamond.peers.node import Node
from diamond.peers.service import Service
from diamond.peers.site_agent import Agent
from diamond.peers.timeouts import Timeouts
from diamond.records import checkpoint

ROUNDS, EVERY, DOWN = 7, 2, 3.0
LIMITS = Timeouts(connect=10.0, round=30.0, give_up=3600.0)


class Killed(Exception):
    """The agent is no more."""


@cache
def team(order="paper", size=3):
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = quad(agents=size)
    network = diamond.network.path(size)
    return tuple(agents(problem, network, given("gt_sgd", order=order)))


class Mortal(Node):
    """A node that may die while it answers someone else."""

    cluster: "Cluster"

    async def answer(self, sender, request):
        try:
            return await super().answer(sender, request)
        except Killed:
            self.cluster.kill(self.agent.number)
            raise Unreachable("killed") from None


class Cluster:
    """All agents, each started again some seconds after its death."""

    def __init__(self, folder, order="paper", faults=(), size=3, agents=None):
        self.team, self.folder = agents or team(order, size), folder
        self.wire = InProcessNetwork(*faults)
        self.tasks, self.deaths, self.largest = {}, 0, 0
        self.late = 0  # killed while answering, its own run already done

    def kill(self, *numbers):
        for number in numbers:
            self.wire.nodes.pop(number, None)
            if task := self.tasks.pop(number, None):
                self.late += task.done() and task.exception() is None
                task.cancel()

    async def live(self, agent):
        """The agent's lives, up to the one that finishes."""
        number = agent.number
        while True:
            end, place = self.wire.end(number), self.folder / str(number)
            node = Mortal(agent, ROUNDS, end, place, EVERY, LIMITS, run_inline)
            node.cluster, node.on_round = self, lambda _: self.look(node)
            self.wire.nodes[number] = node
            task = self.tasks[number] = asyncio.ensure_future(node.run())
            await asyncio.wait([task])
            if not task.cancelled() and not isinstance(task.exception(), Killed):
                self.wire.nodes.pop(number, None)
                return task.result()
            self.kill(number)
            self.deaths += 1
            await asyncio.sleep(DOWN)

    def look(self, node):
        self.largest = max(self.largest, len(node.service.outbox.frames))

    def run(self):
        """Where everyone stands at the end."""

        async def everyone():
            return await asyncio.gather(*(self.live(agent) for agent in self.team))

        return run_simulated(everyone())


@contextmanager
def killed_at(monkeypatch, victim, instant):
    """The victim dies at this instant of those it has."""
    ticks = count()

    def tick(agent, label):
        if agent == victim and next(ticks) == instant:
            raise Killed

    with watched(monkeypatch, tick):
        yield


@contextmanager
def all_killed_every(monkeypatch, cluster, instants):
    """All die at once, after every so many instants of anyone."""
    ticks = count(1)

    def tick(agent, label):
        if next(ticks) % instants == 0:
            cluster.kill(*(one.number for one in cluster.team if one.number != agent))
            raise Killed

    with watched(monkeypatch, tick):
        yield


@contextmanager
def watched(monkeypatch, tick):
    """Calls tick(agent, label) at every instant that an agent's memory or disk changes."""
    with monkeypatch.context() as patch:

        def before(owner, name, label, number):
            original = getattr(owner, name)

            def wrapper(self, *args, **kwargs):
                tick(number(self), label)
                return original(self, *args, **kwargs)

            patch.setattr(owner, name, wrapper)

        for name in ("find", "tell", "think", "step", "end"):
            before(Agent, name, name, lambda agent: agent.number)
        before(ExchangeRunner, "publish", "publish", lambda node: node.agent.number)
        before(Service, "wake", "published", lambda service: service.agent)
        replace = checkpoint.replace_file

        def torn(path, *parts, settle=True):
            number = next(int(part) for part in reversed(path.parts) if part.isdigit())
            tick(number, "checkpoint")
            content = b"".join(parts)
            path.with_name(path.name + ".tmp").write_bytes(content[: len(content) // 2])
            tick(number, "checkpoint")
            replace(path, *parts, settle=settle)
            tick(number, "checkpoint")

        patch.setattr(checkpoint, "replace_file", torn)
        yield
