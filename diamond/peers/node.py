"""One agent among its neighbours: asks for their messages, round by round.

Everything is pulled, and a request changes nothing but what the asker will never want again, so
any of them can be repeated, doubled or lost. An agent is never more than a round ahead of a
neighbour, since it needs that neighbour's message; one that is set back to its checkpoint asks
again for what it has heard since, and tells the same bits once more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

import numpy as np

from ..numbers.open_numbers import open_numbers
from . import checkpoints, frame
from .agent import Agent, Progress, Thought
from .client import NeighbourClient, all_of
from .edge_journal import DOWN, EdgeJournal
from .edge_states import Edges
from .frame import Envelope, FrameError
from .handshake import digest
from .max_consensus import MaxConsensus, Unsettled
from .outbox import Outbox
from .service import Service
from .shutdown import Halted, Shutdown
from .site_names import Names, called
from .timeouts import Limits
from .transport import Stopped, Transport
from .worker_thread import Work, threaded

Missing = Literal["wait", "continue"]
WARM: WeakSet[Agent] = WeakSet()  # agents of this process whose rounds are compiled


@dataclass
class Node:
    """The agent's run of `rounds` rounds; `folder` keeps a checkpoint every `every` of them.

    Without a folder nothing survives a crash. `work` runs what blocks, `on_round` among it: called
    where the agent stands at first and after every round, before the checkpoint. `missing` says
    what to do about a neighbour that is away: wait, or continue as `edges` describes.
    """

    agent: Agent
    rounds: int
    transport: Transport
    folder: Path | None = None
    every: int = 10
    limits: Limits = field(default_factory=Limits)
    work: Work = threaded
    on_round: Callable[[Progress], None] | None = None
    missing: Missing = "wait"
    names: Names = field(default_factory=dict)  # of the sites, by the numbers of their agents

    def __post_init__(self) -> None:
        self.parts = digest(self.agent, self.rounds, self.missing)
        self.run_digest = self.parts["run"]
        who = self.agent.number, self.agent.neighbours
        self.last = self.rounds * self.agent.exchanges  # of the clock of peers: exchanges
        self.service = Service(
            *who, self.parts, self.last, self.limits, self.work, self.folder, self.names
        )
        self.asking = NeighbourClient(
            self.agent, self.parts, self.transport, self.limits, self.service
        )
        self.waits, self.heard = self.asking.waits, self.asking.heard
        # Of the last round, of each exchange: all messages, the agent's own among them.
        self.messages: list[dict[int, list[Any]]] = []
        self.seconds = self.waited = 0.0  # of rounds, and of these without work of its own
        self.compiling = 0.0  # seconds before the first of them
        self.t = 0  # rounds made
        self.halt = Shutdown(self.limits.connect)
        self.service.status, self.service.stop = self.status, self.halt.ask
        self.edges = self._edges() if self.missing == "continue" else None

    @property
    def name(self) -> str:
        """What the agent is called."""
        return called(self.names, self.agent.number)

    def _edges(self) -> Edges:
        if self.agent.network.channels:
            raise ValueError(
                "compressed messages build on one another, so that none may be missing: run with "
                "missing='wait', or a network without channels"
            )
        if names := open_numbers(self.agent.given):
            raise ValueError(
                f"give {', '.join(names)}: numbers left to the run are found by all agents "
                f"together, and this run goes on without those away"
            )
        place = self.folder / "journal" if self.folder else None
        ledger = EdgeJournal(self.agent.neighbours, self.run_digest, place)
        ways = self.asking.call, self.asking.read, self.asking.hello
        means = self.limits, self.waits, *ways, self.work
        edges = self.service.edges = Edges(self.agent.number, ledger, *means, self.names)
        edges.wake = self.service.wake
        self.service.outbox.spared = lambda j, t: ledger.word(j, t) == DOWN
        return edges

    async def run(self) -> Progress:
        """All rounds, from the checkpoint if there is one; returns once no neighbour needs more."""
        progress = self.agent.begin()
        if self.folder:
            progress = checkpoints.restore(
                self.folder, self.run_digest, progress, self.service.outbox
            )
            if progress.t:
                progress = self.agent.numbered(progress)
            self.asking.begun = self.agent.tick(progress)
            safe = self.agent.exchanges * checkpoints.safe(self.folder)
            self.service.durable = min(safe, self.agent.tick(progress))
            self.service.finished = checkpoints.finished(self.folder, self.run_digest)
        try:
            if self.edges:
                self.edges.ledger.restore(self.agent.tick(progress))
            await self.halt.unless(self.asking.meet(self.edges))
            if progress.t == 0:
                progress = await self._timed(self._find, progress)
            await self._show(progress)
            if progress.t < self.rounds and self.agent not in WARM:
                await self._warm(progress)
            while progress.t < self.rounds:
                after = await self._timed(self._round, progress)
                if self.agent.renews(after):
                    after = await self._timed(self._find, after)
                progress = after
                await self._show(progress)
                if progress.t % self.every == 0 or progress.t == self.rounds:
                    await self._save(progress)
                if self.halt.asked:
                    raise Halted
            await self.halt.unless(self._leave())
        except Halted:
            if 0 < progress.t < self.rounds:
                await self._save(progress)
            raise Halted(f"stopped after round {progress.t} of {self.rounds}, as asked") from None
        except (FloatingPointError, Stopped) as error:
            self.service.fail(str(error))
            await asyncio.sleep(self.limits.connect)  # so that the neighbours hear of it
            raise
        finally:
            if self.edges:
                await self.edges.close()
        return progress

    async def _timed(
        self, work: Callable[[Progress], Awaitable[Progress]], progress: Progress
    ) -> Progress:
        begun = _clock()
        try:
            return await self.halt.unless(work(progress))
        finally:
            self.seconds += _clock() - begun

    async def _show(self, progress: Progress) -> None:
        self.t = progress.t
        if self.on_round:
            await self.work(self.on_round, progress)

    async def _warm(self, progress: Progress) -> None:
        """Compile the gradient work of a round, so that its seconds are those of computing.

        What comes of it is thrown away; the vector operations of a round's end are not worth it.
        """
        begun = _clock()
        for turn in range(self.agent.exchanges):
            thought = await self.work(self.agent.think, progress, turn)
            await self.work(self.agent.tell, progress, turn, thought)
        self.compiling = _clock() - begun
        WARM.add(self.agent)

    async def _find(self, progress: Progress) -> Progress:
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
                self._publish(t, [known], talk)
                begun = _clock()
                layout, neighbours = frame.layout([known]), self.agent.neighbours
                heard = await all_of(self.asking.pull(j, t, talk, layout) for j in neighbours)
                self.waited += _clock() - begun
                known = np.max([known, *(values for (values,) in heard)], axis=0)
            tally.settled[name] = known

    async def _round(self, progress: Progress) -> Progress:
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
        """Tell, think and hear; while this agent thinks, messages travel."""
        early = self.agent.early(turn) and await self._tell(progress, turn, None)
        thinking = asyncio.ensure_future(self._think(progress, turn))
        hearing = asyncio.ensure_future(self._hear(self.agent.tick(progress, turn)))
        try:
            (thought, late, since), heard = await asyncio.gather(thinking, hearing)
        finally:
            thinking.cancel()
            hearing.cancel()
        self.waited += _clock() - since
        told = early or late
        messages = {j: told if message is None else message for j, message in heard.items()}
        messages[self.agent.number] = told
        try:
            after: Progress = await self.work(self.agent.step, progress, turn, thought, messages)
        except FloatingPointError as error:
            said = str(error).replace(f"agent {self.agent.number}", self.name, 1)
            raise FloatingPointError(said) from None
        return after, messages

    async def _think(self, progress: Progress, turn: int) -> tuple[Thought, list[Any], float]:
        """The gradient work, the message where it had to wait for that, and when all was done."""
        thought = await self.work(self.agent.think, progress, turn)
        told = [] if self.agent.early(turn) else await self._tell(progress, turn, thought)
        return thought, told, _clock()

    async def _tell(self, progress: Progress, turn: int, thought: Thought | None) -> list[Any]:
        told = await self.work(self.agent.tell, progress, turn, thought)
        return self._publish(self.agent.tick(progress, turn), told)

    def _publish(self, t: int, arrays: list[Any], talk: int = 0) -> list[Any]:
        envelope = Envelope(self.run_digest, self.agent.number, t, talk)
        try:
            self.service.publish(t, frame.encode(envelope, arrays), talk)
        except FrameError as cause:
            what = "what it measures" if talk else "its message"
            raise FloatingPointError(
                f"{self.name} diverged in round {t // self.agent.exchanges}: {what} has {cause}; "
                f"start again with smaller steps"
            ) from None
        return arrays

    async def _hear(self, t: int) -> dict[int, list[Any] | None]:
        """The messages of all neighbours of exchange t; None where the edge is down."""
        neighbours = self.agent.neighbours
        found = await all_of(self._message(j, t) for j in neighbours)
        self.service.outbox.trim()
        return dict(zip(neighbours, found))

    async def _message(self, j: int, t: int) -> list[Any] | None:
        if self.edges is None:
            return await self.asking.pull(j, t)
        with self.heard[j].awaited():
            found = await self.edges.settle(j, t)
        if found is not None:
            self.heard[j].round = t // self.agent.exchanges
        return found

    async def _save(self, progress: Progress) -> None:
        """A checkpoint; only then do neighbours hear that they may forget."""
        if self.folder is None:
            self.service.durable = self.agent.tick(progress)
        else:
            await self.work(
                checkpoints.save, self.folder, self.run_digest, progress, self.service.outbox
            )
            self.service.durable = self.agent.exchanges * checkpoints.safe(self.folder)
        if self.edges:
            await self.edges.turn(
                self.agent.tick(progress), self.service.durable, self.service.outbox.floor
            )

    async def _leave(self) -> None:
        """Stay until every neighbour has finished too and knows of this one.

        The last checkpoint is read back first: whoever says it has finished is never set back.
        """
        if self.folder is not None:
            check = Outbox(self.agent.neighbours)
            restored = checkpoints.restore(self.folder, self.run_digest, self.agent.begin(), check)
            if restored.t != self.rounds:
                raise OSError(f"{self.folder}: the last checkpoint cannot be read back")
        self.service.durable = self.last
        self._publish(self.last, [])
        await self.asking.part(self.edges)

    def status(self) -> dict[str, Any]:
        """Where the agent stands and whom it waits for, as plain data."""
        state = "stopping" if self.halt.asked else "running"
        if self.t == self.rounds:
            state = "finished"
        elif self.edges and self.edges.stuck:
            state = "stuck"
        waiting = [
            {"agent": j, "seconds": heard.waiting(), "why": self.waits[j].last}
            for j, heard in self.heard.items()
            if heard.since is not None
        ]
        away = sorted(self.edges.away) if self.edges else []
        where = {"agent": self.agent.number, "round": self.t, "rounds": self.rounds}
        return where | {"state": state, "waiting": waiting, "away": away}

    async def answer(self, sender: int, request: bytes) -> bytes:
        """See `Service.answer`."""
        return await self.service.answer(sender, request)


def _clock() -> float:
    return asyncio.get_running_loop().time()
