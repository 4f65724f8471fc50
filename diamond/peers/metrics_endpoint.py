"""Prometheus metrics of a site: plain text over HTTP, on this machine only."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from .local_measures import sent
from .node import Node
from .text_sanitizing import printable

READERS = 8  # at a time
SECONDS = 5.0  # for a request and its response
LONGEST = 2**13  # bytes of a request
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


def text(node: Node) -> str:
    """Format all metrics."""
    found: dict[str, Any] = {
        "round": node.t,
        "rounds": node.rounds,
        "seconds_total": node.seconds,
        "waited_seconds_total": node.waited,
        "sent_bytes_total": 0 if node.progress is None else sent(node.agent, node.progress),
        "kept_messages": len(node.service.outbox.frames),
        "noted_total": sum(node.service.audit.counts.values()),
    }
    away = node.edges.away if node.edges else {}
    absurd = node.exchanges.suspicion.counts
    found["neighbour_round"] = {j: heard.round for j, heard in node.heard.items()}
    found["neighbour_awaited_seconds"] = {j: one.waiting() for j, one in node.heard.items()}
    found["neighbour_away"] = {j: int(j in away) for j in node.heard}
    found["neighbour_absurd_total"] = {j: absurd[j] for j in node.heard}
    lines = []
    for name, (kind, said) in METRICS.items():
        lines += [f"# HELP diamond_{name} {said}", f"# TYPE diamond_{name} {kind}"]
        lines += [f"diamond_{name}{label} {value}" for label, value in _each(node, found[name])]
    return "\n".join(lines) + "\n"


def _each(node: Node, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        return [("", value)]
    label = lambda j: printable(node.service.call(j)).replace("\\", "\\\\").replace('"', '\\"')
    return [(f'{{neighbour="{label(j)}"}}', one) for j, one in value.items()]


@asynccontextmanager
async def served(node: Node, port: int | None) -> AsyncIterator[int | None]:
    """Serve the metrics on loopback at that port, if one is given."""
    if port is None:
        yield None
        return
    readers = asyncio.Semaphore(READERS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if readers.locked():
                return
            async with readers, asyncio.timeout(SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, node))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # bad requests get no response
        except asyncio.CancelledError:
            pass  # the site stops; no error is needed
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, HOST, port, limit=LONGEST)
    except OSError as cause:
        raise OSError(
            f"{HOST}:{port} cannot be listened on ({cause.strerror}); give another --metrics"
        ) from None
    async with server:
        yield server.sockets[0].getsockname()[1]


def _answer(head: bytes, node: Node) -> bytes:
    asked = head.split(b"\r\n", 1)[0].split(b" ")
    good = len(asked) == 3 and asked[0] == b"GET" and asked[1] in (b"/", b"/metrics")
    status, body = ("200 OK", text(node)) if good else ("404 Not Found", "only /metrics is here\n")
    kind = "text/plain; version=0.0.4; charset=utf-8"
    content = body.encode()
    told = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
    return (told + "Connection: close\r\n\r\n").encode() + content
