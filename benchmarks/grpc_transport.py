"""Our transport beside gRPC: `python benchmarks/grpc_transport.py [--smoke]`.

Rings of sites, a process each, run the same rounds on `diamond.sites.transport` and on gRPC, in
turns: the same node, messages and checkpoints, over mutual TLS on loopback with the same
certificates, GT-SGD in the paper's order. For each size of a message, the medians of rounds a
second and of processor milliseconds of a site and round, each with a ratio that is above 1 if our
transport is better, and its range over the turns. The second half of the rounds counts. Both
transports must end in the same bits.

diamond does not need gRPC: `pip install grpcio` before. A site sends its messages to each neighbour
on one stream; `--unary` requests each message by a call of its own instead, which is slower. Left
out on gRPC: relays, renewed keys, probes of rivals, and limits of unauthenticated connections.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from cryptography import x509

import diamond
from diamond.cli.net_site_setup import compute_digest
from diamond.hardware.compilation_cache import enable_compile_cache
from diamond.hardware.compiler import run_inline
from diamond.sites.identity import certificate_authority, roster
from diamond.sites.identity.certificate_holder import find_neighbour
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.round_progress import AgentProgress
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.errors import Refused, RunFailed, RunMismatch, Unreachable
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import RequestHandler, Server
from diamond.sites.transport.subscription import MAX_QUEUED, Publisher, Subscription
from diamond.sites.transport.timeouts import Timeouts
from diamond.sites.transport.wire_format import Frame, FrameError, max_frame_bytes

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent))
from peers import HERE, METHOD, environment, problems
from site_faults import ports

try:
    import grpc
except ImportError:
    grpc = None

ROUNDS = {4_000: 2000, 100_000: 1000, 10_000_000: 40}  # by bytes of a message
SMOKE_ROUNDS = 20
CHECKPOINTS = 4  # of a run
SERVICE, REQUEST, SUBSCRIBE = "diamond.Site", "Request", "Subscribe"
ERROR_FIELD = "diamond-error"  # metadata with the class of a refusal
ERRORS = {error.__name__: error for error in (Refused, RunMismatch, RunFailed)}


def channel_options(max_bytes: int) -> list[tuple[str, Any]]:
    """Return options that let messages of `max_bytes` pass, and retry connections early."""
    pauses = {"initial": 100, "min": 100, "max": 1000}  # milliseconds
    return [
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.max_send_message_length", max_bytes),
        *((f"grpc.{name}_reconnect_backoff_ms", pause) for name, pause in pauses.items()),
    ]


class GrpcTransport:
    """Transport over gRPC: a channel to each neighbour, with one stream of its messages."""

    def __init__(self, bundle: roster.Bundle, max_bytes: int, is_unary: bool = False):
        self.is_unary, self.timeouts = is_unary, Timeouts()
        self._channels: dict[int, Any] = {}
        self._subscriptions: dict[int, asyncio.Task[None]] = {}
        credentials = grpc.ssl_channel_credentials(bundle.ca, bundle.key, bundle.certificate)
        for member in bundle.neighbours:
            name = roster.certificate_name(member.fingerprint)  # only this key may answer
            options = [*channel_options(max_bytes), ("grpc.ssl_target_name_override", name)]
            channel = grpc.aio.secure_channel(member.address, credentials, options)
            self._channels[member.number] = channel

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *error: object) -> None:
        for task in self._subscriptions.values():
            task.cancel()
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def send_request(self, neighbour: int, request: Frame) -> Frame:
        """See `diamond.sites.rounds.client.Transport`."""
        call = self._channels[neighbour].unary_unary(f"/{SERVICE}/{REQUEST}")
        try:
            return await call(bytes(request), timeout=self.timeouts.round)
        except grpc.aio.AioRpcError as cause:
            raise read_error(cause) from None

    def subscribe(self, neighbour: int, request: Frame, subscription: Subscription) -> None:
        """See `diamond.sites.rounds.client.Transport`."""
        if self.is_unary:
            return subscription.end()
        if (earlier := self._subscriptions.get(neighbour)) is not None:
            earlier.cancel()
        receiving = self._receive(neighbour, request, subscription)
        self._subscriptions[neighbour] = asyncio.ensure_future(receiving)

    async def _receive(self, neighbour: int, request: Frame, subscription: Subscription) -> None:
        call = self._channels[neighbour].unary_stream(f"/{SERVICE}/{SUBSCRIBE}")(bytes(request))
        try:
            async for message in call:
                if subscription.ended or not subscription.receive(message):
                    break
        except grpc.aio.AioRpcError as cause:
            error = read_error(cause)
            subscription.end(error if isinstance(error, Refused) else None)
        finally:
            subscription.end()
            call.cancel()


def read_error(cause: Any) -> Exception:
    """Return the refusal of the other end, or else `Unreachable`."""
    name = dict(cause.trailing_metadata() or ()).get(ERROR_FIELD)
    return ERRORS.get(str(name), Unreachable)(cause.details() or str(cause.code()))


class GrpcServer:
    """Server of a site over gRPC; `handle_request` answers authenticated neighbours."""

    def __init__(self, bundle: roster.Bundle, handle_request: RequestHandler, max_bytes: int):
        self.bundle, self.handle_request = bundle, handle_request
        self._senders: dict[bytes, int] = {}  # by certificate
        self._encoded: tuple[Frame, bytes] = b"", b""  # last message, the same for all neighbours
        self._server = grpc.aio.server(options=channel_options(max_bytes))
        handlers = {
            REQUEST: grpc.unary_unary_rpc_method_handler(self._answer),
            SUBSCRIBE: grpc.unary_stream_rpc_method_handler(self._publish),
        }
        generic_handler = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((generic_handler,))
        pairs = [(bundle.key, bundle.certificate)]
        credentials = grpc.ssl_server_credentials(pairs, bundle.ca, require_client_auth=True)
        self._server.add_secure_port(bundle.me.address, credentials)

    async def __aenter__(self) -> None:
        await self._server.start()

    async def __aexit__(self, *error: object) -> None:
        await self._server.stop(grace=1.0)

    async def _answer(self, request: bytes, context: Any) -> bytes:
        """Answer a request that is no subscription."""
        response = await self._handle(request, context)
        assert not isinstance(response, Publisher)
        return self._encode(response)

    async def _publish(self, request: bytes, context: Any) -> None:
        """Send the messages of a subscription."""
        publisher = await self._handle(request, context)
        assert isinstance(publisher, Publisher)
        queue: asyncio.Queue[bytes | Refused] = asyncio.Queue()

        def send(content: Frame) -> bool:
            queue.put_nowait(self._encode(content))
            return not context.done() and queue.qsize() <= MAX_QUEUED

        publisher.send, publisher.refuse = send, queue.put_nowait
        publisher.on_opened()
        while isinstance(content := await queue.get(), bytes):
            await context.write(content)
        await refuse(context, content)

    async def _handle(self, request: bytes, context: Any) -> Frame | Publisher:
        """Pass a request to the node, in the name of the key that the connection has proved."""
        (certificate,) = context.auth_context()["x509_pem_cert"]
        try:
            if certificate not in self._senders:
                content = x509.load_pem_x509_certificate(certificate)
                self._senders[certificate] = find_neighbour(content, self.bundle, 0).number
            return await self.handle_request(self._senders[certificate], request)
        except Refused as reason:
            await refuse(context, reason)
        except FrameError as reason:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(reason))
        raise AssertionError("`abort` raises")

    def _encode(self, frame: Frame) -> bytes:
        """Return the frame as bytes, copied once for all neighbours."""
        if frame is not self._encoded[0]:
            self._encoded = frame, bytes(frame)
        return self._encoded[1]


async def refuse(context: Any, reason: Refused) -> None:
    """End a call with a refusal, of which the other end sees the class."""
    fields = ((ERROR_FIELD, type(reason).__name__),)
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(reason), fields)


async def run_site(
    bundle: roster.Bundle, engine: str, size: int, rounds: int, folder: Path
) -> tuple[float, float, str]:
    """Run one site; return seconds and processor seconds of a round, and the digest of x."""
    number, network = bundle.me.number, diamond.network.ring(len(bundle.roster.members))
    agent = Agent(problems(number + 1, size)[number], network, METHOD, number)
    max_bytes = max_frame_bytes(agent.largest_layout)
    marks: list[tuple[float, float]] = []

    def record_time(progress: AgentProgress) -> None:
        if progress.t in (rounds // 2 - 1, rounds - 1):
            marks.append((time.perf_counter(), time.process_time()))

    transport: Any = RpcClient(bundle, max_bytes)
    server: Any = Server
    if engine != "ours":
        transport = GrpcTransport(bundle, max_bytes, engine == "unary")
        server = partial(GrpcServer, max_bytes=max_bytes)
    async with transport:
        node = Node(agent, rounds, transport, folder, rounds // CHECKPOINTS, on_round=record_time)
        async with server(bundle, node.answer_request):
            final = await node.run()
    seconds, worked = ((b - a) / (rounds - rounds // 2) for a, b in zip(*marks))
    return seconds, worked, compute_digest(final.state.x)


def serve_runs(bundle: Path) -> None:
    """Run one site again and again: a line of the standard input names each run."""
    run_inline()  # as `diamond net start` does
    enable_compile_cache()
    site = roster.load_bundle(bundle)
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            engine, size, rounds = line.split()
            with tempfile.TemporaryDirectory(dir=bundle) as folder:
                run = run_site(site, engine, int(size), int(rounds), Path(folder))
                print(json.dumps(runner.run(run)), flush=True)


class Ring:
    """Ring of sites, a process each, for many runs."""

    def __init__(self, root: Path, sites: int):
        addresses = {f"site{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports(sites))}
        bundles = certificate_authority.create_federation(
            root / f"{sites} sites", "trial", addresses, diamond.network.ring(sites)
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.processes = []
        for bundle in bundles.values():
            command = [sys.executable, __file__, "--site", str(bundle)]
            process = subprocess.Popen(command, env=environment(root, HERE), cwd=root, **pipes)
            self.processes.append(process)

    def __enter__(self) -> "Ring":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def run(self, engine: str, size: int, rounds: int) -> tuple[float, float, tuple[str, ...]]:
        """Return mean seconds and processor seconds of a site and round, and all digests of x."""
        for process in self.processes:
            process.stdin.write(f"{engine} {size} {rounds}\n")
            process.stdin.flush()
        results = [json.loads(process.stdout.readline()) for process in self.processes]
        seconds, worked, digests = zip(*results)
        return statistics.mean(seconds), statistics.mean(worked), digests


def compare(ring: Ring, other: str, size: int, rounds: int, repeats: int) -> str:
    """Return a line of the table: runs of our transport and of another engine in turns."""
    runs: dict[str, list[tuple[float, float, tuple[str, ...]]]] = {"ours": [], other: []}
    for engine in runs:
        ring.run(engine, size, CHECKPOINTS)  # compiles
    for turn in range(repeats):
        for engine in [*runs][:: -1 if turn % 2 else 1]:
            runs[engine].append(ring.run(engine, size, rounds))
    if len({run[2] for measured in runs.values() for run in measured}) != 1:
        raise RuntimeError("the transports end in different bits")
    text = f"{len(ring.processes):>5}" + f"{size // 1000} kB".rjust(10)
    for k, show in enumerate((lambda seconds: 1 / seconds, lambda seconds: 1000 * seconds)):
        ours, others = ([run[k] for run in measured] for measured in runs.values())
        medians = statistics.median(ours), statistics.median(others)
        ratios = [b / a for a, b in zip(ours, others)]
        text += "".join(f"{show(median):>10.3g}" for median in medians)
        text += f"{medians[1] / medians[0]:>8.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return text


def main() -> None:
    """Print the table, or run one site of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, nargs="*", default=[2, 5])
    parser.add_argument("--sizes", type=int, nargs="*", choices=ROUNDS, default=list(ROUNDS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--unary", action="store_true", help="request each message by a call")
    parser.add_argument("--smoke", action="store_true", help="two sites, one size, a few rounds")
    parser.add_argument("--site", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if grpc is None:
        print("gRPC is not installed, so nothing is compared: `pip install grpcio`")
        return
    if options.site:
        serve_runs(options.site)
        return
    if options.smoke:
        options.sites, options.sizes, options.repeats = [2], [4_000], 1
    other = "unary" if options.unary else "grpc"
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':15}{'rounds a second':>20}{'':23}{'processor ms a site and round':>29}")
    print(f"{'sites':>5}{'message':>10}" + 2 * f"{'ours':>10}{other:>10}{'ratio':>8}{'':15}")
    with tempfile.TemporaryDirectory() as folder:
        for sites in options.sites:
            with Ring(Path(folder), sites) as ring:
                for size in options.sizes:
                    rounds = SMOKE_ROUNDS if options.smoke else ROUNDS[size]
                    print(compare(ring, other, size, rounds, options.repeats), flush=True)


if __name__ == "__main__":
    main()
