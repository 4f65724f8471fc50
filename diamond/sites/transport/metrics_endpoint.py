"""OpenMetrics endpoint of a site: metrics of its run over HTTP, on this machine only."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ...report.loopback_server import HOST, LoopbackHandler
from ..rounds.local_measures import bytes_sent
from ..rounds.node import Node
from .audit import sanitize_text

MAX_READERS = 8  # at a time
RESPONSE_SECONDS = 5.0  # for a request and its response
FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
METRICS = {  # by name: type and help
    "round": ("gauge", "Rounds made."),
    "rounds": ("gauge", "Rounds of the whole run."),
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


def measure_node(node: Node) -> dict[str, float | dict[int, float]]:
    """Return the value of each metric, or its values by neighbour."""
    absent = node.edges.absent if node.edges else {}
    outlier_counts = node.exchange_runner.outlier_detector.counts
    neighbours = node.neighbour_status
    return {
        "round": node.t,
        "rounds": node.rounds,
        "seconds_total": node.seconds,
        "waited_seconds_total": node.seconds_waited,
        "sent_bytes_total": 0 if node.progress is None else bytes_sent(node.agent, node.progress),
        "kept_messages": len(node.service.outbox.frames),
        "noted_total": sum(node.service.audit.counts.values()),
        "neighbour_round": {j: status.round for j, status in neighbours.items()},
        "neighbour_awaited_seconds": {j: s.seconds_awaited() for j, s in neighbours.items()},
        "neighbour_away": {j: int(j in absent) for j in neighbours},
        "neighbour_absurd_total": {j: outlier_counts[j] for j in neighbours},
    }


class NodeCollector(Collector):
    """Collector of the metrics of a node, which are read on its event loop."""

    def __init__(self, current_node: Callable[[], Node], loop: asyncio.AbstractEventLoop):
        self.current_node, self.loop = current_node, loop

    def describe(self) -> Iterator[Any]:
        """List nothing, so that registration needs no values yet."""
        yield from ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Return the metrics with their present values."""

        async def measure() -> tuple[Node, dict[str, float | dict[int, float]]]:
            return self.current_node(), measure_node(self.current_node())

        future = asyncio.run_coroutine_threadsafe(measure(), self.loop)
        node, values = future.result(RESPONSE_SECONDS)
        site_name = lambda j: sanitize_text(node.service.site_name(j))
        for name, (kind, description) in METRICS.items():
            value = values[name]
            if isinstance(value, Mapping):
                family = FAMILIES[kind](f"diamond_{name}", description, labels=["neighbour"])
                for j, sample in value.items():
                    family.add_metric([site_name(j)], sample)
            else:
                family = FAMILIES[kind](f"diamond_{name}", description, value=value)
            yield family


class MetricsServer(ThreadingHTTPServer):
    """Server of a registry's metrics for a bounded number of readers."""

    def __init__(self, registry: CollectorRegistry, port: int):
        self.readers = threading.Semaphore(MAX_READERS)

        class Handler(LoopbackHandler):
            timeout = RESPONSE_SECONDS

            def answer(self) -> None:
                if self.path not in ("/", "/metrics"):
                    return self.send_error(404, "only /metrics is here")
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self.send_text(encode(registry).decode(), content_type)

        super().__init__((HOST, port), Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self.readers.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.readers.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a reader that fails asks again."""


@asynccontextmanager
async def serve_metrics(current_node: Callable[[], Node], port: int) -> AsyncIterator[int]:
    """Serve the metrics of the node, and of this process, on loopback at that port."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(NodeCollector(current_node, asyncio.get_running_loop()))
    try:
        server = MetricsServer(registry, port)
    except OSError as cause:
        raise OSError(
            f"{HOST}:{port} cannot be listened on ({cause.strerror}); give another --metrics"
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
