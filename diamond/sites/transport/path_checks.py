"""Test of all that a site needs: its machine, and the path to each neighbour and relay.

The test of an edge dials or awaits it, as in a run. If the site runs, it is asked about neighbours
that dial it. If not, the test listens and waits in its place, and neighbours without an address can
be tested at both ends at the same time. What fails is named with its first cause: the name of the
machine, its port, TLS with the key, or the answer.
"""

import asyncio
import socket
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ...core.parsing import refuse_unreadable
from ...hardware.device_memory import available_memory, format_bytes
from ...metrics.display import format_duration
from ...records.write_check import check_writable
from ..identity.certificate_authority import CLOCK_SKEW
from ..identity.handshake import describe_differences, installed_versions
from ..identity.roster import Bundle
from ..rounds.client import gather_or_cancel
from . import messages
from .audit import sanitize_text
from .error_texts import describe_error
from .errors import RunMismatch, Unreachable
from .messages import Greeting, Ping, Pong, StatusQuery
from .operator_queries import query_members
from .relay_handshake import probe_relay
from .rpc import RpcClient
from .server import Server
from .sockets import open_listening_sockets
from .timeouts import Timeouts
from .wire_format import MAX_REQUEST_BYTES, Frame, FrameError, unpack

GOOD = "good"


@dataclass
class PathReport:
    """Result of each check, "good" or the cause of its failure."""

    edges: dict[str, str] = field(default_factory=dict)  # by neighbour
    relays: dict[str, str] = field(default_factory=dict)  # by name
    machine: dict[str, str] = field(default_factory=dict)  # by part

    @property
    def is_good(self) -> bool:
        """Return whether all is good."""
        return {*self.edges.values(), *self.relays.values(), *self.machine.values()} <= {GOOD}


def check_machine(out: Path, disk: int = 0, memory: int = 0) -> dict[str, str]:
    """Return whether this machine has room for a run below `out`: disk and memory in bytes."""
    results = {"disk": GOOD, "memory": GOOD}
    try:
        check_writable(out, disk)
    except OSError as cause:
        results["disk"] = f"{cause.filename}: {cause.strerror}"
    free = available_memory()
    if free is not None and free < memory:
        results["memory"] = (
            f"{format_bytes(free)} are free, and messages alone need {format_bytes(memory)}: end "
            f"other programs, or raise the limit of this container"
        )
    return results


async def check_paths(
    site: Bundle, digests: Mapping[str, str], limits: Timeouts, own_address: str
) -> PathReport:
    """Test the paths to neighbours and relays, and compare clocks and versions with theirs.

    `digests` of a run, if given, are compared with those of the neighbours. `own_address` is where
    the site listens, or would listen; it may be empty.
    """
    number, running, report = site.me.number, None, PathReport()
    clocks: dict[str, float] = {}  # by neighbour: seconds ahead of this one
    versions: dict[str, str] = {}  # by neighbour: differences
    if own_address:
        query = query_members(site, StatusQuery, [site.me], limits.connect, own_address=own_address)
        status = (await query)[site.me.name]
        running = None if "error" in status else status
        if running is None:
            report.machine["port"] = _check_listening(own_address)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(RpcClient(site, MAX_REQUEST_BYTES, limits))
        is_shared = any(client.route(member.number).is_shared for member in site.neighbours)
        if running is None and is_shared and report.machine.get("port", GOOD) == GOOD:

            async def answer(sender: int, request: Frame) -> Frame:
                return _answer_test(request, digests, site.me.name)

            server = Server(site, answer, own_address or None, client=client)
            await stack.enter_async_context(server)

        async def check_edge(j: int) -> str:
            member = site.roster.members[j]
            if running is not None and not client.route(j).dials:
                is_connected = j in running["connected"]
                return GOOD if is_connected else f"{member.name} has not connected to this site"
            try:
                sent = time.time()
                pong = Pong.read(await client.send_request(j, Ping(number).encode()))
                if pong.time is not None:
                    travel = (time.time() - sent) / 2
                    ahead = pong.time - sent - travel
                    clocks[member.name] = ahead if abs(ahead) > travel else 0.0
                if difference := _compare_versions(pong):
                    versions[member.name] = difference
                if digests:
                    await client.send_request(j, Greeting(number, dict(digests)).encode())
                return GOOD
            except OSError as cause:
                reason = str(cause)
                if isinstance(cause, Unreachable) and client.route(j).kind in ("both", "dial"):
                    cause_below = await _probe_port(member.address, limits.connect)
                    reason = cause_below or f"the port is open; {reason}"
                return f"{member.address}: {reason}" if member.address else reason
            except FrameError as cause:
                return f"{member.name}: {cause}"

        relays = site.roster.all_relays
        uses_relays = any("relay" in client.route(m.number).kind for m in site.neighbours)
        names = [name for name in relays if uses_relays and name != site.me.name]
        edges = gather_or_cancel(check_edge(member.number) for member in site.neighbours)
        probes = gather_or_cancel(_probe_relay(relays[name], limits.connect) for name in names)
        edge_results, relay_results = await asyncio.gather(edges, probes)
    report.edges = dict(zip((member.name for member in site.neighbours), edge_results))
    report.relays = dict(zip(names, relay_results))
    if clocks:
        report.machine["clock"] = _describe_clocks(clocks)
        report.machine["versions"] = (
            "; ".join(f"{name} has {text}" for name, text in versions.items()) or GOOD
        )
    return report


