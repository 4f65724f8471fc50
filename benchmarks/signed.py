"""Cost of signed messages: `python benchmarks/signed.py [--sites 4] [--repeats 5]`.

All sites of a complete graph in one process, over TLS on loopback, with and without signatures in
turns: processor milliseconds of a site and round, and bytes of a message. Then the parts: SHA-256
of the message, one signature, one verification; and what a site would need if it signed one digest
for every ten messages.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import diamond
from diamond.sites.identity import certificate_authority, roster
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.wire_format import max_frame_bytes
from diamond.sites.trust.signed_messages import sign_messages
from diamond.sites.trust.signed_records import StatementSigner, digest_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent))
from peers import METHOD, problems
from site_faults import ports

ROUNDS = {4_000: 200, 100_000: 100, 1_000_000: 30}  # by bytes of a message


async def run_sites(bundles: list, agents: list, rounds: int, signed: bool) -> tuple[float, int]:
    """Processor seconds of a site and round, and bytes of its last message."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = []
        for bundle, agent in zip(bundles, agents):
            client = RpcClient(bundle, max_frame_bytes(agent.largest_layout))
            await stack.enter_async_context(client)
            signer = StatementSigner(lambda bundle=bundle: bundle)
            sign = partial(sign_messages, signer) if signed else None
            nodes.append(Node(agent, rounds, client, sign=sign))
            await stack.enter_async_context(Server(bundle, nodes[-1].answer_request))
        started, begun, size = {}, {}, {}

        def on_round(node: Node, progress: object) -> None:
            if progress.t == rounds // 2:
                started[node.agent.number] = time.process_time()
            if progress.t == rounds - 1:
                begun[node.agent.number] = time.process_time()
                frames = node.service.outbox.frames
                size[0] = len(frames[max(frames)])

        for node in nodes:
            node.on_round = partial(on_round, node)
        await asyncio.gather(*(node.run() for node in nodes))
    seconds = (max(begun.values()) - min(started.values())) / (rounds - 1 - rounds // 2)
    return seconds / len(nodes), size[0]


def measure_parts(bundle: roster.Bundle, size: int, repeats: int) -> dict[str, float]:
    """Seconds of the digest, the signature and its verification."""
    signer, content = StatementSigner(lambda: bundle), bytes(size)
    statement = signer.sign("ab" * 32, 0, 0, digest_of(content))
    _, identity = signer.identify(signer.certificate)
    parts = {
        "SHA-256": lambda: digest_of(content),
        "sign": lambda: signer.sign("ab" * 32, 0, 0, statement.digest),
        "verify": lambda: identity.has_signed(statement),
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(20 * repeats):
        for name, part in parts.items():
            start = time.process_time()
            for _ in range(10):
                part()
            times[name].append((time.process_time() - start) / 10)
    return {name: min(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(ROUNDS))
    options = parser.parse_args()
    network = diamond.network.complete(options.sites)
    with tempfile.TemporaryDirectory() as folder:
        places = {f"site{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports(options.sites))}
        made = certificate_authority.create_federation(Path(folder) / "f", "f", places, network)
        bundles = [roster.load_bundle(place) for place in made.values()]
        for size in options.sizes:
            of_sites = problems(options.sites, size)
            agents = [Agent(p, network, METHOD, i) for i, p in enumerate(of_sites)]
            times: dict[bool, list[float]] = {False: [], True: []}
            sizes = {}
            for _ in range(options.repeats + 1):
                for signed in (False, True):
                    run = run_sites(bundles, agents, ROUNDS[size], signed)
                    seconds, sizes[signed] = asyncio.run(run)
                    times[signed].append(seconds)
            plain, signed = (statistics.median(times[kind][1:]) for kind in (False, True))
            ratio = statistics.median(b / a for a, b in zip(times[False][1:], times[True][1:]))
            parts = measure_parts(bundles[0], size, options.repeats)
            per_ten = (
                parts["SHA-256"] * options.sites
                + (parts["sign"] + parts["verify"] * (options.sites - 1)) / 10
            )
            print(
                f"{size} bytes: {1e3 * plain:.2f} ms, signed {1e3 * signed:.2f} ms "
                f"(ratio {ratio:.2f}), bytes {sizes[False]} and {sizes[True]}; "
                + ", ".join(f"{name} {1e6 * value:.0f} us" for name, value in parts.items())
                + f"; one signature for ten messages would add {1e3 * per_ten:.2f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
