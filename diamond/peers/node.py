"""One agent among its neighbours: gets their messages, round by round.

What is to come is ordered once (`following`). Everything can be asked for as well, and a request
changes nothing but what the asker will never want again, so any of them can be repeated, doubled or
lost. An agent is never more than a round ahead of a neighbour, since it needs that neighbour's
message; one that is set back to its checkpoint asks again for what it has heard since, and tells
the same bits once more.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakSet

from ..machine.compiling_once import first_alone
from ..numbers.open_numbers import open_numbers
from . import checkpoints, onward
from .agent import Agent
from .client import NeighbourClient, Transport
from .edge_journal import DOWN, EdgeJournal
from .edge_states import Edges
from .errors import Stopped
from .exchanges import Exchanges
from .following import Feed
from .frame import Frame
from .going_back import Clock, WentBack, marked
from .handshake import digest
from .outbox import Outbox
from .progress import Progress
from .service import Service
from .shutdown import Halted, Shutdown
from .site_names import Names, called
from .timeouts import Limits
from .worker_thread import Brisk, Work

Missing = Literal["wait", "continue"]
BRIEF_WORK = ("think", "tell", "step", "end")  # that may be done at once
WARM: WeakSet[Agent] = WeakSet()  # agents of this process whose rounds are compiled


class Looked(NamedTuple):
    """What was so at the end of a round that is measured while the next ones are made."""

    messages: list[dict[int, list[Any]]]  # of each exchange, the agent's own among them
    seconds: float
    waited: float


@dataclass
class Node:
    """The agent's run of `rounds` rounds; `folder` keeps a checkpoint every `every` of them.

    Without a folder nothing survives a crash. `work` runs what blocks. `on_round` is called where
    the agent stands at first and after every round. Where a checkpoint is due, it is called before
    that, while the next rounds are made, and finds in `looked` what was so; in between it is brief.
    `missing` says what to do about a neighbour that is away: wait, or continue, see `edges`.
    """

    agent: Agent
    rounds: int
    transport: Transport
    folder: Path | None = None
    every: int = 10
    limits: Limits = field(default_factory=Limits)
    work: Work = field(default_factory=lambda: Brisk(BRIEF_WORK))
    on_round: Callable[[Progress], None] | None = None
    missing: Missing = "wait"
    names: Names = field(default_factory=dict)  # of the sites, by the numbers of their agents
    on_ready: Callable[[], None] = lambda: None  # all is compiled, and the next round begins

    def __post_init__(self) -> None:
        start = "onward" if onward.begun(self.folder) else "anew"
        self.parts = digest(self.agent, self.rounds, self.missing, start)
        self.run_digest = self.parts["run"]
        who = self.agent.number, self.agent.neighbours
        self.clock = Clock(self.agent, self.rounds, self.missing == "continue")
        self.last = self.clock.last
        self.service = Service(
            *who, self.parts, self.last, self.limits, self.work, self.folder, self.names
        )
        self.asking = NeighbourClient(
            self.agent, self.parts, self.transport, self.limits, self.service, self.clock
        )
        self.waits, self.heard = self.asking.waits, self.asking.heard
        self.seconds = 0.0  # of rounds, and of waiting for what is done beside them
        self.looked = Looked([], 0.0, 0.0)
        self._saving: asyncio.Task[None] | None = None  # a checkpoint
        self.compiling = 0.0  # seconds before the first of them
        self.greeting = 0.0  # seconds until all neighbours were there
        self.t = 0  # rounds made
        self.progress: Progress | None = None  # where the agent stands
        self.halt = Shutdown(self.limits.connect)
        self.service.status, self.service.stop = self.status, self.halt.ask
        self.edges = self._edges() if self.missing == "continue" else None
        means = self.service, self.asking, self.edges, self.work, self.name, self.clock
        self.exchanges = Exchanges(self.agent, self.run_digest, *means)

    @property
    def name(self) -> str:
        """What the agent is called."""
        return called(self.names, self.agent.number)

    @property
    def waited(self) -> float:
        """Seconds of rounds without work of its own."""
        return self.exchanges.waited

    def _edges(self) -> Edges:
        if self.agent.network.channels:
            raise ValueError(
                "compressed messages build on one another, so that none may be missing: run with "
                "missing='wait', or a network without channels"
            )
        place = self.folder / "journal" if self.folder else None
        ledger = EdgeJournal(self.agent.neighbours, self.run_digest, place)
        ways = self.asking.call, self.asking.read, self.asking.hello
        means = self.limits, self.waits, *ways, self.work
        edges = self.service.edges = Edges(self.agent.number, ledger, *means, self.names)
        edges.wake, edges.note = self.service.wake, self.service.audit.note
        self.service.outbox.spared = lambda j, t: ledger.word(j, t) == DOWN
        return edges

    async def run(self) -> Progress:
        """All rounds, from the checkpoint if there is one; returns once no neighbour needs more."""
        progress = self.agent.begin()
        if self.folder:
            into = self.service.outbox, self.agent.exchanges
            progress = checkpoints.restore(self.folder, self.run_digest, progress, *into)
            if progress.clock:
                progress = self.agent.numbered(progress)
            self.service.gone = progress.base * self.agent.exchanges
            self.asking.begun = self.agent.tick(progress)
            safe = self.agent.exchanges * checkpoints.safe(self.folder)
            self.service.durable = min(safe, self.agent.tick(progress))
            self.service.finished = checkpoints.finished(self.folder, self.run_digest)
            if self.agent.number in self.service.finished:
                self.asking.begun = self.last
        try:
            if self.edges:
                self.edges.ledger.restore(self.agent.tick(progress))
            begun = _clock()
            moved = progress.clock == 0 and onward.begun(self.folder)
            all_talk = progress.clock == 0 and (moved or open_numbers(self.agent.given))
            await self.halt.unless(self.asking.meet(None if all_talk else self.edges))
            self.greeting = _clock() - begun
            if progress.clock == 0:
                begun = _clock()
                if moved and self.folder is not None:
                    own = onward.point(self.folder, progress.state)
                    progress = await self.halt.unless(self.exchanges.take_up(own))
                progress = await self.halt.unless(self.exchanges.find(progress))
                self.seconds += _clock() - begun
            self.looked = Looked([], self.seconds, self.waited)
            await self._show(progress)
            if progress.t < self.rounds and self.agent not in WARM:
                await self._warm(progress)
            self.on_ready()
            while progress.t < self.rounds or not await self._all_made(progress):
                begun = _clock()
                progress = await self.halt.unless(self._round(progress))
                self.seconds += _clock() - begun
                begun = _clock()
                self.t, self.progress = progress.t, progress
                if self._due(progress):
                    await self._saved()
                    self.looked = Looked(self.exchanges.messages, self.seconds, self.waited)
                    kept = self.service.outbox.copy()
                    self._saving = asyncio.ensure_future(self._beside(progress, kept))
                    await asyncio.sleep(0)  # it begins now
                elif self.on_round is not None:
                    self.on_round(progress)
                self.seconds += _clock() - begun
                if self.halt.asked:
                    raise Halted
            await self._saved()
            await self.halt.unless(self._leave())
        except Halted:
            await self._saved()
            if 0 < progress.clock and progress.t < self.rounds:
                await self._save(progress, self.service.outbox.copy())
            raise Halted(f"stopped after round {progress.t} of {self.rounds}, as asked") from None
        except (FloatingPointError, Stopped) as error:
            self.service.fail(str(error))
            await asyncio.sleep(self.limits.connect)  # so that the neighbours hear of it
            raise
        finally:
            self.asking.close()
            if self._saving is not None:
                self._saving.cancel()
                await asyncio.gather(self._saving, return_exceptions=True)
            if self.edges:
                await self.edges.close()
        return progress

    async def _round(self, progress: Progress) -> Progress:
        """One round, and after some of them the numbers found anew, by all or not at all.

        Where the run is lost, here or at another agent, it goes back.
        """
        try:
            if progress.t == self.rounds:  # made, and not by all: one has gone back
                return await self.exchanges.back(progress, None)
            after = await self.exchanges.round(progress)
            await self.exchanges.look(after)
            if self.edges is None and self.agent.renews(after):
                found = await self.exchanges.find(after)
                if found.base > after.base:
                    return found
                after = found
            return marked(after) if self.clock.back else after
        except WentBack:
            return await self.exchanges.back(progress, None)
        except FloatingPointError:
            if not self.clock.shrinks(progress):
                raise
            return await self.exchanges.back(progress, progress.t)

    async def _all_made(self, progress: Progress) -> bool:
        """Whether all agents have made all rounds, which is remembered; False if one went back."""
        me = self.agent.number
        try:
            if self.clock.back and me not in self.service.finished:
                await self.halt.unless(self.exchanges.done(progress))
                await self.service.know(me)
        except WentBack:
            return False
        return True

    async def _show(self, progress: Progress) -> None:
        self.t, self.progress = progress.t, progress
        if self.on_round is not None:
            await self.work(first_alone, f"{self.run_digest}-look", self.on_round, progress)

    async def _beside(self, progress: Progress, kept: Outbox) -> None:
        """What is done every so many rounds while the next ones are made: measure, then save."""
        if self.on_round is not None:
            await self.work(self.on_round, progress)
        await self._save(progress, kept)

    def _due(self, progress: Progress) -> bool:
        return progress.t % self.every == 0 or progress.t == self.rounds

    async def _warm(self, progress: Progress) -> None:
        """Compile the gradient work of a round, so that its seconds are those of computing.

        What comes of it is thrown away; the vector operations of a round's end are not worth it.
        """

        def play() -> None:
            for turn in range(self.agent.exchanges):
                self.agent.tell(progress, turn, self.agent.think(progress, turn))

        begun = _clock()
        await self.work(first_alone, f"{self.run_digest}-round", play)
        self.compiling = _clock() - begun
        WARM.add(self.agent)

    async def _saved(self) -> None:
        """Until the checkpoint that is being written is on the disk."""
        if self._saving is not None:
            await self._saving

    async def _save(self, progress: Progress, kept: Outbox) -> None:
        """A checkpoint, with the messages; only then do neighbours hear that they may forget."""
        if self.folder is None:
            self.service.durable = self.agent.tick(progress)
        else:
            given = self.folder, self.run_digest, progress, kept
            self.service.outbox.written(await self.work(checkpoints.save, *given))
            self.service.durable = self.agent.exchanges * checkpoints.safe(self.folder)
        self.asking.forget()
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
        self.exchanges.publish(self.last, [])
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

    async def answer(self, sender: int, request: Frame) -> Frame | Feed:
        """See `Service.answer`."""
        return await self.service.answer(sender, request)


def _clock() -> float:
    return asyncio.get_running_loop().time()
