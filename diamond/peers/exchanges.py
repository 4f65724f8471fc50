"""The exchanges of a round: tell, think and hear; while this agent thinks, messages travel."""

import asyncio
from typing import Any

import numpy as np

from . import frame, onward
from .agent import Agent
from .client import NeighbourClient, all_of
from .edge_states import Edges
from .frame import Envelope, FrameError
from .max_consensus import MaxConsensus, Unsettled
from .onward import Point
from .programs import Thought
from .progress import Progress
from .service import Service
from .suspicion import Suspicion
from .worker_thread import Work


class Exchanges:
    """Of one agent with all its neighbours; `edges` where rounds are made without those away."""

    def __init__(
        self,
        agent: Agent,
        run: str,
        service: Service,
        asking: NeighbourClient,
        edges: Edges | None,
        work: Work,
        name: str,
    ):
        self.agent, self.run, self.service, self.asking = agent, run, service, asking
        self.edges, self.work, self.name = edges, work, name
        heard, here = agent.heard, agent.heard.index(agent.number)
        called = [service.call(j) for j in heard]
        self.suspicion = Suspicion(heard, here, called, service.audit)
        # Of the last round, of each exchange: all messages, the agent's own among them.
        self.messages: list[dict[int, list[Any]]] = []
        self.waited = 0.0  # seconds without work of its own

    async def find(self, progress: Progress) -> Progress:
        """The numbers left to the run, from the largest of what all agents measure.

        Each tells its neighbours the largest it knows, as many times as the network's diameter.
        """
        tally, talk, t = MaxConsensus(), 0, self.agent.tick(progress)
        while True:
            try:
                return await self.work(self.agent.find, progress, tally)
            except Unsettled as open:
                name, known = open.name, open.values
            for _ in range(self.agent.network.diameter):
                talk += 1
                self.publish(t, [known], talk)
                begun = _clock()
                layout, neighbours = frame.layout([known]), self.agent.neighbours
                heard = await all_of(self.asking.pull(j, t, talk, layout) for j in neighbours)
                self.waited += _clock() - begun
                known = np.max([known, *(values for (values,) in heard)], axis=0)
            tally.settled[name] = known

    async def take_up(self, own: Point | None) -> Progress:
        """Where this site begins, if not where any run does; see `onward`."""
        anew = self.agent.begin()
        x, y = anew.state.x, anew.state.y
        said = onward.told(own, x)
        self.publish(0, said, onward.TALK)
        if own is None:
            layout, neighbours = frame.layout(said), self.agent.neighbours
            asked = (self.asking.pull(j, 0, onward.TALK, layout) for j in neighbours)
            own = Point(onward.mean(await all_of(asked), x), y)
        return self.agent.begin_at(*own)

    async def round(self, progress: Progress) -> Progress:
        """One exchange after another."""
        told: list[dict[int, list[Any]]] = []
        for turn in range(self.agent.exchanges):
            progress, messages = await self._exchange(progress, turn)
            told.append(messages)
        self.messages = told
        after: Progress = await self.work(self.agent.end, progress)
        return after

    async def _exchange(
        self, progress: Progress, turn: int
    ) -> tuple[Progress, dict[int, list[Any]]]:
        """The questions leave first, and what is early with them."""
        early, told = self.agent.early(turn), []
        if early:
            told = await self._tell(progress, turn, None)
        t, neighbours = self.agent.tick(progress, turn), self.agent.neighbours
        hearing = {
            j: asyncio.ensure_future(self._message(j, t))
            for j in neighbours
            if not self.asking.follows(j, t)
        }
        try:
            if hearing:
                await asyncio.sleep(0)
            thought = await self.work(self.agent.think, progress, turn)
            if not early:
                told = await self._tell(progress, turn, thought)
            since = _clock()
            asked = dict(zip(hearing, await asyncio.gather(*hearing.values())))
            found = [asked[j] if j in asked else await self._message(j, t) for j in neighbours]
        finally:
            for task in hearing.values():
                task.cancel()
        self.waited += _clock() - since
        if self.edges:
            self.service.outbox.trim()
        away = [j for j, message in zip(neighbours, found) if message is None]
        heard = zip(neighbours, found)
        messages = {j: told if message is None else message for j, message in heard}
        messages[self.agent.number] = told
        try:
            after: Progress = await self.work(self.agent.step, progress, turn, thought, messages)
        except FloatingPointError as error:
            said = str(error).replace(f"agent {self.agent.number}", self.name, 1)
            self._look(t, away)
            raise FloatingPointError("; ".join([said, *self.suspicion.told()])) from None
        self._look(t, away)
        return after, messages

    def _look(self, t: int, away: list[int]) -> None:
        """Notice messages of exchange t that are absurd."""
        if self.agent.spread is not None:
            self.suspicion.look(t // self.agent.exchanges, *self.agent.spread, away)

    async def _tell(self, progress: Progress, turn: int, thought: Thought | None) -> list[Any]:
        told = await self.work(self.agent.tell, progress, turn, thought)
        return self.publish(self.agent.tick(progress, turn), told)

    def publish(self, t: int, arrays: list[Any], talk: int = 0) -> list[Any]:
        """Let neighbours have those arrays as the message of exchange t, or said before it."""
        envelope = Envelope(self.run, self.agent.number, t, talk)
        try:
            self.service.publish(t, frame.encode(envelope, arrays), talk)
        except FrameError as cause:
            what = "what it measures" if talk else "its message"
            raise FloatingPointError(
                f"{self.name} diverged in round {t // self.agent.exchanges}: {what} has {cause}; "
                f"start again with smaller steps"
            ) from None
        return arrays

    async def _message(self, j: int, t: int) -> list[Any] | None:
        """The message of j of exchange t; None where the edge is down."""
        if self.edges is None:
            return await self.asking.pull(j, t)
        with self.asking.heard[j].awaited():
            found = await self.edges.settle(j, t)
        if found is not None:
            self.asking.heard[j].round = t // self.agent.exchanges
        return found


def _clock() -> float:
    return asyncio.get_running_loop().time()
