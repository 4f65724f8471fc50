"""Rounds without absent neighbours: both ends of an edge agree on its state in each round.

If an edge is up in round t, both ends use each other's message. If it is down, each end uses its
own message in place of the other's, so that the weight moves to the diagonal at both. The matrix of
every round is then symmetric and doubly stochastic, and the trackers keep sum_i u_i = sum_i p_i
over all agents, absent ones included: when they return, they run the missed rounds alone, as the
others have assumed.

Both ends must take the same decision, each with its own clock, either one killed at any time,
without a third party. The end with the lower number, i, leads; the other, j, follows:

    1. Each requests the other's message of round t.
    2. i, having j's message, requests j's vote. j, having i's message, votes "yes", and is bound
       by i's decision from then on.
    3. i, having that yes, decides "up". j requests i's vote, and does the same.
    4. An end that receives nothing for the time limit of a round, or a message with numbers that
       are not finite, declares the edge down: i always may, j unless it has voted yes. It answers
       "down" to every later request about this round.

Every vote is on the disk before it is sent or acted on (`edge_journal`). Therefore:

    i up    =>  j has voted yes  =>  j never declares down by itself, and receives "up" from i
    j up    =>  i has decided up
    j down by itself  =>  j never votes yes  =>  i is never up

A silent neighbour is absent: later rounds are down immediately, without requests, until it answers
a greeting. When it returns, one response tells it all rounds that were down meanwhile, so it runs
them without further requests or writes. A neighbour that answers "not yet" is alive and is waited
for, in particular while it catches up.

Every agreement over an unreliable link has a moment in which one end does not know (the two
generals); here it is the flight of one small request, between yes and up. If i disappears in that
moment, j cannot know whether i has used its message. j waits for i, and answers requests with the
notice that it is stuck, so that others do not wait for j. If i has finished meanwhile, it can be
restarted to answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..memory.edge_journal import EdgeJournal
from ..memory.outbox import NEVER
from ..transport import messages
from ..transport.errors import Refused, Unreachable
from ..transport.messages import DOWN, MAX_VOTE_BYTES, STUCK, UP, YES, RoundRequest, Vote
from ..transport.timeouts import RETRY_PAUSES, retry_until_answered
from ..transport.wire_format import Frame, FrameError, Layout, NotFinite

if TYPE_CHECKING:
    from .node import Node

T = TypeVar("T")
MAX_DOWN_ROUNDS = 1000  # in one response


class NeighbourAbsent(Exception):
    """Error: the round continues without a neighbour; `by_vote` if its own vote says so.

    The vote may hold for all rounds before `until`.
    """

    def __init__(self, by_vote: bool, until: int | None = None):
        self.by_vote, self.until = by_vote, until


class EdgeStates:
    """All edges of the agent of a node; the journal has their state in each round."""

    def __init__(self, node: "Node", journal: EdgeJournal):
        self.agent, self.journal, self.timeouts = node.agent.number, journal, node.timeouts
        self.wait_records, self.run_blocking = node.wait_records, node.run_blocking
        client, service = node.client, node.service
        self.request, self.decode = client.request_once, client.decode_message
        self.greet = client.greet
        self.site_name, self.log_event = service.site_name, service.audit.record_event
        self.notify_waiting = service.notify_waiting  # about a new vote
        self.absent: dict[int, asyncio.Task[None]] = {}  # searches by neighbour
        self.is_leaving: Callable[[int], bool] = lambda j: False  # before the next epoch
        self.stuck: set[int] = set()  # neighbours whose decision this agent needs
        self._received_round: dict[int, int] = {}  # neighbour to the round of its received message
        self._write_lock, self._closed = asyncio.Lock(), False

    async def greet_neighbour(self, j: int) -> None:
        """Greet j before the first round; j may be absent."""
        await self.await_answer(j, lambda: self.greet(j), f"greeting of {self.site_name(j)}")

    async def await_answer(
        self, j: int, attempt: Callable[[], Awaitable[Any]], description: str
    ) -> Any:
        """Return an answer of j that concerns no round; None if j is absent, and is searched."""
        with suppress(NeighbourAbsent):
            return await self._retry(attempt, description, j, NEVER)

    async def fetch_point(
        self, j: int, t: int, consensus_step: int, layout: Layout
    ) -> list[Any] | None:
        """Return the point of j for an agent that joins before exchange t.

        None: there was no answer; empty: j has finished the epoch that begins there.
        """

        async def attempt() -> list[Any] | None:
            if j in self.absent:
                if not await self.greet(j):  # it is still in an earlier epoch
                    return None
                if (search := self.absent.pop(j, None)) is not None:
                    search.cancel()
            answer = await self.request(j, messages.MessageRequest, t, consensus_step)
            if answer and len(answer) <= MAX_VOTE_BYTES:
                return [] if Vote.read(answer).vote == DOWN else None
            return self.decode(j, t, answer, consensus_step, layout) if answer else None

        answer: list[Any] | None = await self.await_answer(j, attempt, f"x of {self.site_name(j)}")
        return answer

    async def agree_on_message(self, j: int, t: int) -> list[Any] | None:
        """Return the message of j in round t; None if the edge is down, at both ends."""
        vote = self.journal.edge_vote(j, t)
        if vote == DOWN:
            return None
        if vote == UP and (j, t) in self.journal.messages:
            return self.decode(j, t, self.journal.messages[j, t], is_stored=True)
        while True:
            try:
                return await self._receive_if_up(j, t)
            except NeighbourAbsent as absent:
                alone, until = not absent.by_vote, self._down_until(j, absent.until)
                if await self._commit_vote(j, t, DOWN, alone=alone, until=until):
                    return None

    def _down_until(self, j: int, until: int | None) -> int | None:
        """Return the round before which the edge to j is down, by the vote of j."""
        return until

    def is_away(self, j: int) -> bool:
        """Return whether rounds continue without j until it returns."""
        if j in self.absent and self.absent[j].done():
            self.absent[j].result()  # raises the error of the search
        return j in self.absent

    async def _receive_if_up(self, j: int, t: int) -> list[Any]:
        """Return the message of j once the edge is up."""
        if self.journal.edge_vote(j, t) == "" and self.is_away(j):
            raise NeighbourAbsent(by_vote=False)
        try:
            message, arrays = await self._request_message(j, t)
            self._received_round[j] = t
            self.notify_waiting()
            await self._await_vote(j, t)
        finally:
            self.stuck.discard(j)
        await self._commit_vote(j, t, UP, message)
        return arrays

    async def answer_request(self, request: RoundRequest) -> Frame | None:
        """Return the answer to j about the edge in that round; None if it is not settled yet."""
        j, t = request.sender, request.round
        leads, wants_vote = self.agent < j, isinstance(request, messages.VoteRequest)
        if wants_vote and not leads and self._received_round.get(j) == t:
            await self._commit_vote(j, t, YES)
        vote = self.journal.edge_vote(j, t)
        if vote == DOWN:
            return Vote(DOWN, self._announced_end(j, t)).encode()
        if wants_vote and vote:
            return Vote(UP if leads else YES).encode()
        return None

    def _announced_end(self, j: int, t: int) -> int:
        """Return the round before which j may take the edge as down, from round t on."""
        return min(self.journal.votes[j].next_change(t), t + MAX_DOWN_ROUNDS)

    async def skip(self, first: int, end: int) -> None:
        """Skip these exchanges: all edges are down in them."""

        async def write() -> None:
            async with self._write_lock:
                if not self._closed:
                    await self.run_blocking(self.journal.write_skip, first, end)
            self.notify_waiting()

        await asyncio.shield(asyncio.ensure_future(write()))

    async def rotate_journal(self, t: int, safe: int, needed: int) -> None:
        """See `EdgeJournal.rotate`."""
        async with self._write_lock:
            await self.run_blocking(self.journal.rotate, t, safe, needed)

    async def await_finish(self, j: int, rounds: int) -> None:
        """Wait until j has finished, unless it is absent."""
        try:
            if j not in self.absent:
                await self._request_message(j, rounds)
        except NeighbourAbsent:
            if j not in self.absent:  # but stuck; if it needs this agent's vote, it asks soon
                await asyncio.sleep(self.timeouts.connect + RETRY_PAUSES[1])

    async def close(self) -> None:
        """Stop all searches."""
        for task in self.absent.values():
            task.cancel()
        await asyncio.gather(*self.absent.values(), return_exceptions=True)
        async with self._write_lock:
            self._closed = True
            self.journal.close()

    async def _request_message(self, j: int, t: int) -> tuple[Frame, list[Any]]:
        """Return j's message, encoded and decoded; raises `NeighbourAbsent` if the edge is down."""

        async def attempt() -> tuple[Frame, list[Any]] | None:
            answer = await self.request(j, messages.MessageRequest, t)
            if len(answer) > MAX_VOTE_BYTES:
                return answer, self._decode_or_skip(j, t, answer)
            self._check_vote(j, t, Vote.read(answer))
            return None

        return await self._retry(attempt, f"message of round {t} of {self.site_name(j)}", j, t)

    def _decode_or_skip(self, j: int, t: int, answer: Frame) -> list[Any]:
        """Decode a message of j; raises `NeighbourAbsent` if it is not finite."""
        try:
            return self.decode(j, t, answer)
        except NotFinite as cause:
            if self._is_bound(j, t):
                raise
            self.log_event(self.site_name(j), f"its message of round {t} has {cause}: not used")
            raise NeighbourAbsent(by_vote=False) from None

    async def _await_vote(self, j: int, t: int) -> None:
        """Wait until j votes yes, or up if j leads; raises `NeighbourAbsent` if j votes down."""
        good = YES if self.agent < j else UP

        async def attempt() -> bool | None:
            answer = Vote.read(await self.request(j, messages.VoteRequest, t))
            self._check_vote(j, t, answer)
            return True if answer.vote == good else None

        await self._retry(attempt, f"word of {self.site_name(j)} on round {t}", j, t)

    def _check_vote(self, j: int, t: int, answer: Vote) -> None:
        if answer.vote == DOWN:
            is_valid = t < answer.until <= t + MAX_DOWN_ROUNDS
            raise NeighbourAbsent(by_vote=True, until=answer.until if is_valid else None)
        if answer.vote == STUCK and not self._is_bound(j, t):
            raise NeighbourAbsent(by_vote=False)

    async def _retry(
        self, attempt: Callable[[], Awaitable[T | None]], description: str, j: int, t: int
    ) -> T:
        return await retry_until_answered(
            attempt,
            description,
            self.timeouts,
            self.wait_records[j],
            on_silence=partial(self._handle_silence, j, t),
        )

    def _is_bound(self, j: int, t: int) -> bool:
        """Return whether only j can decide the state of the edge."""
        return self.journal.edge_vote(j, t) in (YES, UP)

    def _handle_silence(self, j: int, t: int) -> None:
        """Continue without j, or wait if only j can decide round t."""
        is_bound = self._is_bound(j, t)
        if is_bound and not self.is_leaving(j):
            self.stuck.add(j)
            self.notify_waiting()
            return
        if j not in self.absent:
            self.absent[j] = asyncio.ensure_future(self._search(j))
        raise NeighbourAbsent(by_vote=is_bound)

    async def _commit_vote(
        self,
        j: int,
        t: int,
        vote: str,
        message: Frame = b"",
        *,
        alone: bool = False,
        until: int | None = None,
    ) -> bool:
        """Write a vote completely, even if its requester stops waiting.

        Returns whether the vote holds: while j is awaited, it cannot be declared absent `alone`.
        """

        async def write() -> bool:
            async with self._write_lock:
                current = self.journal.edge_vote(j, t)
                if self._closed:
                    return False
                if {current, vote} == {UP, DOWN} and not alone:
                    raise Refused(
                        f"round {t} is {current} here and {vote} at "
                        f"{self.site_name(j)}: one of the two has lost its journal; restore its "
                        f"newer checkpoint"
                    )
                if current == "" or (current == YES and vote != YES and not alone):
                    await self.run_blocking(self.journal.write, j, t, vote, message, until)
            self.notify_waiting()
            return self.journal.edge_vote(j, t) == vote

        return await asyncio.shield(asyncio.ensure_future(write()))

    async def _search(self, j: int) -> None:
        """Greet j repeatedly in the background until it answers."""
        pause = RETRY_PAUSES[0]
        while True:
            try:
                async with asyncio.timeout(self.timeouts.round):
                    has_answered = await self.greet(j)
                if has_answered:
                    del self.absent[j]
                    return
                pause = RETRY_PAUSES[0]  # it is still in an earlier epoch
            except (Unreachable, FrameError, TimeoutError) as cause:
                self.wait_records[j].last_error = str(cause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_PAUSES[1])
