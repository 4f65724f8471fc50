"""Going on without a neighbour that is away: both ends of an edge agree, round by round, on its
state.

Where an edge is up in round t, both ends use each other's message; where it is down, each puts its
own in the other's place, so that the weight falls back on the diagonal at both. Then the matrix of
every round is symmetric and doubly stochastic, and the trackers keep sum_i u_i = sum_i p_i over all
agents, those away among them: they play the rounds they have missed alone when they return, which
is what the others have assumed.

That needs both ends to take the same decision, each with its own clock, any of them killed at any
instant, and no third party to ask. The lower number of the two, i, leads; the other, j, follows:

    1. Each asks the other for its message of round t, as ever.
    2. i, with j's message in hand, asks j for its word. j, with i's message in hand, says "yes",
       and is bound by what i decides from then on.
    3. i, with that yes, decides "up". j asks i for its word, and does as i does.
    4. An end that hears nothing at all for the time of a round, or a message with numbers that are
       not finite, takes the edge for down: i always may, j unless it has said yes. It says "down"
       whenever it is asked about this round again.

Every word is on the disk before it is told or acted on (`ledger`). So:

    i up    =>  j has said yes  =>  j is never down by itself, and hears "up" from i
    j up    =>  i has said up
    j down by itself  =>  j never says yes  =>  i is never up

What is silent is away: nothing is asked of it in later rounds, which are down at once, until it
answers a greeting again. Back, it learns by one answer of all rounds that were down meanwhile, so
it plays them without asking or writing more. What answers "not yet" is alive and is waited for, in
particular while it catches up. No agreement over a link that can break is without a moment in which
one end does not know (the two generals); here it is the flight of one small request, between yes
and up. If i is gone in that moment, j cannot know whether i has used its message. It waits for i,
and tells those who ask that it is stuck, so that they do not wait for j. Should i have finished
meanwhile, it can be started again to say so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from . import frame
from .edge_journal import DOWN, UP, YES, EdgeJournal
from .errors import Refused, Unreachable
from .frame import REQUEST, Ask, Frame, FrameError, NotFinite
from .outbox import NEVER
from .site_names import UNKNOWN, Names, called
from .timeouts import PAUSES, Limits, Wait, insist
from .worker_thread import Work

T = TypeVar("T")
STUCK = "stuck"
MANY = 1000  # rounds that one answer says to be down, at most
SHORT = 64  # bytes; a word is shorter than that, and no message is
Call = Callable[[int, str, int], Awaitable[Frame]]  # (neighbour, kind, round) -> answer


class Absent(Exception):
    """A neighbour that the round is made without; `told` if its own word says so.

    That may be its word on all rounds before `until`.
    """

    def __init__(self, told: bool, until: int | None = None):
        self.told, self.until = told, until


class Edges:
    """All edges of agent `agent`, whose state in each round the ledger knows.

    `call` asks a neighbour for its "ask", the message, or its "word" of a round; `read` makes
    arrays of a message, or raises `FrameError`; `greet` is one try to reach a neighbour.
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
        self.wake: Callable[[], None] = lambda: None  # tells those who wait for a word
        self.note: Callable[[str, str], None] = lambda name, line: None  # for the log
        self.away: dict[int, asyncio.Task[None]] = {}  # neighbours that are sought
        self.stuck: set[int] = set()  # those whose decision this agent cannot do without
        self._in_hand: dict[int, int] = {}  # neighbour to the round of the message that is here
        self._writing, self._closed = asyncio.Lock(), False

    async def meet(self, j: int) -> None:
        """Greet j before the first round; it may be away."""
        try:
            await self._insist(
                lambda: self.greet(j), f"greeting of {called(self.names, j)}", j, NEVER
            )
        except Absent:
            pass  # it is sought

    async def settle(self, j: int, t: int) -> list[Any] | None:
        """The message of j in round t; None if the edge is down, at both ends."""
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
        """The message of j, once the edge is up."""
        if j in self.away and self.ledger.word(j, t) == "":
            if self.away[j].done():
                self.away[j].result()  # what the search for it came to
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
        """What there is to say to j of the edge in that round; None if nothing is settled yet."""
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
        """Until j has finished, too, unless it is away."""
        try:
            if j not in self.away:
                await self._message(j, rounds)
        except Absent:
            if j not in self.away:  # but stuck; if it is this agent's word it needs, it asks soon
                await asyncio.sleep(self.limits.connect + PAUSES[1])

    async def close(self) -> None:
        """Seek nobody any more."""
        for task in self.away.values():
            task.cancel()
        await asyncio.gather(*self.away.values(), return_exceptions=True)
        async with self._writing:
            self._closed = True
            self.ledger.close()

    async def _message(self, j: int, t: int) -> tuple[Frame, list[Any]]:
        """The message of j as it came and as arrays; raises `Absent` if the edge is down."""

        async def attempt() -> tuple[Frame, list[Any]] | None:
            answer = await self.call(j, "ask", t)
            if len(answer) > SHORT:
                return answer, self._read(j, t, answer)
            self._heed(j, t, *hear(answer))
            return None

        return await self._insist(attempt, f"message of round {t} of {called(self.names, j)}", j, t)

    def _read(self, j: int, t: int, answer: Frame) -> list[Any]:
        """The arrays of a message of j; raises `Absent` if they are not finite."""
        try:
            return self.read(j, t, answer)
        except NotFinite as cause:
            if self._bound(j, t):
                raise
            self.note(called(self.names, j), f"its message of round {t} has {cause}: not used")
            raise Absent(told=False) from None

    async def _agree(self, j: int, t: int) -> None:
        """Until j has said yes, if this agent leads, or up; raises `Absent` if it says down."""
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
        """Whether only j can say what became of the edge."""
        return self.ledger.word(j, t) in (YES, UP)

    def _silent(self, j: int, t: int) -> Callable[[], None]:
        """What silence of j in round t means."""

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
        """Write a word down, to the end, even if whoever asked for it stops waiting.

        Returns whether it holds: where j is waited for, it cannot be taken for away `alone`.
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
        """Greet j again and again, beside the rounds, until it answers."""
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
    """A word as an answer; of an edge that is down, all rounds before `until` were."""
    return frame.pack({"kind": "word", "word": word, "until": until})


def hear(answer: Frame) -> tuple[str, int]:
    """The word in an answer, empty if there is none yet, and before which round it holds."""
    if not answer:
        return "", 0
    header, _ = frame.unpack(answer, REQUEST)
    if header.get("kind") != "word" or header.get("word") not in (UP, DOWN, YES, STUCK):
        raise FrameError("an answer that is neither a message nor a word")
    if type(header.get("until")) is not int:
        raise FrameError("a word that does not say of which rounds")
    return str(header["word"]), header["until"]
