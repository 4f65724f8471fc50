"""Requests of an agent to its neighbours, repeated until they are answered."""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from . import wire_format
from .call_errors import Differs, Refused, Unreachable
from .edge_states import Edges
from .neighbour_status import NeighbourStatus
from .service import Service
from .site_agent import Agent
from .site_checkpoint import OtherRun
from .site_rollback import Clock, WentBack
from .subscription import Following
from .timeouts import Limits, Wait, insist
from .wire_format import REQUEST, Ask, Envelope, Frame, FrameError, Layout

SHORT = 1024  # bytes; a rollback notice is shorter


class Transport(Protocol):
    """Carrier of requests to neighbours and of their responses."""

    async def call(self, neighbour: int, request: Frame) -> Frame:
        """Return the response; raises `Unreachable` or `Refused`."""
        ...

    def follow(self, neighbour: int, request: Frame, into: Following) -> None:
        """Pass the messages of a subscription to `into`, and end it if no more will come."""
        ...


class NeighbourClient:
    """Client of all neighbours of an agent; `Service` is the other side.

    `waits` and `heard` record, for each neighbour, the waiting time and the last message.
    """

    def __init__(
        self,
        agent: Agent,
        parts: Mapping[str, str],
        transport: Transport,
        limits: Limits,
        service: Service,
        clock: Clock,
    ):
        self.agent, self.parts, self.transport = agent, parts, transport
        self.limits, self.service, self.last = limits, service, service.last
        self.clock = clock
        self.begun = 0  # first tick of this session
        self.waits = {j: Wait() for j in agent.neighbours}
        self.heard = {j: NeighbourStatus() for j in agent.neighbours}
        self._following: dict[int, Following] = {}
        self._notices: set[asyncio.Task[None]] = set()

    async def pull(self, j: int, t: int, talk: int = 0, layout: Layout | None = None) -> list[Any]:
        """Return the message of j in exchange t, or about numbers before it."""
        round = self.clock.round(t)
        if not talk and (came := await self._unasked(j, t)) is not None:
            self.heard[j].round = round
            return came
        wanted = f"measurements before round {round}" if talk else f"message of round {round}"
        if t == self.last and not talk:
            wanted = "word that it has finished"

        async def attempt() -> list[Any] | None:
            answer = await self.call(j, "ask", t, talk)
            return self.read(j, t, answer, talk, layout) if answer else None

        with self.heard[j].awaited():
            whose = f"{wanted} of {self.service.call(j)}"
            found = await insist(attempt, whose, self.limits, self.waits[j])
        self.heard[j].round = round
        if not talk and self.service.edges is None:
            self._order(j, t + 1)
        return found

    def _order(self, j: int, t: int) -> None:
        """Subscribe to the messages of j from exchange t on."""
        if t < self.last:
            if (before := self._following.get(j)) is not None:
                before.end()
            into = self._following[j] = Following(t)
            self.transport.follow(j, self._request("follow", t), into)

    def follows(self, j: int, t: int) -> bool:
        """Return whether a subscription delivers j's message of exchange t; not the last one."""
        found = self._following.get(j)
        return found is not None and found.next == t < self.last

    async def _unasked(self, j: int, t: int) -> list[Any] | None:
        """Return that message from the subscription; None if it must be requested."""
        if not self.follows(j, t):
            return None
        with self.heard[j].awaited():
            content = await self._following[j].take(self.limits.round / 2)
        try:
            if content is not None:
                return self.read(j, t, content)
        except FrameError as cause:
            self.waits[j].last = str(cause)
        self._following.pop(j).end()
        return None

    def forget(self) -> None:
        """Tell the subscribed neighbours which rounds this agent may request again."""
        for j, one in self._following.items():
            task = asyncio.ensure_future(self._forget(j, max(one.next, self.service.durable)))
            self._notices.add(task)
            task.add_done_callback(self._notices.discard)

    async def _forget(self, j: int, t: int) -> None:
        try:
            await self.call(j, "kept", min(t, self.last))
        except (Unreachable, Refused, FrameError):
            pass  # the next request repeats it

    def close(self) -> None:
        """Cancel pending requests."""
        for one in self._following.values():
            one.end()
        for task in self._notices:
            task.cancel()

    async def call(self, j: int, kind: str, t: int, talk: int = 0) -> Frame:
        """Try once to get the message or edge vote of j; empty if it does not exist yet."""
        return await self.transport.call(j, self._request(kind, t, talk))

    def _request(self, kind: str, t: int, talk: int = 0) -> Frame:
        ask = Ask(self.parts["run"], self.agent.number, t, self.service.durable, talk)
        return wire_format.encode_ask(ask, kind)

    def read(
        self, j: int, t: int, message: Frame, talk: int = 0, layout: Layout | None = None
    ) -> list[Any]:
        """Decode a message of j; raises `WentBack` if it is a rollback notice."""
        envelope = Envelope(self.parts["run"], j, t, talk)
        if len(message) < SHORT and message == wire_format.gone(envelope):
            if (order := self._following.pop(j, None)) is not None:
                order.end()
            raise WentBack
        last = t == self.last and not talk
        expected = () if last else self.agent.layout(t) if layout is None else layout
        return wire_format.decode(message, envelope, expected)

    async def meet(self, edges: Edges | None) -> None:
        """Compare the run with every neighbour that has not finished.

        An agent that differs from all neighbours gets the differences and stops. An agent that
        agrees with one of them waits until the others are restarted.
        """
        others = [j for j in self.agent.neighbours if j not in self.service.finished]
        differs: dict[int, str] = {}

        async def attempt(j: int) -> bool:
            try:
                found = await self.hello(j)
            except Differs as cause:
                differs[j] = str(cause)
                if len(differs) < len(others):
                    raise Unreachable(
                        f"{cause}; it is waited for until it is started anew"
                    ) from None
                raise Differs(
                    f"{self.service.call(self.agent.number)} runs something else than all its "
                    f"neighbours: {'; '.join(differs[k] for k in others)}; start it again with "
                    f"what they run"
                ) from None
            except Unreachable as cause:
                known = self.service.differs.get(j)
                raise Unreachable(
                    f"{cause}; it ran something else: {known}" if known else str(cause)
                ) from None
            differs.pop(j, None)
            return found

        async def greet(j: int) -> None:
            with self.heard[j].awaited():
                if edges:
                    return await edges.meet(j)
                whose = f"greeting of {self.service.call(j)}"
                await insist(lambda: attempt(j), whose, self.limits, self.waits[j])
                if self.service.edges is None:
                    self._order(j, self.begun)

        await all_of(greet(j) for j in others)

    async def hello(self, j: int) -> bool:
        """Try once to greet j."""
        within = float(self.limits.round)
        mine = {"sender": self.agent.number, "parts": dict(self.parts), "within": within}
        request = wire_format.pack({"kind": "hello", **mine})
        told, _ = wire_format.unpack(await self.transport.call(j, request), REQUEST)
        durable, kept = (self._tick(told.get(name, 0)) for name in ("durable", "kept"))
        if kept > max(self.begun, self.service.durable):
            here, there = self.clock.round(self.begun), self.clock.round(kept)
            raise OtherRun(
                f"the folder of {self.service.call(self.agent.number)} leads to round {here}, but "
                f"it has been at round {there}, and {self.service.call(j)} keeps messages from "
                f"there on: restore the folder from a copy, or start all sites with --onward"
            )
        self.service.outbox.heard(j, durable)
        return True

    def _tick(self, said: Any) -> int:
        if type(said) is not int or not 0 <= said <= self.last:
            raise FrameError("a greeting that does not say from where on messages are kept")
        return said

    async def part(self, edges: Edges | None) -> None:
        """Wait until every neighbour has finished and knows that this agent has."""
        await all_of(self._part(j, edges) for j in self.agent.neighbours)

    async def _part(self, j: int, edges: Edges | None) -> None:
        """Wait until j responds that it has finished, or has asked as a finished agent.

        Its response implies that it knows about this agent. Its request does not, so j may ask
        again for as long as an attempt takes.
        """

        async def told() -> None:
            await self.service.known(j)
            await asyncio.sleep(self.limits.connect)

        async def asked() -> None:
            if edges:
                return await edges.farewell(j, self.last)
            await self.pull(j, self.last)
            await self.service.know(j)

        ways = [asyncio.ensure_future(told()), asyncio.ensure_future(asked())]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
        finally:
            for way in ways:
                way.cancel()


async def all_of(works: Any) -> list[Any]:
    """Gather results as `asyncio.gather`, but cancel the others if one fails."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
