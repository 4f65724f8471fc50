"""Prometheus metrics of a site: plain text over HTTP, on this machine only."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ...report.loopback_server import is_loopback
from ..rounds.local_measures import bytes_sent
from ..rounds.node import Node
from .audit import sanitize_text

MAX_READERS = 8  # at a time
RESPONSE_SECONDS = 5.0  # for a request and its response
MAX_REQUEST_BYTES = 2**13
HOST = "127.0.0.1"
METRICS = {  # by name: type and help
    "round": ("gauge", "Rounds made."),
    "rounds": ("gauge", "Rounds that there are to be."),
    "seconds_total": ("counter", "Seconds of rounds, in this sitting."),
    "waited_seconds_total": ("counter", "Of these, seconds without work of the site's own."),
    "sent_bytes_total": ("counter", "Bytes of the messages sent, in all sittings."),
    "kept_messages": ("gauge", "Messages that a neighbour may still ask for."),
    "noted_total": ("counter", "Refused connections and absurd messages, as in the log."),
    "neighbour_round": ("gauge", "Round of the last message heard; -1 before the first."),
    "neighbour_awaited_seconds": ("gauge", "Seconds that its next message has been awaited."),
    "neighbour_away": ("gauge", "1 where rounds are made without it."),
    "neighbour_absurd_total": ("counter", "Its messages that were finite and absurd."),
}


def format_metrics(node: Node) -> str:
    """Format all metrics."""
    values: dict[str, Any] = {
        "round": node.t,
        "rounds": node.rounds,
        "seconds_total": node.seconds,
        "waited_seconds_total": node.seconds_waited,
        "sent_bytes_total": 0 if node.progress is None else bytes_sent(node.agent, node.progress),
        "kept_messages": len(node.service.outbox.frames),
        "noted_total": sum(node.service.audit.counts.values()),
    }
    absent = node.edges.absent if node.edges else {}
    outlier_counts = node.exchange_runner.outlier_detector.counts
    neighbours = node.neighbour_status
    values["neighbour_round"] = {j: status.round for j, status in neighbours.items()}
    awaited = {j: status.seconds_awaited() for j, status in neighbours.items()}
    values["neighbour_awaited_seconds"] = awaited
    values["neighbour_away"] = {j: int(j in absent) for j in neighbours}
    values["neighbour_absurd_total"] = {j: outlier_counts[j] for j in neighbours}
    lines = []
    for name, (kind, description) in METRICS.items():
        lines += [f"# HELP diamond_{name} {description}", f"# TYPE diamond_{name} {kind}"]
        lines += [f"diamond_{name}{label} {value}" for label, value in _samples(node, values[name])]
    return "\n".join(lines) + "\n"


def _samples(node: Node, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        return [("", value)]
    label = lambda j: (
        sanitize_text(node.service.site_name(j)).replace("\\", "\\\\").replace('"', '\\"')
    )
    return [(f'{{neighbour="{label(j)}"}}', sample) for j, sample in value.items()]


@asynccontextmanager
async def serve_metrics(
    current_node: Callable[[], Node], port: int | None
) -> AsyncIterator[int | None]:
    """Serve the metrics on loopback at that port, if one is given."""
    if port is None:
        yield None
        return
    readers = asyncio.Semaphore(MAX_READERS)

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if readers.locked():
                return
            async with readers, asyncio.timeout(RESPONSE_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_http_response(head, current_node()))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # bad requests get no response
        except asyncio.CancelledError:
            pass  # the site stops; no error is needed
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(respond, HOST, port, limit=MAX_REQUEST_BYTES)
    except OSError as cause:
        raise OSError(
            f"{HOST}:{port} cannot be listened on ({cause.strerror}); give another --metrics"
        ) from None
    async with server:
        yield server.sockets[0].getsockname()[1]


def _http_response(head: bytes, node: Node) -> bytes:
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = [line.partition(":") for line in lines]
    hosts = [value.strip() for name, _, value in fields if name.lower() == "host"]
    request_line = first.split(" ")
    is_get = len(request_line) == 3 and request_line[0] == "GET"
    status, body = "404 Not Found", "only /metrics is here\n"
    if not all(map(is_loopback, hosts or [""])):
        status, body = "403 Forbidden", "only requests to this machine are answered\n"
    elif is_get and request_line[1] in ("/", "/metrics"):
        status, body = "200 OK", format_metrics(node)
    content_type = "text/plain; version=0.0.4; charset=utf-8"
    content = body.encode()
    headers = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
    headers += f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return headers.encode() + content
