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

Every vote is on the disk before it is sent or acted on (`ledger`). Therefore:

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
from typing import Any, TypeVar

from . import wire_format
from .call_errors import Refused, Unreachable
from .edge_journal import DOWN, UP, YES, EdgeJournal
from .outbox import NEVER
from .site_names import UNKNOWN, Names, called
from .timeouts import PAUSES, Limits, Wait, insist
from .wire_format import REQUEST, Ask, Frame, FrameError, NotFinite
from .worker_thread import Work

T = TypeVar("T")
STUCK = "stuck"
MANY = 1000  # maximum number of down rounds in one response
SHORT = 64  # bytes; votes are shorter, messages are not
Call = Callable[[int, str, int], Awaitable[Frame]]  # (neighbour, kind, round) -> answer


class Absent(Exception):
    """Error: the round continues without a neighbour; `told` if its own vote says so.

    The vote may hold for all rounds before `until`.
    """

    def __init__(self, told: bool, until: int | None = None):
        self.told, self.until = told, until


class Edges:
    """All edges of agent `agent`; the ledger has their state in each round.

    `call` requests a neighbour's message ("ask") or vote ("word") of a round; `read` decodes a
    message or raises `FrameError`; `greet` tries once to reach a neighbour.
    """

    def __init__(
        self,
        agent: int,
        ledger: EdgeJournal,
        limits: Limits,
        waits: dict[int, Wait],
        call: Call,
        read: Callable[[int, int, Frame], list[Any]],
        greet: Callable[[int], Awaitable[Any]],
        work: Work,
        names: Names = UNKNOWN,
    ):
        self.names = names
        self.agent, self.ledger, self.limits, self.waits = agent, ledger, limits, waits
        self.call, self.read, self.greet, self.work = call, read, greet, work
        self.wake: Callable[[], None] = lambda: None  # wakes those who wait for a vote
        self.note: Callable[[str, str], None] = lambda name, line: None  # for the log
        self.away: dict[int, asyncio.Task[None]] = {}  # neighbours being searched
        self.stuck: set[int] = set()  # neighbours whose decision this agent needs
        self._in_hand: dict[int, int] = {}  # neighbour to the round of its received message
        self._writing, self._closed = asyncio.Lock(), False

    async def meet(self, j: int) -> None:
        """Greet j before the first round; j may be absent."""
        try:
            await self._insist(
                lambda: self.greet(j), f"greeting of {called(self.names, j)}", j, NEVER
            )
        except Absent:
            pass  # the search continues

    async def settle(self, j: int, t: int) -> list[Any] | None:
        """Return the message of j in round t; None if the edge is down, at both ends."""
        word = self.ledger.word(j, t)
        if word == DOWN:
            return None
        if word == UP and (j, t) in self.ledger.heard:
            return self.read(j, t, self.ledger.heard[j, t])
        while True:
            try:
                return await self._exchange(j, t)
            except Absent as absent:
                alone = not absent.told
                if await self._commit(j, t, DOWN, alone=alone, until=absent.until):
                    return None

    async def _exchange(self, j: int, t: int) -> list[Any]:
        """Return the message of j once the edge is up."""
        if j in self.away and self.ledger.word(j, t) == "":
            if self.away[j].done():
                self.away[j].result()  # raises the error of the search
            raise Absent(told=False)
        try:
            message, arrays = await self._message(j, t)
            self._in_hand[j] = t
            self.wake()
            await self._agree(j, t)
        finally:
            self.stuck.discard(j)
        await self._commit(j, t, UP, message)
        return arrays

    async def reply(self, ask: Ask, kind: str) -> Frame | None:
        """Return the answer to j about the edge in that round; None if it is not settled yet."""
        j, t = ask.sender, ask.round
        leads = self.agent < j
        if kind == "word" and not leads and self._in_hand.get(j) == t:
            await self._commit(j, t, YES)
        held = self.ledger.word(j, t)
        if held == DOWN:
            return tell(DOWN, min(self.ledger.words[j].until(t), t + MANY))
        if kind == "word" and held:
            return tell(UP if leads else YES)
        return None

    async def turn(self, t: int, safe: int, wanted: int) -> None:
        """See `EdgeJournal.turn`."""
        async with self._writing:
            await self.work(self.ledger.turn, t, safe, wanted)

    async def farewell(self, j: int, rounds: int) -> None:
        """Wait until j has finished, unless it is absent."""
        try:
            if j not in self.away:
                await self._message(j, rounds)
        except Absent:
            if j not in self.away:  # but stuck; if it needs this agent's vote, it asks soon
                await asyncio.sleep(self.limits.connect + PAUSES[1])

    async def close(self) -> None:
        """Stop all searches."""
        for task in self.away.values():
            task.cancel()
        await asyncio.gather(*self.away.values(), return_exceptions=True)
        async with self._writing:
            self._closed = True
            self.ledger.close()

    async def _message(self, j: int, t: int) -> tuple[Frame, list[Any]]:
        """Return the message of j, encoded and decoded; raises `Absent` if the edge is down."""

        async def attempt() -> tuple[Frame, list[Any]] | None:
            answer = await self.call(j, "ask", t)
            if len(answer) > SHORT:
                return answer, self._read(j, t, answer)
            self._heed(j, t, *hear(answer))
            return None

        return await self._insist(attempt, f"message of round {t} of {called(self.names, j)}", j, t)

    def _read(self, j: int, t: int, answer: Frame) -> list[Any]:
        """Decode a message of j; raises `Absent` if it is not finite."""
        try:
            return self.read(j, t, answer)
        except NotFinite as cause:
            if self._bound(j, t):
                raise
            self.note(called(self.names, j), f"its message of round {t} has {cause}: not used")
            raise Absent(told=False) from None

    async def _agree(self, j: int, t: int) -> None:
        """Wait until j votes yes, or up if j leads; raises `Absent` if j votes down."""
        good = YES if self.agent < j else UP

        async def attempt() -> bool | None:
            said, until = hear(await self.call(j, "word", t))
            self._heed(j, t, said, until)
            return True if said == good else None

        await self._insist(attempt, f"word of {called(self.names, j)} on round {t}", j, t)

    def _heed(self, j: int, t: int, said: str, until: int) -> None:
        if said == DOWN:
            raise Absent(told=True, until=until if t < until <= t + MANY else None)
        if said == STUCK and not self._bound(j, t):
            raise Absent(told=False)

    async def _insist(
        self, attempt: Callable[[], Awaitable[T | None]], whose: str, j: int, t: int
    ) -> T:
        return await insist(attempt, whose, self.limits, self.waits[j], self._silent(j, t))

    def _bound(self, j: int, t: int) -> bool:
        """Return whether only j can decide the state of the edge."""
        return self.ledger.word(j, t) in (YES, UP)

    def _silent(self, j: int, t: int) -> Callable[[], None]:
        """Return the handler of j's silence in round t."""

        def silent() -> None:
            if self._bound(j, t):
                self.stuck.add(j)
                self.wake()
                return
            self._seek(j)
            raise Absent(told=False)

        return silent

    async def _commit(
        self,
        j: int,
        t: int,
        word: str,
        message: Frame = b"",
        alone: bool = False,
        until: int | None = None,
    ) -> bool:
        """Write a vote completely, even if its requester stops waiting.

        Returns whether the vote holds: while j is awaited, it cannot be declared absent `alone`.
        """

        async def write() -> bool:
            async with self._writing:
                held = self.ledger.word(j, t)
                if self._closed:
                    return False
                if {held, word} == {UP, DOWN} and not alone:
                    raise Refused(
                        f"round {t} is {held} here and {word} at "
                        f"{called(self.names, j)}: one of the two has "
                        f"lost its journal; restore its newer checkpoint"
                    )
                if held == "" or (held == YES and word != YES and not alone):
                    await self.work(self.ledger.write, j, t, word, message, until)
            self.wake()
            return self.ledger.word(j, t) == word

        return await asyncio.shield(asyncio.ensure_future(write()))

    def _seek(self, j: int) -> None:
        """Greet j repeatedly in the background until it answers."""
        if j not in self.away:
            self.away[j] = asyncio.ensure_future(self._sought(j))

    async def _sought(self, j: int) -> None:
        pause = PAUSES[0]
        while True:
            try:
                async with asyncio.timeout(self.limits.round):
                    await self.greet(j)
                del self.away[j]
                return
            except (Unreachable, FrameError, TimeoutError) as cause:
                self.waits[j].last = str(cause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSES[1])


def tell(word: str, until: int = 0) -> Frame:
    """Encode a vote; if the edge is down, for all rounds before `until`."""
    return wire_format.pack({"kind": "word", "word": word, "until": until})


def hear(answer: Frame) -> tuple[str, int]:
    """Decode a vote, empty if there is none yet, and the round before which it holds."""
    if not answer:
        return "", 0
    header, _ = wire_format.unpack(answer, REQUEST)
    if header.get("kind") != "word" or header.get("word") not in (UP, DOWN, YES, STUCK):
        raise FrameError("an answer that is neither a message nor a word")
    if type(header.get("until")) is not int:
        raise FrameError("a word that does not say of which rounds")
    return str(header["word"]), header["until"]