def _check_listening(address: str) -> str:
    """Return whether this machine can listen at the address of the site."""
    try:
        for listener in open_listening_sockets(address):
            listener.close()
    except OSError as cause:
        return str(cause)
    return GOOD


async def _probe_port(address: str, seconds: float) -> str:
    """Return why no connection to an address is possible, or nothing if one is."""
    host, port = address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return f"DNS: no machine of the name {host} is known"
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
    except TimeoutError:
        return f"port: no connection within {seconds:g} s; does a firewall drop port {port}?"
    except OSError as cause:
        return f"port: {describe_error(cause)}"
    return ""


async def _probe_relay(address: str, seconds: float) -> str:
    """Return whether a relay of this federation's kind listens at an address."""
    if reason := await _probe_port(address, seconds):
        return f"{address}: {reason}"
    try:
        async with asyncio.timeout(seconds):
            await probe_relay(address)
    except TimeoutError:
        return f"{address}: no answer within {seconds:g} s; `diamond net relay` is to listen there"
    except OSError as cause:
        return f"{address}: what listens there is no relay ({describe_error(cause)})"
    return GOOD


def _describe_clocks(ahead: Mapping[str, float]) -> str:
    """Return whether the clocks of neighbours, so many seconds ahead, agree with this one."""
    limit = CLOCK_SKEW.total_seconds()
    wrong = {name: seconds for name, seconds in ahead.items() if abs(seconds) > limit}
    texts = [
        f"that of {name} is {format_duration(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}"
        for name, seconds in wrong.items()
    ]
    remedy = f"set the clock that is wrong; certificates allow {format_duration(limit)}"
    return f"{', '.join(texts)}: {remedy}" if wrong else GOOD


@refuse_unreadable(FrameError, "its versions cannot be read")
def _compare_versions(pong: Pong) -> str:
    """Return the versions of a neighbour that differ from those of this site."""
    theirs = pong.versions if isinstance(pong.versions, dict) else {}
    return ", ".join(
        f"{name} {sanitize_text(theirs[name], 20)} ({version} here)"
        for name, version in installed_versions().items()
        if name in theirs and theirs[name] != version
    )


def _answer_test(request: Frame, digests: Mapping[str, str], name: str) -> Frame:
    """Answer the test or the greeting of a neighbour."""
    header, _ = unpack(request, MAX_REQUEST_BYTES)
    match messages.decode_request(header):
        case Ping():
            return Pong(time.time(), installed_versions()).encode()
        case Greeting(parts=parts, within=within):
            if digests and (mismatch := describe_differences(digests, parts)):
                raise RunMismatch(f"{name} runs something else: {mismatch}")
            if within is None:  # no greeting of a run, which is not to begin with a test
                return messages.GreetingAnswer().encode()
    raise FrameError(f"{name} is being tested and does not run")
