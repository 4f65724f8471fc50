"""Relay: joins the connections of two sites that both accept none, and forwards their bytes.

The bytes are those of a TLS connection between the two sites. The relay has no key of either, so it
sees sizes and times only. It forwards for members of the roster that are neighbours, and limits
connections, bytes a day and bytes a second for each edge. Memory is bounded: a side that does not
read stops the other side from being read.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..identity.credentials import file_versions
from ..identity.private_keys import BadBundle
from ..identity.roster import (
    CA,
    ROSTER,
    SIGNATURE,
    Roster,
    SignedRoster,
    load_signed_roster,
    save_accepted,
)
from .admission import AUTHENTICATION_SECONDS, AdmissionQueue
from .audit import Audit
from .errors import Refused
from .relay_handshake import JOINED, RelayRequest, encode_refusal, receive_hello
from .sockets import accept_connections, enable_keepalive, open_listening_sockets
from .timeouts import RETRY_PAUSES
from .worker_thread import BackgroundTasks

MAX_BUFFERED = 2**20  # bytes that one direction may hold
BURST_SECONDS = 0.25  # of the rate may pass at once
IDLE_SECONDS = RETRY_PAUSES[1] + 1.0  # after which a site that still needs the relay is back


@dataclass(frozen=True)
class RelayLimits:
    """Limits of a relay: joined edges, and for each edge bytes a second and a day."""

    edges: int = 256
    bytes_per_second: float = 125e6
    bytes_per_day: float = 1e12


class RosterFolder:
    """Signed roster in a folder without keys; a newer one replaces it while the relay runs.

    The newest roster is on the disk, so that after a restart older ones are still refused.
    """

    def __init__(self, folder: Path, audit: Audit):
        self.folder, self.audit, self.ca = folder, audit, (folder / CA).read_bytes()
        signed, self.roster = load_signed_roster(folder)
        self._save(signed)
        self._seen = file_versions(folder, (ROSTER, SIGNATURE))

    def _save(self, signed: SignedRoster) -> None:
        try:
            save_accepted(self.folder, signed)
        except BadBundle as cause:
            self.audit.record_event("after a restart, older rosters would be taken", cause)

    def current(self) -> Roster:
        """Return the newest roster; an older one is never taken."""
        versions = file_versions(self.folder, (ROSTER, SIGNATURE))
        if versions != self._seen:
            with suppress(BadBundle):  # half copied: the next call tries again
                signed, roster = load_signed_roster(self.folder)
                self._seen = versions
                if roster.version > self.roster.version:
                    self.roster = roster
                    self._save(signed)
        return self.roster


class RelayEnd(asyncio.Protocol):
    """Connection of one site at the relay: waiting, then joined to `other`."""

    def __init__(self, hub: "RelayHub", request: RelayRequest):
        self.hub, self.request = hub, request
        self.transport: Any = None
        self.other: RelayEnd | None = None
        self.forwarded, self.joined_at = 0, 0.0
        self._credit, self._credited_at = 0.0, 0.0  # bytes that may pass at once
        self._is_blocked = self._is_resting = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=MAX_BUFFERED)

    def join(self, other: "RelayEnd") -> None:
        """Forward what arrives here to `other` from now on."""
        self.other, self.joined_at = other, time.monotonic()
        self._credit = self.hub.limits.bytes_per_second * BURST_SECONDS
        self._credited_at = self.joined_at
        self.transport.write(JOINED)

    def data_received(self, data: bytes) -> None:
        """Forward bytes; stop reading for a while if they come faster than the limit."""
        if self.other is None:
            self.transport.abort()  # a site says nothing while it waits
            return
        self.forwarded += len(data)
        self.other.transport.write(data)
        if not self.hub.count_bytes(self, len(data)):
            return
        now, rate = time.monotonic(), self.hub.limits.bytes_per_second
        earned = self._credit + (now - self._credited_at) * rate
        self._credit, self._credited_at = min(earned, rate * BURST_SECONDS) - len(data), now
        if self._credit < 0 and not self._is_resting:
            self._is_resting = True
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(-self._credit / rate, self._read_again, True)

    def _read_again(self, has_rested: bool = False) -> None:
        self._is_resting = self._is_resting and not has_rested
        if not (self._is_resting or self._is_blocked or self.transport.is_closing()):
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other._is_blocked = True
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other._is_blocked = False
            self.other._read_again()

    def connection_lost(self, error: Exception | None) -> None:
        self.hub.remove(self)
        if self.other is not None:
            self.other.transport.close()


class RelayHub:
    """Waiting and joined connections of a relay; the newest request of a site counts."""

    def __init__(
        self,
        ca: bytes,
        roster: Callable[[], Roster],
        limits: RelayLimits = RelayLimits(),
        audit: Audit | None = None,
    ):
        self.ca, self.roster, self.limits, self.audit = ca, roster, limits, audit or Audit()
        self.waiting: dict[tuple[int, int], RelayEnd] = {}  # by (site, other)
        self.joined: list[RelayEnd] = []  # both ends of each connection
        self._day, self._bytes_of_day = 0, {}  # type: int, dict[tuple[int, int], float]

    async def admit(self, connection: socket.socket, source: str) -> None:
        """Verify a new connection and join it to the other site's, now or later, or refuse it."""
        try:
            async with asyncio.timeout(AUTHENTICATION_SECONDS):
                request = await receive_hello(connection, self.ca, self.roster())
            self._check_limits(request)
        except (Refused, OSError, TimeoutError) as cause:
            reason = str(cause) or "no proof of a key in time"
            self.audit.record_event(source, f"refused: {reason}")
            if isinstance(cause, Refused):
                with suppress(OSError):
                    await asyncio.get_running_loop().sock_sendall(
                        connection, encode_refusal(reason)
                    )
            connection.close()
            return
        except BaseException:
            connection.close()
            raise
        end = RelayEnd(self, request)
        enable_keepalive(connection, AUTHENTICATION_SECONDS)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: end, connection)
        self._pair(end)

    def _check_limits(self, request: RelayRequest) -> None:
        edge = _edge(request)
        if len(self.joined) // 2 + len(self.waiting) >= self.limits.edges and not any(
            _edge(end.request) == edge for end in (*self.joined, *self.waiting.values())
        ):
            raise Refused(f"this relay serves {self.limits.edges} edges already")
        if self._today().get(edge, 0) >= self.limits.bytes_per_day:
            raise Refused(f"the edge has used its {self.limits.bytes_per_day:g} bytes of this day")

    def _pair(self, end: RelayEnd) -> None:
        site, other = end.request.site, end.request.other
        if (earlier := self.waiting.pop((site.number, other.number), None)) is not None:
            earlier.transport.abort()
        partner = self.waiting.pop((other.number, site.number), None)
        if partner is None or partner.transport.is_closing():
            self.waiting[site.number, other.number] = end
            return
        same = [e for e in self.joined if _edge(e.request) == _edge(end.request)]
        for stale in same[: max(0, len(same) - 2 * (MAX_JOINED - 1))]:
            stale.transport.abort()
        self.joined += [end, partner]
        partner.join(end)
        end.join(partner)
        self.audit.record_event(f"{site.name} - {other.name}", "joined")

    def remove(self, end: RelayEnd) -> None:
        """Remove a closed connection."""
        site, other = end.request.site, end.request.other
        if self.waiting.get((site.number, other.number)) is end:
            del self.waiting[site.number, other.number]
        if end in self.joined:
            self.joined.remove(end)
            if end.other is not None and end.other in self.joined:
                seconds = time.monotonic() - end.joined_at
                self.audit.record_event(
                    f"{site.name} - {other.name}",
                    f"closed after {seconds:.1f} s; {end.forwarded} bytes from {site.name}, "
                    f"{end.other.forwarded} from {other.name}",
                )

    def count_bytes(self, end: RelayEnd, count: int) -> bool:
        """Count forwarded bytes; close the edge and return False beyond the limit of a day."""
        edge, counts = _edge(end.request), self._today()
        counts[edge] = counts.get(edge, 0) + count
        if counts[edge] < self.limits.bytes_per_day:
            return True
        source = f"{end.request.site.name} - {end.request.other.name}"
        self.audit.record_event(source, "closed: no more bytes on this day")
        end.transport.close()
        return False

    def _today(self) -> dict[tuple[int, int], float]:
        if (day := int(time.time() // 86400)) != self._day:
            self._day, self._bytes_of_day = day, {}
        return self._bytes_of_day

    async def wait_idle(self) -> None:
        """Wait until no site has used the relay for a while: a site that needs it dials again."""
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < IDLE_SECONDS:
            if self.joined or self.waiting:
                idle_since = time.monotonic()
            await asyncio.sleep(0.1)

    def close(self) -> None:
        """Close all connections."""
        for end in (*self.joined, *self.waiting.values()):
            end.transport.abort()


MAX_JOINED = 4  # connections of one edge at a time: the run's, and those of commands


def _edge(request: RelayRequest) -> tuple[int, int]:
    numbers = sorted((request.site.number, request.other.number))
    return numbers[0], numbers[1]


class RelayServer:
    """Listening sockets of a relay; connections that have proved no key yet are few and brief."""

    def __init__(self, folder: Path, address: str | None, limits: RelayLimits, audit: Audit):
        files = RosterFolder(folder, audit)
        address = address or files.roster.relays.get(folder.resolve().name)
        if address is None:
            names = ", ".join(files.roster.relays) or "none"
            raise BadBundle(
                f"the roster has no relay of the name of the folder {folder} (relays: {names}); "
                f"give its address with --listen HOST:PORT"
            )
        self.address, self.audit = address, audit
        self.hub = RelayHub(files.ca, files.current, limits, audit)
        self._sockets = open_listening_sockets(address)
        self.port = self._sockets[0].getsockname()[1]
        self._queue, self._tasks = AdmissionQueue(), BackgroundTasks()

    async def __aenter__(self) -> "RelayServer":
        for listener in self._sockets:
            self._tasks.start(accept_connections(listener, self.audit, self._on_connection))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.hub.close()
        for listener in self._sockets:
            listener.close()

    def _on_connection(self, connection: socket.socket, address: Any) -> None:
        task = self._tasks.start(self.hub.admit(connection, f"{address[0]}:{address[1]}"))
        number = self._queue.add(address[0], task.cancel)

        def release(_: object) -> None:
            self._queue.remove(number)
            if task.cancelled():
                connection.close()

        task.add_done_callback(release)


async def run_relay(
    folder: Path, address: str | None, limits: RelayLimits, write_line: Callable[[str], None]
) -> None:
    """Run the relay with the signed roster in `folder` until it is interrupted."""
    async with RelayServer(folder, address, limits, Audit(write_line)) as server:
        write_line(f"the relay listens at {server.address}; it has no keys and reads no messages")
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
