"""Networks of agents in one process that can be killed at any instant and start again."""

import asyncio
from contextlib import contextmanager
from functools import cache
from itertools import count

import pytest
from fast_compilation import skip_loss_checks
from helpers import quad
from lockstep_agents import agents, build_algorithm
from write_watch import Killed

import diamond
from diamond.records import checkpoint_file
from diamond.sites.rounds.message_exchange import ExchangeRunner
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.service import Service
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.errors import Unreachable
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.sites.transport.timeouts import Timeouts

ROUNDS, EVERY, DOWN_SECONDS = 7, 2, 3.0
AGENT_METHODS = "resolve_deferred outgoing_arrays compute finish_exchange finish_round".split()
LIMITS = Timeouts(connect=10.0, round=30.0, give_up=3600.0)


@cache
def team(order="paper", size=3):
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = quad(agents=size)
    network = diamond.network.path(size)
    return tuple(agents(problem, network, build_algorithm("gt_sgd", order=order)))


class Mortal(Node):
    """A node that may die while it answers someone else."""

    cluster: "Cluster"

    async def answer_request(self, sender, request):
        try:
            return await super().answer_request(sender, request)
        except Killed:
            self.cluster.kill(self.agent.number)
            raise Unreachable("killed") from None


class Cluster:
    """All agents, each started again some seconds after its death."""

    def __init__(
        self,
        folder,
        order="paper",
        faults=(),
        size=3,
        agents=None,
        kinds=(),
        sign=(),
        rounds=ROUNDS,
    ):
        self.team, self.folder = agents or team(order, size), folder
        self.wire, self.rounds = InProcessNetwork(*faults), rounds
        self.kinds, self.sign = dict(kinds), dict(sign)  # other kinds of nodes, and signers
        self.tasks, self.deaths, self.most_messages = {}, 0, 0
        self.late_kills = 0  # killed while answering, its own run already done

    def kill(self, *numbers):
        for number in numbers:
            self.wire.nodes.pop(number, None)
            if task := self.tasks.pop(number, None):
                ended = task.done() and not task.cancelled()
                self.late_kills += ended and task.exception() is None
                task.cancel()

    async def run_lives(self, agent):
        """The agent's lives, up to the one that finishes."""
        number = agent.number
        while True:
            transport, place = self.wire.transport(number), self.folder / str(number)
            fixed, sign = (
                (agent, self.rounds, transport, place, EVERY, LIMITS),
                self.sign.get(number),
            )
            try:
                node = self.kinds.get(number, Mortal)(*fixed, run_inline, sign=sign)
            except Killed:  # while it opens its files
                self.deaths += 1
                await asyncio.sleep(DOWN_SECONDS)
                continue
            node.cluster, node.on_round = self, lambda _, node=node: self.record_outbox(node)
            self.wire.nodes[number] = node
            task = self.tasks[number] = asyncio.ensure_future(node.run())
            await asyncio.wait([task])
            if not task.cancelled() and not isinstance(task.exception(), Killed):
                self.wire.nodes.pop(number, None)
                return task.result()
            self.kill(number)
            self.deaths += 1
            await asyncio.sleep(DOWN_SECONDS)

    def record_outbox(self, node):
        self.most_messages = max(self.most_messages, len(node.service.outbox.frames))

    def run(self):
        """The progress of all agents at the end."""

        async def everyone():
            return await asyncio.gather(*(self.run_lives(agent) for agent in self.team))

        return run_simulated(everyone())


@contextmanager
def killed_at(monkeypatch, victim, instant):
    """The victim dies at this instant of those it has."""
    ticks = count()

    def on_instant(agent, label):
        if agent == victim and next(ticks) == instant:
            raise Killed

    with watch_instants(monkeypatch, on_instant):
        yield


@contextmanager
def all_killed_every(monkeypatch, cluster, instants):
    """All die at once, after every so many instants of anyone."""
    ticks = count(1)

    def on_instant(agent, label):
        if next(ticks) % instants == 0:
            cluster.kill(*(a.number for a in cluster.team if a.number != agent))
            raise Killed

    with watch_instants(monkeypatch, on_instant):
        yield


@contextmanager
def watch_instants(monkeypatch, on_instant):
    """Call on_instant(agent, label) at every instant that an agent's memory or disk changes."""
    with monkeypatch.context() as patch:

        def call_before(owner, name, label, number):
            original = getattr(owner, name)

            def wrapper(self, *args, **kwargs):
                on_instant(number(self), label)
                return original(self, *args, **kwargs)

            patch.setattr(owner, name, wrapper)

        for name in AGENT_METHODS:
            call_before(Agent, name, name, lambda agent: agent.number)
        call_before(ExchangeRunner, "publish", "publish", lambda node: node.agent.number)
        call_before(Service, "notify_waiting", "published", lambda service: service.agent)
        replace = checkpoint_file.replace_file

        def write_half_first(path, *parts, durable=True):
            number = next(int(part) for part in reversed(path.parts) if part.isdigit())
            on_instant(number, "checkpoint")
            content = b"".join(parts)
            path.with_name(path.name + ".tmp").write_bytes(content[: len(content) // 2])
            on_instant(number, "checkpoint")
            replace(path, *parts, durable=durable)
            on_instant(number, "checkpoint")

        patch.setattr(checkpoint_file, "replace_file", write_half_first)
        yield
