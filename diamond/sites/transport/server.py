"""Server of a site: admission of connections, and responses to requests.

A site that accepts no connections answers on those that it has dialed.

Every connection proves a key by mutual TLS and is checked against the roster when it is opened; it
is closed when its certificate expires. Unauthenticated connections pass the admission queue. A
neighbour has at most a few connections, the newest ones, and on all of them together a few requests
in progress and a few unread responses.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ..identity.certificate_holder import find_holder
from ..identity.credentials import Credentials, as_credentials
from ..identity.roster import Bundle, Member
from ..identity.site_authorities import is_revoked
from .admission import AUTHENTICATION_SECONDS, AdmissionQueue
from .audit import Audit
from .error_texts import describe_admission_failure
from .errors import REVOKED, Refused, encode_error
from .packet_stream import RESPONSE, UNREADABLE, PacketStream
from .relay import RelayHub
from .relay_handshake import MAGIC as RELAY_MAGIC
from .relay_handshake import accept_through_relay
from .routes import find_route
from .rpc import OnRequest, RpcClient
from .session import GRACE_SECONDS, Session
from .sockets import accept_connections, open_listening_sockets, peek_byte
from .subscription import Publisher
from .tls import peer_identity
from .wire_format import EpochPending, Frame, FrameError
from .worker_thread import BackgroundTasks

RequestHandler = Callable[[int, Frame], Awaitable[Frame | Publisher]]  # of (sender, request)
MAX_CONNECTIONS = 8  # per neighbour
MAX_REQUESTS = 32  # of one neighbour in progress, on all connections
MAX_UNREAD = 8  # responses to one neighbour in memory
LOOKUP_SECONDS = 300.0  # between lookups of the neighbours' host names
MAX_DIALING = 64  # machines of neighbours without addresses that are remembered


class Server:
    """Server for the neighbours of this site, at its roster address by default.

    `client`, which asks the neighbours, shares the connections to those that cannot be dialed.
    """

    def __init__(
        self,
        bundle: Bundle | Credentials,
        handle_request: RequestHandler,
        address: str | None = None,
        audit: Audit | None = None,
        *,
        client: RpcClient | None = None,
    ):
        self._credentials = as_credentials(bundle)
        self._handle_request, self.audit = handle_request, audit or Audit()
        self.admission_queue, self._client, site = AdmissionQueue(), client, self.bundle
        listen = address or site.me.address
        self._sockets = open_listening_sockets(listen) if listen else []
        self.port = self._sockets[0].getsockname()[1] if listen else 0
        self.sessions: list[Session] = []  # authenticated, in order of arrival
        self._dialing_machines: set[str] = set()  # of neighbours without addresses
        self._awaited: set[int] = set()  # neighbours that a relay leads to this site
        self._tasks = BackgroundTasks()
        self._accepting: list[asyncio.Task[None]] = []
        hub = RelayHub(site.ca, lambda: self.bundle.roster, audit=self.audit)
        self._relay_hub = hub if site.me.relay else None

    @property
    def bundle(self) -> Bundle:
        """Return the newest credentials of this site."""
        return self._credentials.bundle

    async def __aenter__(self) -> "Server":
        self._accepting = [
            asyncio.ensure_future(accept_connections(listener, self.audit, self._start_admission))
            for listener in self._sockets
        ]
        self._credentials.listeners.append(self._close_revoked)
        self.start_task(self._reserve_neighbours())
        if self._client is not None:
            self._client.answering_end = self
        self._open_routes()
        self._credentials.listeners.append(self._open_routes)
        return self

    def _open_routes(self) -> None:
        """Open the ways of neighbours that cannot dial this site; new ones join with a roster."""
        if self._client is None:
            return
        for work in self._client.shared_connections():
            self.start_task(work)
        for member in self.bundle.neighbours:
            is_new = member.number not in self._awaited
            if is_new and find_route(self.bundle, member).kind == "await relay":
                self._awaited.add(member.number)
                for relay in self.bundle.roster.all_relays:
                    inputs = self._credentials, relay, member.number, self.audit
                    admit = partial(self._admit_relayed, member.number)
                    self.start_task(accept_through_relay(*inputs, on_connection=admit))

    async def _reserve_neighbours(self) -> None:
        """Reserve admission for the hosts that the roster lists as neighbours."""
        loop = asyncio.get_running_loop()
        while True:
            addresses: set[str] = set()
            places = {member.address for member in self.bundle.neighbours if member.address}
            for host in {place.rsplit(":", 1)[0].strip("[]") for place in places}:
                with suppress(OSError):  # an unknown name may resolve at the next lookup
                    resolved = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                    addresses |= {str(place[0]) for *_, place in resolved}
            self.admission_queue.reserved = addresses | self._dialing_machines
            await asyncio.sleep(LOOKUP_SECONDS)

    async def __aexit__(self, *error: object) -> None:
        self._credentials.listeners.remove(self._close_revoked)
        self._credentials.listeners.remove(self._open_routes)
        if self._client is not None:
            self._client.answering_end = None
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listener in self._sockets:
            listener.close()
        replies = [task for session in self.sessions for task in session.replies]
        if replies:
            await asyncio.wait(replies, timeout=GRACE_SECONDS)
        self._tasks.cancel()
        sessions = list(self.sessions)
        for session in sessions:
            session.packets.close()
        if sessions:
            await asyncio.wait(
                [session.packets.closed for session in sessions], timeout=GRACE_SECONDS
            )
        for session in sessions:
            session.packets.abort(ConnectionAbortedError("the site has closed"))
        if self._relay_hub is not None:
            self._relay_hub.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start_task(self, work: Awaitable[Any]) -> "asyncio.Task[Any]":
        """Start a task that ends with the server at the latest."""
        return self._tasks.start(work)

    def _start_admission(self, connection: socket.socket, address: Any) -> None:
        session = Session(self, f"{address[0]}:{address[1]}")
        task = self.start_task(self._admit(session, connection, address[0]))
        task.add_done_callback(partial(_release_connection, session, connection))

    async def _admit_relayed(
        self, number: int, connection: socket.socket, relay: str, place: str
    ) -> bool:
        """Authenticate a connection through a relay; return whether it is of that member."""
        session = Session(self, f"{relay} at {place}", expected=number)
        task = self.start_task(self._admit(session, connection, place.rsplit(":", 1)[0]))
        task.add_done_callback(partial(_release_connection, session, connection))
        await asyncio.wait([task])
        return session.member is not None

    async def _admit(self, session: Session, connection: socket.socket, machine: str) -> None:
        """Authenticate a connection, or close it."""
        session.is_started, me = True, asyncio.current_task()
        assert me is not None
        number = self.admission_queue.add(machine, lambda: session.evict(me))
        try:
            async with asyncio.timeout(AUTHENTICATION_SECONDS):
                if self._relay_hub is not None and session.expected is None:
                    if await peek_byte(connection) == RELAY_MAGIC[:1]:
                        return await self._relay_hub.admit(connection, session.address)
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: session.packets,
                    connection,
                    ssl=self._credentials.server_tls,
                    ssl_handshake_timeout=AUTHENTICATION_SECONDS,
                    ssl_shutdown_timeout=GRACE_SECONDS,
                )
                await session.authenticated
        except (OSError, TimeoutError, Refused, FrameError) as cause:
            reason = describe_admission_failure(cause, AUTHENTICATION_SECONDS)
            self.audit.record_event(session.address, f"refused: {reason}")
            session.packets.close()
        except asyncio.CancelledError:
            if session.is_evicted:
                self.audit.record_event(
                    session.address, "closed: too many connections that prove nothing"
                )
            with suppress(OSError):  # the event loop closes the socket
                connection.shutdown(socket.SHUT_RDWR)
        finally:
            self.admission_queue.remove(number)

    def attach_client(self, session: Session) -> None:
        """Ask the member on its connection, if it cannot be dialed."""
        assert session.member is not None
        if self._client is not None:
            machine = session.address.rsplit(":", 1)[0]
            self._dialing_machines = {*list(self._dialing_machines)[-MAX_DIALING:], machine}
            self.admission_queue.reserved |= {machine}
            self._client.attach(session.member.number, session.packets)

    def answer_on(self, packets: PacketStream, member: Member) -> OnRequest:
        """Answer `member` on a connection that this site has dialed."""
        session = Session(self, f"{member.address or 'a relay'}", packets=packets)
        session.admit(member, *peer_identity(packets.transport.get_extra_info("ssl_object")))
        return session.on_packet

    async def finish_relaying(self) -> None:
        """Wait until the sites that this one relays for have finished too."""
        if self._relay_hub is not None:
            await self._relay_hub.wait_idle()

    def _close_revoked(self) -> None:
        """Close the connections whose key the new roster no longer accepts."""
        for session in list(self.sessions):
            assert session.certificate is not None
            if is_revoked(session.certificate, self.bundle.crls):
                self._close(session, REVOKED)
            elif find_holder(session.certificate, self.bundle.roster) is None:
                self._close(session, f"its key is not in roster {self.bundle.roster.version}")

    def find_rivals(self, session: Session, member: Member) -> list[Session]:
        """Return the sessions of other processes of the member; operators' commands are none."""
        same = [s for s in self.sessions if s.member and s.member.number == member.number]
        known = {b"", session.instance} if session.instance else {s.instance for s in same}
        return [s for s in same if s.instance not in known]

    def add_session(self, session: Session) -> None:
        """Add a connection of a member; close its oldest if there are too many."""
        assert session.member is not None
        same = [s for s in self.sessions if s.member == session.member]
        if len(same) >= MAX_CONNECTIONS:
            same[0].packets.abort(ConnectionAbortedError("a newer connection took its place"))
        self.sessions.append(session)
        session.packets.close_listeners.append(lambda: self._remove_session(session))

    def admits_request(self, session: Session) -> bool:
        """Return whether one more request may start; if too many, close the oldest connection."""
        same = self._open_sessions(session)
        if sum(len(s.replies) for s in same) < MAX_REQUESTS:
            return True
        oldest = next(s for s in same if s.replies)
        self._close(oldest, f"more than {MAX_REQUESTS} requests at once")
        return oldest is not session

    def limit_unread(self, session: Session) -> None:
        """Close the oldest connection of a neighbour that does not read its responses."""
        same = self._open_sessions(session)
        if sum(s.unread for s in same) > MAX_UNREAD:
            oldest = next(s for s in same if s.unread)
            self._close(oldest, f"more than {MAX_UNREAD} answers that it does not read")

    def _open_sessions(self, session: Session) -> list[Session]:
        """Return the open connections of the same member."""
        same = [s for s in self.sessions if s.member == session.member]
        return [s for s in same if not s.packets.transport.is_closing()]

    def _close(self, session: Session, why: str) -> None:
        self.audit.record_event(session.source, f"closed: {why}")
        session.packets.abort(ConnectionAbortedError(why))

    def _remove_session(self, session: Session) -> None:
        self.sessions.remove(session)
        session.timer.cancel()
        for task in (*session.replies, *session.pending_pushes):
            task.cancel()

    async def answer_request(self, session: Session, number: int, request: Frame) -> None:
        """Answer one request."""
        assert session.member is not None
        try:
            response = await self._handle_request(session.member.number, request)
            if isinstance(response, Publisher):
                session.attach_publisher(number, response)
                return
            code, body = RESPONSE, response
        except Refused as reason:
            self.audit.record_event(session.source, f"refused: {reason}")
            code, body = encode_error(reason)
        except FrameError as reason:
            if not isinstance(reason, EpochPending):
                self.audit.record_event(session.source, f"sent what cannot be read: {reason}")
            code, body = encode_error(reason)
        except Exception as cause:  # no request writes a traceback; the neighbour asks again
            failure = f"its request could not be answered ({type(cause).__name__}: {cause})"
            self.audit.record_event(session.source, failure)
            code, body = UNREADABLE, b"the request could not be answered"
        with suppress(ConnectionError):  # the caller is gone, and will ask again
            await session.send(number, code, body)


def _release_connection(
    session: Session, connection: socket.socket, task: "asyncio.Task[Any]"
) -> None:
    """Release a connection whose task ended early."""
    if not session.is_started:
        connection.close()
    if not task.cancelled():
        task.exception()
