"""Deadlines: rounds without neighbours that are late, and rounds that a late agent skips.

A neighbour whose message has not come by the deadline is late: the edge is declared down for this
exchange by the usual votes (`edge_states`), and for later exchanges at once, until the neighbour
returns. Meanwhile each exchange tells the late neighbour how far this agent is. A late agent
finishes its round, and then skips the rounds that its neighbours have finished without it: it
declares all its edges down there, changes nothing in its state, and continues at a round that is
still ahead of them. Skipped rounds are in the journal before the agent acts on them, so that a
restarted agent skips the same ones.
"""

import asyncio
import math
import re
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from statistics import median_low
from typing import TYPE_CHECKING, Any, NamedTuple

from ..transport.errors import Refused, Unreachable
from ..transport.messages import DOWN, PositionReport, RoundRequest, Vote
from ..transport.timeouts import loop_time
from ..transport.wire_format import Frame, FrameError
from ..transport.worker_thread import BackgroundTasks, BriefWorkRunner
from .edge_states import MAX_DOWN_ROUNDS, EdgeStates
from .site_agent import Agent

if TYPE_CHECKING:
    from .node import Node


class DeadlineEdges(EdgeStates):
    """Edges whose rounds continue without late neighbours; see `round_deadline`.

    Late neighbours have missed a deadline and have not returned; their edges are down without
    requests. A vote "down" ends before the first exchange that the voter has not finished, so that
    its receiver knows that it is behind; after skipped exchanges it has no end.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.late: set[int] = set()
        self.passed: dict[int, int] = {}  # exchanges that each neighbour has finished
        self.position = 0  # exchanges that this agent has finished, apart from skipped ones

    def is_away(self, j: int) -> bool:
        return super().is_away(j) or j in self.late

    def _down_until(self, j: int, until: int | None) -> int | None:
        """Return None: a round whose edges are all settled has been run, unless it is skipped."""
        if until is not None:
            self.record_position(j, until)
        return None

    def _announced_end(self, j: int, t: int) -> int:
        return 0 if self.journal.is_skipped(t) else self.position

    async def answer_request(self, request: RoundRequest) -> Frame | None:
        """See `EdgeStates`; a neighbour that asks about a round to come has returned."""
        if not self.journal.edge_vote(request.sender, request.round):
            self.late.discard(request.sender)
        return await super().answer_request(request)

    def answer_position(self, j: int, position: int) -> Frame:
        """Record how many exchanges j has finished, and answer with those of this agent."""
        self.record_position(j, position)
        return Vote(DOWN, self.position).encode()

    def record_position(self, j: int, position: int) -> None:
        """Record how many exchanges j has finished; at most one behind, it is not late any more."""
        self.passed[j] = max(position, self.passed.get(j, 0))
        if position >= self.position - 1:
            self.late.discard(j)

    async def exchange_positions(self, j: int, t: int) -> None:
        """Tell j that this agent has finished the exchanges before t, and learn the same of j."""
        position = Vote.read(await self.request(j, PositionReport, t)).until
        if position <= t + MAX_DOWN_ROUNDS:
            self.record_position(j, position)

    async def declare_late(self, j: int, t: int) -> bool:
        """Declare the edge down because j is late; return whether that holds."""
        if self._is_bound(j, t):
            return False
        self.late.add(j)
        return await self._commit_vote(j, t, DOWN, alone=True)


UNMEASURED, FIRST_DEADLINE = 1, 3  # exchanges without measurement, and without deadline
DURATIONS = 32  # exchanges whose median counts
LEAST_SECONDS = 0.005  # of a deadline relative to the median
GRACE = 0.25  # share of the deadline that a neighbour has after this agent's own computation
FIRST_AHEAD, MOST_AHEAD = 1, 64  # rounds between the neighbours' and the one to continue at


class Deadline(NamedTuple):
    """Time limit of an exchange: in seconds, or in multiples of the median duration."""

    limit: float
    is_relative: bool = False

    def __str__(self) -> str:
        return f"{self.limit:g} {'median' if self.is_relative else 's'}"


def parse_deadline(value: float | str | None) -> Deadline | None:
    """Parse a number of seconds, or text such as "1.5 median"."""
    if value is None:
        return None
    match = re.fullmatch(r"\s*([0-9.]+)\s*median\s*", value) if isinstance(value, str) else None
    try:
        limit = float(match.group(1)) if match else float(value)
    except ValueError:
        limit = math.nan
    if isinstance(value, bool) or not 0 < limit < math.inf or (match and limit < 1):
        raise ValueError(
            f'deadline = {value!r} is neither a number of seconds nor text such as "1.5 median", '
            f"at least 1"
        )
    return Deadline(limit, match is not None)


def describe_policy(missing: str, deadline: float | str | None, signed: bool = False) -> str:
    """Describe how absent, late and lying neighbours are handled, for the digest of the run."""
    policy = missing if deadline is None else f"{missing}, {parse_deadline(deadline)}"
    return f"{policy}, signed" if signed else policy


class RoundDeadline:
    """Deadline of the exchanges of one agent, and the rounds that it skips when it is late."""

    def __init__(self, edges: DeadlineEdges, agent: Agent, deadline: Deadline):
        self.edges, self.neighbours, self.deadline = edges, agent.neighbours, deadline
        self.exchange_count, self.is_early = agent.exchange_count, agent.sends_before_gradient(0)
        self.durations: deque[float] = deque(maxlen=DURATIONS * max(1, len(agent.neighbours)))
        self.computing: deque[float] = deque(maxlen=DURATIONS)  # seconds without the neighbours
        self.exchanges = 0  # since the start
        self.last_look = 0.0, 0  # time and exchanges of the neighbours at the last round
        self.replay_end = 0  # exchanges before it are repeated as the journal has them
        self.rounds_ahead = FIRST_AHEAD
        self._notices = BackgroundTasks()

    def restore(self, tick: int) -> None:
        """Continue at exchange `tick` with the restored journal."""
        self.edges.position = tick
        ends = [self.edges.journal.votes[j].end for j in self.neighbours]
        self.replay_end = min(ends, default=0)

    @property
    def seconds(self) -> float:
        """Return the deadline of an exchange, from its start."""
        if not self.deadline.is_relative:
            return self.deadline.limit
        if self.exchanges < FIRST_DEADLINE or not self.durations:
            return math.inf
        return max(self.deadline.limit * median_low(self.durations), LEAST_SECONDS)

    def begin_exchange(self, t: int) -> None:
        """Tell late neighbours how far this agent is."""
        for j in list(self.edges.late):
            self._notices.start(self._exchange_positions(j, t))

    async def _exchange_positions(self, j: int, t: int) -> None:
        with suppress(Unreachable, Refused, FrameError, TimeoutError):  # the next one repeats it
            async with asyncio.timeout(self.edges.timeouts.round):
                await self.edges.exchange_positions(j, t)

    async def collect(
        self, requests: Mapping[int, "asyncio.Future[Any]"], t: int, start: float
    ) -> dict[int, list[Any] | None]:
        """Return the messages of exchange t that come by the deadline; None for the others."""
        limit, computed = self.seconds, loop_time()
        arrivals: dict[int, float] = {}
        for j, task in requests.items():
            task.add_done_callback(partial(_record_time, arrivals, j))
        has_skipped = t > 0 and self.edges.journal.is_skipped(t - 1)
        if has_skipped:
            await _first_message(requests.values())
        left = None if limit == math.inf else max(start + limit - loop_time(), GRACE * limit)
        if requests:
            settings: dict[str, Any] = {"return_when": asyncio.FIRST_EXCEPTION}
            await asyncio.wait(requests.values(), timeout=left, **settings)
        for task in requests.values():
            if task.done():
                task.result()  # raises its error
        messages = {j: task.result() for j, task in requests.items() if task.done()}
        if self.exchanges >= UNMEASURED and not has_skipped:
            received = [j for j, message in messages.items() if message is not None]
            self.durations += [max(arrivals.get(j, computed), computed) - start for j in received]
            self.computing.append(computed - start)
        self.exchanges += 1
        for j in requests.keys() - messages.keys():
            messages[j] = await self._give_up(j, t, requests[j])
            self.durations.append(2 * limit)
        self._adapt(t, any(message is not None for message in messages.values()), has_skipped)
        return messages

    async def _give_up(self, j: int, t: int, task: "asyncio.Future[Any]") -> list[Any] | None:
        """Declare the edge down, unless this agent is bound by the decision of j."""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if await self.edges.declare_late(j, t):
            return None
        return await self.edges.agree_on_message(j, t)

    def _adapt(self, t: int, has_company: bool, has_skipped: bool) -> None:
        """Aim farther ahead if nobody was met after a skip, and nearer if somebody was."""
        if has_company:
            self.rounds_ahead = max(FIRST_AHEAD, self.rounds_ahead - 1)
        elif has_skipped:
            self.rounds_ahead = min(2 * self.rounds_ahead, MOST_AHEAD)
        if has_company or not has_skipped:
            self.edges.position = t + 1

    async def next_round(self, t: int, rounds: int, every: int) -> int:
        """Return the round to continue at: t, or a later one if the rounds before are skipped.

        The last multiple of `every` before the later one comes first, for the measurement there.
        """
        target = await self._choose_round(t, rounds)
        due = target - target % every
        return due if due > t else target

    async def _choose_round(self, t: int, rounds: int) -> int:
        first, journal = t * self.exchange_count, self.edges.journal
        if journal.is_skipped(first):
            end = journal.skip_end(first)
            await self.edges.skip(first, end)  # completes an interrupted entry
            return end // self.exchange_count
        if first and journal.is_skipped(first - 1):
            return t
        reached = max(self.edges.passed.values(), default=0)
        (then, before), now = self.last_look, loop_time()
        latest = max(reached, first)
        self.last_look = now, latest
        # Without an early message, the neighbours go on while this agent computes its next one.
        seconds = 0.0 if self.is_early or not self.computing else median_low(self.computing)
        lead = seconds * (latest - before) / max(now - then, LEAST_SECONDS)
        is_in_time = reached <= first and lead < 2 * self.exchange_count
        if first < self.replay_end or is_in_time or self._has_voted(first):
            return t
        target = math.ceil((latest + lead) / self.exchange_count)
        target = min(target + self.rounds_ahead * (reached > first), rounds)
        await self.edges.skip(first, target * self.exchange_count)
        return target

    def _has_voted(self, first: int) -> bool:
        """Return whether any edge is or may become up from exchange `first` on."""
        logs = [self.edges.journal.votes[j] for j in self.neighbours]
        return any(log.get(t) not in ("", DOWN) for log in logs for t in range(first, log.end))

    def finish(self, last: int) -> None:
        """Tell late neighbours that all exchanges before `last` are finished, unless skipped."""
        if not self.edges.journal.is_skipped(last - 1):
            self.edges.position = last
            self.begin_exchange(last)

    def close(self) -> None:
        """Cancel pending notices."""
        self._notices.cancel()


async def _first_message(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    """Wait for the first message, or until it is known that none will come.

    An agent that has skipped rounds is ahead of its neighbours, so that they are not late.
    """
    pending = set(tasks)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if any(task.result() is not None for task in done):
            return


def _record_time(times: dict[int, float], j: int, task: "asyncio.Future[Any]") -> None:
    """Record when the message of j was there."""
    times[j] = loop_time()


def make_deadline(node: "Node") -> RoundDeadline | None:
    """Return the deadline of a node, if there is one; computations then run on a thread."""
    deadline = parse_deadline(node.deadline)
    if deadline is None or not isinstance(node.edges, DeadlineEdges):
        return None
    if isinstance(node.run_blocking, BriefWorkRunner):
        node.run_blocking.last_seconds.pop("compute", None)  # neighbours are answered meanwhile
    return RoundDeadline(node.edges, node.agent, deadline)
