"""Node: one agent that exchanges messages with its neighbours, round by round.

Later messages are subscribed to once (`following`). Everything can be requested as well. A request
only changes what its sender will never need again, so requests can be repeated, duplicated or lost.
An agent is never more than a round ahead of a neighbour, since it needs that neighbour's message;
an agent that is set back to its checkpoint requests the later messages again and sends the same
bits once more.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakSet

from ..hardware.program_cache import first_alone
from ..schedules.deferred import open_numbers
from . import site_checkpoint, warm_restart
from .call_errors import Stopped
from .client import NeighbourClient, Transport
from .edge_journal import DOWN, EdgeJournal
from .edge_states import Edges
from .handshake import digest
from .message_exchange import Exchanges
from .outbox import Outbox
from .round_progress import Progress
from .service import Service
from .shutdown import Halted, Shutdown
from .site_agent import Agent
from .site_names import Names, called
from .site_rollback import Clock, WentBack, marked
from .subscription import Feed
from .timeouts import Limits
from .wire_format import Frame
from .worker_thread import Brisk, Work

Missing = Literal["wait", "continue"]
BRIEF_WORK = ("think", "tell", "step", "end")  # methods that may run inline
WARM: WeakSet[Agent] = WeakSet()  # agents of this process with compiled rounds


class Looked(NamedTuple):
    """State at the end of a round, measured while the next rounds run."""

    messages: list[dict[int, list[Any]]]  # by exchange, the agent's own included
    seconds: float
    waited: float


@dataclass
class Node:
    """Run of an agent over `rounds` rounds; `folder` keeps a checkpoint every `every` rounds.

    Without a folder nothing survives a crash. `work` runs blocking functions. `on_round` is called
    at the start and after every round. If a checkpoint is due, it is called before the checkpoint,
    while the next rounds run, and finds the state of its round in `looked`; otherwise it must be
    brief. `missing` is the treatment of absent neighbours: wait, or continue, see `edges`.
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
    names: Names = field(default_factory=dict)  # names of the sites by agent
    on_ready: Callable[[], None] = lambda: None  # called after compilation, before the first round

    def __post_init__(self) -> None:
        start = "onward" if warm_restart.begun(self.folder) else "anew"
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
        self.seconds = 0.0  # of rounds, and of waiting for background work
        self.looked = Looked([], 0.0, 0.0)
        self._saving: asyncio.Task[None] | None = None  # pending checkpoint
        self.compiling = 0.0  # seconds before the first round
        self.greeting = 0.0  # seconds until all neighbours had answered
        self.t = 0  # finished rounds
        self.progress: Progress | None = None  # state of the agent
        self.halt = Shutdown(self.limits.connect)
        self.service.status, self.service.stop = self.status, self.halt.ask
        self.edges = self._edges() if self.missing == "continue" else None
        means = self.service, self.asking, self.edges, self.work, self.name, self.clock
        self.exchanges = Exchanges(self.agent, self.run_digest, *means)

    @property
    def name(self) -> str:
        """Return the name of the agent."""
        return called(self.names, self.agent.number)

    @property
    def waited(self) -> float:
        """Return the seconds of rounds without own work."""
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
        """Run all rounds, from the checkpoint if any; return once no neighbour needs more."""
        progress = self.agent.begin()
        if self.folder:
            into = self.service.outbox, self.agent.exchanges
            progress = site_checkpoint.restore(self.folder, self.run_digest, progress, *into)
            if progress.clock:
                progress = self.agent.numbered(progress)
            self.service.gone = progress.base * self.agent.exchanges
            self.asking.begun = self.agent.tick(progress)
            safe = self.agent.exchanges * site_checkpoint.safe(self.folder)
            self.service.durable = min(safe, self.agent.tick(progress))
            self.service.finished = site_checkpoint.finished(self.folder, self.run_digest)
            if self.agent.number in self.service.finished:
                self.asking.begun = self.last
        try:
            if self.edges:
                self.edges.ledger.restore(self.agent.tick(progress))
            begun = _clock()
            moved = progress.clock == 0 and warm_restart.begun(self.folder)
            all_talk = progress.clock == 0 and (moved or open_numbers(self.agent.given))
            await self.halt.unless(self.asking.meet(None if all_talk else self.edges))
            self.greeting = _clock() - begun
            if progress.clock == 0:
                begun = _clock()
                if moved and self.folder is not None:
                    own = warm_restart.point(self.folder, progress.state)
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
                    await asyncio.sleep(0)  # starts the task now
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
            await asyncio.sleep(self.limits.connect)  # so that the neighbours receive it
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
        """Run one round, and after some rounds estimate the numbers again, with all agents.

        If the run diverges, here or at another agent, roll back.
        """
        try:
            if progress.t == self.rounds:  # finished here, but another agent has rolled back
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
        """Record and return whether all agents have finished all rounds; False after a rollback."""
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
        """Measure, then save, in the background of the next rounds."""
        if self.on_round is not None:
            await self.work(self.on_round, progress)
        await self._save(progress, kept)

    def _due(self, progress: Progress) -> bool:
        return progress.t % self.every == 0 or progress.t == self.rounds

    async def _warm(self, progress: Progress) -> None:
        """Compile the gradients of a round, so that later times are those of computing.

        The result is discarded; the vector operations at the end of a round compile quickly.
        """

        def play() -> None:
            for turn in range(self.agent.exchanges):
                self.agent.tell(progress, turn, self.agent.think(progress, turn))

        begun = _clock()
        await self.work(first_alone, f"{self.run_digest}-round", play)
        self.compiling = _clock() - begun
        WARM.add(self.agent)

    async def _saved(self) -> None:
        """Wait until the pending checkpoint is on the disk."""
        if self._saving is not None:
            await self._saving

    async def _save(self, progress: Progress, kept: Outbox) -> None:
        """Write a checkpoint with the messages; afterwards neighbours may discard theirs."""
        if self.folder is None:
            self.service.durable = self.agent.tick(progress)
        else:
            given = self.folder, self.run_digest, progress, kept
            self.service.outbox.written(await self.work(site_checkpoint.save, *given))
            self.service.durable = self.agent.exchanges * site_checkpoint.safe(self.folder)
        self.asking.forget()
        if self.edges:
            await self.edges.turn(
                self.agent.tick(progress), self.service.durable, self.service.outbox.floor
            )

    async def _leave(self) -> None:
        """Wait until every neighbour has finished too and knows that this agent has.

        The last checkpoint is verified first, since a finished agent must never be set back.
        """
        if self.folder is not None:
            check = Outbox(self.agent.neighbours)
            restored = site_checkpoint.restore(
                self.folder, self.run_digest, self.agent.begin(), check
            )
            if restored.t != self.rounds:
                raise OSError(f"{self.folder}: the last checkpoint cannot be read back")
        self.service.durable = self.last
        self.exchanges.publish(self.last, [])
        await self.asking.part(self.edges)

    def status(self) -> dict[str, Any]:
        """Return the state of the agent and whom it waits for, as plain data."""
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
