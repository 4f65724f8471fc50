"""RPC client: one connection per neighbour, opened on demand and kept.

A neighbour that accepts no connections dials this site, and a site that accepts none answers on the
connections that it has dialed (`routes`): then both ends ask and answer on one connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from ..identity.credentials import Credentials, as_credentials
from ..identity.roster import Bundle, Member
from .audit import LOG
from .error_texts import describe_error
from .errors import Refused, Unreachable, decode_error
from .messages import Ping, SessionOpening
from .packet_stream import PROBE, REQUEST, RESPONSE, PacketStream
from .routes import Route, dial, find_route
from .subscription import Subscription
from .timeouts import RETRY_PAUSES, Timeouts
from .wire_format import MAX_REQUEST_BYTES, Frame

if TYPE_CHECKING:
    from .server import Server

OnRequest = Callable[[int, int, memoryview], None]  # handles a packet with a request


class RpcClient:
    """Client of the neighbours of this site; responses have at most `max_bytes` bytes.

    It can also call the site itself, at its roster address or at `own_address`. `answering_end`,
    set by a server, answers neighbours on dialed connections. `instance` is the random number of a
    process that runs the site (`session`); operators' commands have none.
    """

    def __init__(
        self,
        bundle: Bundle | Credentials,
        max_bytes: int,
        timeouts: Timeouts = Timeouts(),
        own_address: str | None = None,
        *,
        instance: bytes = b"",
    ):
        self.instance, self.has_rival = instance, False
        self.credentials = as_credentials(bundle)
        self.answering_end: Server | None = None
        self._kept_connected: set[int] = set()  # neighbours with a task of `shared_connections`
        self._settings = max_bytes, timeouts, own_address or ""
        self._connections: dict[int, RpcConnection] = {}
        self._add_connections()
        self.credentials.listeners.append(self._add_connections)

    def _add_connections(self) -> None:
        """Prepare a connection to each neighbour of the newest roster, and to the site itself."""
        site = self.credentials.bundle
        for number in (*site.me.neighbours, site.me.number):
            if number not in self._connections:
                self._connections[number] = RpcConnection(self, number, *self._settings)

    async def __aenter__(self) -> "RpcClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    async def send_request(self, neighbour: int, request: Frame) -> Frame:
        return await self._connections[neighbour].send_request(request)

    def subscribe(self, neighbour: int, request: Frame, subscription: Subscription) -> None:
        self._connections[neighbour].subscribe(request, subscription)

    def route(self, neighbour: int) -> Route:
        """Return the route to a neighbour, by the newest roster."""
        bundle = self.credentials.bundle
        return find_route(bundle, bundle.roster.members[neighbour])

    def attach(self, neighbour: int, packets: PacketStream) -> None:
        """Ask a neighbour that this site cannot dial on the connection that it has dialed."""
        if not self.route(neighbour).dials:
            self._connections[neighbour].attach(packets)

    def shared_connections(self) -> list[Awaitable[None]]:
        """Return new tasks that keep connections open on which neighbours ask this site."""
        routes = [self.route(member.number) for member in self.credentials.bundle.neighbours]
        shared = [route.member.number for route in routes if route.dials and route.is_shared]
        shared = [j for j in shared if j not in self._kept_connected]
        self._kept_connected |= {*shared}
        return [self._connections[j].keep_connected() for j in shared]

    def open_connections(self) -> list[int]:
        """Return the neighbours to which a connection for requests is open."""
        own = self.credentials.bundle.me.number
        return [j for j, each in self._connections.items() if each.is_open and j != own]


class RpcConnection:
    """Connection to one member, dialed by this site or by the member."""

    def __init__(
        self, client: RpcClient, number: int, max_bytes: int, timeouts: Timeouts, own_address: str
    ):
        self.client, self.number = client, number
        self.max_bytes, self.timeouts, self.own_address = max_bytes, timeouts, own_address
        self._packets: PacketStream | None = None
        self._connect_lock = asyncio.Lock()
        self._arrival = asyncio.Event()  # of a connection that is awaited
        self._request_numbers = count(1)
        self._pending: dict[int, asyncio.Future[tuple[int, memoryview]]] = {}
        self._subscription: tuple[int, Subscription] = 0, Subscription(0)

    @property
    def is_open(self) -> bool:
        """Return whether a request can be sent without dialing."""
        return self._packets is not None and not self._packets.closed.done()

    async def send_request(self, request: Frame) -> Any:
        """Send a request and return its response."""
        clock = asyncio.get_running_loop().time
        start = clock()
        try:
            async with asyncio.timeout(self.timeouts.round):
                code, body = await self._exchange(await self._ensure_connected(), request)
        except TimeoutError:
            raise Unreachable(f"no answer within {self.timeouts.round:g} s") from None
        finally:
            if clock() - start >= 0.9 * self.timeouts.round and self._packets is not None:
                self._packets.abort(ConnectionAbortedError("silent"))  # the next call dials again
        return self._read(code, body)

    def subscribe(self, request: Frame, subscription: Subscription) -> None:
        """Start a subscription in place of the earlier one."""
        packets, number = self._packets, next(self._request_numbers)
        self._subscription[1].end()
        self._subscription = number, subscription
        try:
            if packets is None or not packets.try_send(number, REQUEST, request):
                subscription.end()
        except ConnectionError:
            subscription.end()

    async def _exchange(self, packets: PacketStream, request: Frame) -> tuple[int, memoryview]:
        number = next(self._request_numbers)
        response = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            await packets.send(number, REQUEST, request)
            return await response
        except ConnectionError as cause:
            raise Unreachable(describe_error(packets.cause or cause)) from None
        finally:
            self._pending.pop(number, None)

    async def _ensure_connected(self) -> PacketStream:
        packets = self._packets
        if packets is not None and not packets.closed.done():
            return packets
        async with self._connect_lock:
            if self._packets is None or self._packets.closed.done():
                route = self.client.route(self.number)
                if not route.dials:
                    return await self._await_connection(route.member)
                self._packets = None
                self._packets = await self._connect(route)
            return self._packets

    async def keep_connected(self) -> None:
        """Keep the connection open, since the other end cannot open one to ask this site."""
        pause = RETRY_PAUSES[0]
        while True:
            try:
                packets = await self._ensure_connected()
                pause = RETRY_PAUSES[0]
                await asyncio.wait([packets.closed])
            except Unreachable:
                pass
            except Refused:  # the requests of the run report it
                pause = RETRY_PAUSES[1]
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_PAUSES[1])

    async def _await_connection(self, member: Member) -> PacketStream:
        """Wait until the member has dialed this site."""
        try:
            async with asyncio.timeout(self.timeouts.connect):
                while self._packets is None or self._packets.closed.done():
                    self._arrival.clear()
                    await self._arrival.wait()
        except TimeoutError:
            raise Unreachable(f"{member.name} dials, and has not connected yet") from None
        return self._packets

    def attach(self, packets: PacketStream) -> None:
        """Use a connection that the member has dialed and on which it answers."""
        earlier, self._packets = self._packets, packets
        on_request = packets.on_packet
        packets.max_bytes = self.max_bytes
        packets.on_packet = self._dispatcher(on_request)
        packets.close_listeners.append(lambda: self._on_closed(packets))
        if earlier is not None and not earlier.closed.done():
            self._fail_pending(ConnectionAbortedError("a newer connection took its place"))
            earlier.abort(ConnectionAbortedError("a newer connection took its place"))
        self._arrival.set()

    def _dispatcher(self, on_request: OnRequest) -> OnRequest:
        """Return the handler of all packets of a connection on which both ends ask."""

        def dispatch(number: int, code: int, body: memoryview) -> None:
            (on_request if code == REQUEST else self._on_packet)(number, code, body)

        return dispatch

    async def _connect(self, route: Route) -> PacketStream:
        """Open a connection on which the other end has admitted this site."""
        packets = PacketStream(self.max_bytes, self._on_packet)
        packets.close_listeners.append(lambda: self._on_closed(packets))
        bundle = self.client.credentials.bundle
        if self.own_address and self.number == bundle.me.number:
            route = route._replace(member=replace(route.member, address=self.own_address))
        opening = SessionOpening(bundle.roster.version, self.client.instance or None)
        answering_end = self.client.answering_end if route.is_shared else None
        try:
            async with asyncio.timeout(self.timeouts.connect):
                await dial(route, packets, self.client.credentials, self.timeouts.connect)
                if answering_end is not None:
                    opening = replace(opening, answers=True)
                    on_request = answering_end.answer_on(packets, route.member)
                    packets.max_request_bytes = MAX_REQUEST_BYTES
                    packets.on_packet = self._dispatcher(on_request)
                code, body = await self._exchange(packets, opening.encode())
                self._read(code, body)
        except TimeoutError:
            packets.abort(ConnectionAbortedError("no answer"))
            raise Unreachable(f"no connection within {self.timeouts.connect:g} s") from None
        except OSError as cause:
            packets.abort(ConnectionAbortedError("refused"))
            if isinstance(cause, Unreachable | Refused):
                raise
            raise Unreachable(describe_error(cause)) from None
        except BaseException:
            packets.abort(ConnectionAbortedError("not needed any more"))
            raise
        return packets

    def _read(self, code: int, body: memoryview) -> Any:
        if code == RESPONSE:
            return body
        raise decode_error(code, body)

    def _on_packet(self, number: int, code: int, body: memoryview) -> None:
        if code == PROBE:
            self._answer_probe()
            return
        if number == self._subscription[0]:
            self._on_subscription_packet(self._subscription[1], code, body)
            return
        pending = self._pending.get(number)
        if pending is not None and not pending.done():
            pending.set_result((code, body))

    def _answer_probe(self) -> None:
        """Show that this process lives to a neighbour that another process has connected to."""
        site = self.client.credentials.bundle
        ping = Ping(site.me.number).encode()
        if self._packets is not None:
            with suppress(ConnectionError):
                self._packets.try_send(next(self._request_numbers), REQUEST, ping)
        if not self.client.has_rival:
            self.client.has_rival = True
            LOG.warning(
                f"another process with the keys of {site.me.name} has connected to "
                f"{site.roster.members[self.number].name}: stop one of the two; if you have not "
                f"started it, the keys are stolen, and `diamond net renew --revoke` rejects them"
            )

    def _on_subscription_packet(
        self, subscription: Subscription, code: int, body: memoryview
    ) -> None:
        """Handle a packet of the subscription."""
        if code != RESPONSE:
            error = decode_error(code, body)
            subscription.end(error if isinstance(error, Refused) else None)
        elif not subscription.receive(body) and self._packets is not None:
            self._packets.abort(ConnectionAbortedError("more messages than there can be"))

    def _on_closed(self, packets: PacketStream) -> None:
        if packets is not self._packets and self._packets is not None:
            return  # of an earlier connection
        self._fail_pending(packets.cause or ConnectionResetError("the connection was closed"))

    def _fail_pending(self, error: Exception) -> None:
        self._subscription[1].end()
        for pending in self._pending.values():
            if not pending.done():
                pending.set_exception(ConnectionResetError(str(error)))

    async def close(self) -> None:
        """Close the connection."""
        packets = self._packets
        if packets is not None and not packets.closed.done():
            packets.close()
            await asyncio.wait([packets.closed], timeout=1.0)
            packets.abort(ConnectionAbortedError("closed"))
