"""Edges of an agent with a deadline: late neighbours, positions, and rounds that are skipped."""

import asyncio
from typing import Any

from ..transport.messages import DOWN, PositionReport, RoundRequest, Vote
from ..transport.wire_format import Frame
from .edge_states import MAX_DOWN_ROUNDS, EdgeStates


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

    def _is_away(self, j: int) -> bool:
        return super()._is_away(j) or j in self.late

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

    async def skip(self, first: int, end: int) -> None:
        """Skip these exchanges: all edges are down in them."""

        async def write() -> None:
            async with self._write_lock:
                if not self._closed:
                    await self.run_blocking(self.journal.write_skip, first, end)
            self.notify_waiting()

        await asyncio.shield(asyncio.ensure_future(write()))
