"""Latest message of every neighbour, for asynchronous rounds (`asynchronous_mixing`).

A neighbour's messages come by subscription, and only the newest is kept: its version is the round
in which its sender made it. The first round waits for a message of every neighbour; no later round
waits. Which versions a round uses is in the journal, with the messages that are new, before the
round's result is sent. A restarted agent repeats these rounds with the same messages, so that it
sends the same bits again, and a simulation of all journals repeats the run (`engine.site_replay`).
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..memory.edge_journal import EdgeJournal
from ..transport import wire_format
from ..transport.errors import Unreachable
from ..transport.timeouts import RETRY_PAUSES
from ..transport.wire_format import Frame, FrameError, max_frame_bytes

if TYPE_CHECKING:
    from .node import Node


class ReceivedMessage(NamedTuple):
    """Message of a neighbour; `version` is the round in which the neighbour made it."""

    version: int
    frame: Frame
    arrays: list[Any]


class LatestMessages:
    """Latest messages of the neighbours of a node; the journal has the versions of each round."""

    def __init__(self, node: "Node", journal: EdgeJournal):
        self.agent, self.client, self.service = node.agent, node.client, node.service
        self.journal, self.timeouts, self.run_blocking = journal, node.timeouts, node.run_blocking
        self.newest: dict[int, ReceivedMessage] = {}
        self._followers: dict[int, asyncio.Task[None]] = {}
        self._greeted = {j: asyncio.Event() for j in self.agent.neighbours}
        self._arrived = {j: asyncio.Event() for j in self.agent.neighbours}
        self._write_lock, self._closed = asyncio.Lock(), False

    async def greet_neighbour(self, j: int) -> None:
        """Follow j from now on, and wait for its greeting, but not for an absent j."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.timeouts.round):
                await self._wait(j, self._greeted[j])

    async def use_messages(self, t: int) -> dict[int, list[Any]]:
        """Return the messages that round t uses and the round before did not, by neighbour."""
        await asyncio.sleep(0)  # receives what has arrived
        chosen, unrecorded = dict[int, list[Any]](), dict[int, tuple[str, Frame]]()
        for j in self.agent.neighbours:
            last, recorded = self._version(j, t - 1), self._version(j, t)
            if recorded >= 0:
                if recorded > last:
                    frame = self.journal.messages[j, t]
                    chosen[j] = self.client.decode_message(j, recorded, frame, is_stored=True)
                continue
            if t == 0:
                with self.client.neighbour_status[j].mark_awaited():
                    await self._wait(j, self._arrived[j])
            if (follower := self._follower(j)).done():
                follower.result()  # raises its error
            message = self.newest.get(j)
            if message is not None and message.version > last:
                chosen[j], unrecorded[j] = message.arrays, (str(message.version), message.frame)
            else:
                unrecorded[j] = str(last), b""
        if unrecorded:
            async with self._write_lock:
                await self.run_blocking(self.journal.write_round, t, unrecorded)
        return chosen

    def has_ended(self, t: int) -> bool:
        """Return whether no message will come after round t: all neighbours have finished."""
        journalled = max(self.journal.votes[j].end for j in self.agent.neighbours)
        return t >= journalled and {*self.agent.neighbours} <= self.service.finished

    async def rotate_journal(self, t: int, safe: int, needed: int) -> None:
        """See `EdgeJournal.rotate`; the versions of the round before `safe` are kept."""
        async with self._write_lock:
            if not self._closed:
                await self.run_blocking(self.journal.rotate, t, safe, max(safe - 1, 0))

    async def close(self) -> None:
        """Stop following the neighbours."""
        for task in self._followers.values():
            task.cancel()
        await asyncio.gather(*self._followers.values(), return_exceptions=True)
        async with self._write_lock:
            self._closed = True
            self.journal.close()

    def _version(self, j: int, t: int) -> int:
        """Return the version of j's message that round t uses; -1 if none is recorded."""
        return int(self.journal.edge_vote(j, t) or -1)

    async def _wait(self, j: int, event: asyncio.Event) -> None:
        """Wait for the event, or for an error of the follower of j."""
        waiting, follower = asyncio.ensure_future(event.wait()), self._follower(j)
        try:
            await asyncio.wait([waiting, follower], return_when=asyncio.FIRST_COMPLETED)
            if follower.done():
                follower.result()
        finally:
            waiting.cancel()

    def _follower(self, j: int) -> asyncio.Task[None]:
        if j not in self._followers:
            self._followers[j] = asyncio.ensure_future(self._follow(j))
        return self._followers[j]

    async def _follow(self, j: int) -> None:
        """Receive messages of j; greet it again whenever the connection fails."""
        pause, record = RETRY_PAUSES[0], self.client.wait_records[j]
        while True:
            try:
                async with asyncio.timeout(self.timeouts.round):
                    await self.client.greet(j)
                self._greeted[j].set()
                pause, record.last_error = RETRY_PAUSES[0], ""
                if self.service.durable == self.client.last_tick:
                    return
                subscription = self.client.subscribe(j, self.service.durable)
                while (content := await subscription.next_message(self.timeouts.round)) is not None:
                    self._receive(j, content)
            except (Unreachable, FrameError, TimeoutError) as cause:
                record.last_error = str(cause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_PAUSES[1])

    def _receive(self, j: int, frame: Frame) -> None:
        """Keep the message if it is newer than the last one."""
        header, _ = wire_format.unpack(frame, max_frame_bytes(self.agent.largest_layout))
        version = header.get("round")
        if type(version) is not int or not 0 <= version < self.client.last_tick:
            raise FrameError(f"a message of {wire_format.shorten(version)}, which is no round")
        if j not in self.newest or version > self.newest[j].version:
            arrays = self.client.decode_message(j, version, frame)
            self.newest[j] = ReceivedMessage(version, frame, arrays)
            self.client.neighbour_status[j].round = version
            self._arrived[j].set()
