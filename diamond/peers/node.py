"""One agent among its neighbours: asks for their messages, round by round.

Everything is pulled, and a request changes nothing but what the asker will never want again, so
any of them can be repeated, doubled or lost. An agent is never more than a round ahead of a
neighbour, since it needs that neighbour's message; one that is set back to its checkpoint asks
again for what it has heard since, and tells the same bits once more.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import frame, saved
from .agent import Agent, Progress
from .agreement import digest
from .desk import Desk
from .frame import Ask, Envelope, FrameError
from .patience import Limits, Wait, insist
from .store import Store
from .threads import Work, threaded
from .transport import REQUEST, Stopped, Transport


@dataclass
class Node:
    """The agent's run of `rounds` rounds; `folder` keeps a checkpoint every `every` of them.

    Without a folder nothing survives a crash. `work` runs what blocks.
    """

    agent: Agent
    rounds: int
    transport: Transport
    folder: Path | None = None
    every: int = 10
    limits: Limits = field(default_factory=Limits)
    work: Work = threaded
    on_round: Callable[[Progress], None] | None = None
    waits: dict[int, Wait] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = digest(self.agent, self.rounds)
        self.run_digest = self.parts["run"]
        who = self.agent.number, self.agent.neighbours
        self.desk = Desk(
            *who, self.parts, self.rounds, self.limits, work=self.work, folder=self.folder
        )
        self.waits = {j: Wait() for j in self.agent.neighbours}

    async def run(self) -> Progress:
        """All rounds, from the checkpoint if there is one; returns once no neighbour needs more."""
        progress = self.agent.begin()
        if self.folder:
            progress = saved.restore(self.folder, self.run_digest, progress, self.desk.store)
            self.desk.durable = min(saved.safe(self.folder), progress.t)
            self.desk.finished = saved.finished(self.folder, self.run_digest)
        try:
            neighbours = self.agent.neighbours
            await all_of(self._greet(j) for j in neighbours if j not in self.desk.finished)
            while progress.t < self.rounds:
                progress = await self._round(progress)
                if progress.t % self.every == 0 or progress.t == self.rounds:
                    await self._save(progress)
                if self.on_round:
                    self.on_round(progress)
            await self._leave()
        except (FloatingPointError, Stopped) as error:
            self.desk.fail(str(error))
            await asyncio.sleep(self.limits.connect)  # so that the neighbours hear of it
            raise
        return progress

    async def _round(self, progress: Progress) -> Progress:
        """Tell, think and hear; in parallel if the message does not depend on the gradients."""
        agent = self.agent
        if agent.early:
            told = self._publish(progress, await self.work(agent.tell, progress, None))
            thinking = asyncio.ensure_future(self.work(agent.think, progress))
            heard = asyncio.ensure_future(self._hear(progress.t))
            try:
                thought, messages = await asyncio.gather(thinking, heard)
            finally:
                thinking.cancel()
                heard.cancel()
        else:
            thought = await self.work(agent.think, progress)
            told = self._publish(progress, await self.work(agent.tell, progress, thought[0]))
            messages = await self._hear(progress.t)
        messages[agent.number] = told
        return await self.work(agent.step, progress, thought, messages)

    def _publish(self, progress: Progress, arrays: list[Any]) -> list[Any]:
        envelope = Envelope(self.run_digest, self.agent.number, progress.t)
        try:
            self.desk.publish(progress.t, frame.encode(envelope, arrays))
        except FrameError as cause:
            raise FloatingPointError(
                f"agent {self.agent.number} diverged in round {progress.t}: its message has "
                f"{cause}; start again with smaller steps"
            ) from None
        return arrays

    async def _hear(self, t: int) -> dict[int, list[Any]]:
        """The messages of all neighbours of round t."""
        neighbours = self.agent.neighbours
        found = await all_of(self._pull(j, t) for j in neighbours)
        return dict(zip(neighbours, found))

    async def _pull(self, j: int, t: int) -> list[Any]:
        async def attempt() -> list[Any] | None:
            ask = Ask(self.run_digest, self.agent.number, t, self.desk.durable)
            answer = await self.transport.call(j, frame.encode_ask(ask))
            if not answer:
                return None
            layout = self.agent.layout if t < self.rounds else ()
            return frame.decode(answer, Envelope(self.run_digest, j, t), layout)

        wanted = f"message of round {t}" if t < self.rounds else "word that it has finished"
        return await insist(attempt, f"{wanted} of agent {j}", self.limits, self.waits[j])

    async def _greet(self, j: int) -> None:
        """Compare what the two ends are about to run."""

        async def attempt() -> bool:
            header = {"kind": "hello", "sender": self.agent.number, "parts": self.parts}
            told, _ = frame.unpack(await self.transport.call(j, frame.pack(header)), REQUEST)
            durable = told.get("durable")
            if type(durable) is not int or not 0 <= durable <= self.rounds:
                raise FrameError("a greeting that does not say up to where it is kept")
            self.desk.store.heard(j, durable)
            return True

        await insist(attempt, f"greeting of agent {j}", self.limits, self.waits[j])

    async def _save(self, progress: Progress) -> None:
        """A checkpoint; only then do neighbours hear that they may forget."""
        if self.folder is None:
            self.desk.durable = progress.t
            return
        await self.work(saved.save, self.folder, self.run_digest, progress, self.desk.store)
        self.desk.durable = saved.safe(self.folder)

    async def _leave(self) -> None:
        """Stay until every neighbour has finished too and knows of this one.

        The last checkpoint is read back first: whoever says it has finished is never set back.
        """
        if self.folder is not None:
            check = Store(self.agent.neighbours)
            restored = saved.restore(self.folder, self.run_digest, self.agent.begin(), check)
            if restored.t != self.rounds:
                raise OSError(f"{self.folder}: the last checkpoint cannot be read back")
        self.desk.durable = self.rounds
        envelope = Envelope(self.run_digest, self.agent.number, self.rounds)
        self.desk.publish(self.rounds, frame.encode(envelope, []))
        await all_of(self._part(j) for j in self.agent.neighbours)

    async def _part(self, j: int) -> None:
        """Until j answers that it has finished, or has asked as one that has.

        Its answer means that it knows of this one. Its question does not, so it may ask again for
        as long as a try takes.
        """

        async def told() -> None:
            await self.desk.known(j)
            await asyncio.sleep(self.limits.connect)

        async def asked() -> None:
            await self._pull(j, self.rounds)
            await self.desk.know(j)

        ways = [asyncio.ensure_future(told()), asyncio.ensure_future(asked())]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
        finally:
            for way in ways:
                way.cancel()

    async def answer(self, sender: int, request: bytes) -> bytes:
        """See `Desk.answer`."""
        return await self.desk.answer(sender, request)


async def all_of(works: Any) -> list[Any]:
    """As `asyncio.gather`, but when one fails the others are stopped."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
