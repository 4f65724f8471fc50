"""Exchanges of a round: messages travel while this agent computes."""

import asyncio
from typing import Any

import numpy as np

from ..auto import loss_monitor
from ..hardware.program_cache import first_alone
from . import site_rollback, warm_restart, wire_format
from .agent_programs import Thought
from .audit import LOG
from .client import NeighbourClient, all_of
from .edge_states import Edges
from .max_consensus import MaxConsensus, Unsettled
from .outlier_detection import Suspicion
from .round_progress import Progress
from .service import Service
from .site_agent import Agent
from .site_names import by_name
from .site_rollback import Clock
from .warm_restart import Point
from .wire_format import Envelope, FrameError
from .worker_thread import Work


class Exchanges:
    """Exchanges of an agent with all neighbours; `edges` if rounds continue without absent ones."""

    def __init__(
        self,
        agent: Agent,
        run: str,
        service: Service,
        asking: NeighbourClient,
        edges: Edges | None,
        work: Work,
        name: str,
        clock: Clock,
    ):
        self.agent, self.run, self.service, self.asking = agent, run, service, asking
        self.edges, self.work, self.name, self.clock = edges, work, name, clock
        heard, here = agent.heard, agent.heard.index(agent.number)
        called = [service.call(j) for j in heard]
        self.suspicion = Suspicion(heard, here, called, service.audit)
        # Messages of the last round by exchange, the agent's own included.
        self.messages: list[dict[int, list[Any]]] = []
        self.waited = 0.0  # seconds without own work
        self.spent: Any = None  # oracle calls of the agent, discarded rounds included

    async def find(self, progress: Progress) -> Progress:
        """Estimate the numbers left to the run from the maximum over all agents.

        If the objective has risen, the agent rolls back and estimates them again; the next check
        sees whether the objective is above its start there as well.
        """
        progress = await self._found(progress)
        if not self.clock.back or not loss_monitor.risen(progress.found):
            return progress
        progress, said = site_rollback.low(self.agent, progress, self.clock.span)
        return await self._gone(progress, said)

    async def _found(self, progress: Progress) -> Progress:
        tally, talk, t = MaxConsensus(), 0, self.agent.tick(progress)
        while True:
            try:
                given = f"{self.run}-find", self.agent.find, progress, tally
                found: Progress = await self.work(first_alone, *given)
                self.spent = found.spent
                return found
            except Unsettled as open:
                tally.settled[open.name] = await self._largest(open.values, t, talk)
            talk += self.agent.network.diameter

    async def _largest(self, known: np.ndarray, t: int, talk: int) -> np.ndarray:
        """Return the maximum over all agents, sent before exchange t, after `talk` messages.

        Each agent sends its neighbours the largest values it knows, as often as the diameter.
        """
        for i in range(1, self.agent.network.diameter + 1):
            heard = await self._say(t, [known], talk + i)
            known = np.max([known, *(values for (values,) in heard)], axis=0)
        return known

    async def _say(self, t: int, arrays: list[Any], talk: int) -> list[list[Any]]:
        """Send arrays to all neighbours, and return theirs."""
        self.publish(t, arrays, talk)
        begun, layout = _clock(), wire_format.layout(arrays)
        heard = await all_of(self.asking.pull(j, t, talk, layout) for j in self.agent.neighbours)
        self.waited += _clock() - begun
        return heard

    async def look(self, progress: Progress) -> None:
        """Raise if x and y of any agent have outgrown the start, as in a simulation."""
        if not self.clock.back or not site_rollback.marks_here(progress):
            return
        own, t = site_rollback.now(self.agent, progress), self.agent.tick(progress)
        here, start, before = (await self._largest(own, t, site_rollback.LOOK)).tolist()
        if loss_monitor.outgrown(here, start, before, loss_monitor.fallen(progress.found)):
            raise FloatingPointError(
                f"{self.name} diverged by round {progress.t - 1}: x or y of a site is {here:.2g} "
                f"in size, where it began at {start:.2g}; start again with smaller steps"
            )

    async def done(self, progress: Progress) -> None:
        """Wait until all agents have finished all rounds, so that none can roll back any more."""
        for i in range(1, self.agent.network.diameter + 1):
            await self._say(self.clock.done(progress), [], i)

    async def back(self, progress: Progress, broken: int | None) -> Progress:
        """Roll back with all agents after divergence, here in round `broken` or elsewhere."""
        progress = progress._replace(spent=progress.spent if self.spent is None else self.spent)
        self.service.leave(self.clock.talk(progress))
        t, first = self.clock.talk(progress), -site_rollback.MOST if broken is None else -broken
        (found,) = await self._largest(np.array([first], float), t, 0)
        broken = int(min(-found, self.clock.rounds))
        own = site_rollback.sizes(self.agent, progress, broken)
        sizes = await self._largest(own, t, self.agent.network.diameter)
        about = self.agent, progress, broken, sizes.tolist(), self.clock.span
        progress, said = site_rollback.lost(*about)
        return await self._gone(progress, said)

    async def _gone(self, progress: Progress, said: str) -> Progress:
        """Continue after the rollback."""
        LOG.warning(f"{self.name}: {said}")
        self.service.leave(self.agent.tick(progress))
        return await self._found(progress)

    async def take_up(self, own: Point | None) -> Progress:
        """Return the initial progress of this site in a warm restart; see `onward`."""
        anew = self.agent.begin()
        x, y = anew.state.x, anew.state.y
        said = warm_restart.told(own, x)
        self.publish(0, said, warm_restart.TALK)
        if own is None:
            layout, neighbours = wire_format.layout(said), self.agent.neighbours
            asked = (self.asking.pull(j, 0, warm_restart.TALK, layout) for j in neighbours)
            own = Point(warm_restart.mean(await all_of(asked), x), y)
        return self.agent.begin_at(*own)

    async def round(self, progress: Progress) -> Progress:
        """Run one exchange after another."""
        told: list[dict[int, list[Any]]] = []
        for turn in range(self.agent.exchanges):
            progress, messages = await self._exchange(progress, turn)
            told.append(messages)
        self.messages = told
        after: Progress = await self.work(self.agent.end, progress)
        self.spent = after.spent
        return after

    async def _exchange(
        self, progress: Progress, turn: int
    ) -> tuple[Progress, dict[int, list[Any]]]:
        """Run one exchange; requests and early messages are sent first."""
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
            self.spent = thought.spent
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
            said = by_name(str(error), self.service.names)
            self._look(t, turn, away)
            raise FloatingPointError("; ".join([said, *self.suspicion.told()])) from None
        self._look(t, turn, away)
        return after, messages

    def _look(self, t: int, turn: int, away: list[int]) -> None:
        """Detect outliers among the messages of exchange t, the `turn`-th of its round."""
        if self.agent.spread is not None:
            self.suspicion.look(self.clock.round(t), *self.agent.spread, away, turn)

    async def _tell(self, progress: Progress, turn: int, thought: Thought | None) -> list[Any]:
        told = await self.work(self.agent.tell, progress, turn, thought)
        return self.publish(self.agent.tick(progress, turn), told)

    def publish(self, t: int, arrays: list[Any], talk: int = 0) -> list[Any]:
        """Publish arrays as the message of exchange t, or before it."""
        envelope = Envelope(self.run, self.agent.number, t, talk)
        try:
            self.service.publish(t, wire_format.encode(envelope, arrays), talk)
        except FrameError as cause:
            what = "what it measures" if talk else "its message"
            raise FloatingPointError(
                f"{self.name} diverged in round {self.clock.round(t)}: {what} has {cause}; "
                f"start again with smaller steps"
            ) from None
        return arrays

    async def _message(self, j: int, t: int) -> list[Any] | None:
        """Return the message of j of exchange t; None if the edge is down."""
        if self.edges is None:
            return await self.asking.pull(j, t)
        with self.asking.heard[j].awaited():
            found = await self.edges.settle(j, t)
        if found is not None:
            self.asking.heard[j].round = self.clock.round(t)
        return found


def _clock() -> float:
    return asyncio.get_running_loop().time()
