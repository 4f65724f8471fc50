"""Processor time of a site's round: `python benchmarks/peers_processor.py [BYTES ...]`.

A ring of five sites in one process, each with its own connections over mutual TLS on loopback and
its own checkpoints, GT-SGD in the paper's order. Processor time depends less on what else runs on
the machine than rounds a second do. Prints milliseconds a site and round, once all is compiled.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import diamond
from diamond.hardware.compiler import run_inline
from diamond.sites.identity import certificate_authority, roster
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.wire_format import max_frame_bytes

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from peers import METHOD, PROBLEM
from site_faults import ports

SITES, ROUNDS, EVERY = 5, 200, 25
NETWORK = diamond.network.ring(SITES)


async def live(bundle: roster.Bundle, root: Path, size: int, marks: list) -> None:
    """One site's run; the first one notes the processor time at a quarter and at the end."""
    space: dict = {}
    exec(PROBLEM, space)
    number = bundle.me.number
    agent = Agent(space["make"](number, size // 8), NETWORK, METHOD, number)

    def record_time(progress: object) -> None:
        if number == 0 and progress.t in (ROUNDS // 4, ROUNDS - 1):
            marks.append((progress.t, time.process_time()))

    async with RpcClient(bundle, max_frame_bytes(agent.largest_layout)) as client:
        node = Node(agent, ROUNDS, client, root / bundle.me.name, EVERY, on_round=record_time)
        async with Server(bundle, node.answer_request):
            await node.run()


async def everyone(size: int) -> float:
    """Milliseconds of processor time a site and round."""
    marks: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        names = {f"site{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports(SITES))}
        bundle_folders = certificate_authority.create_federation(
            root / "federation", "trial", names, NETWORK
        )
        bundles = [roster.load_bundle(folder) for folder in bundle_folders.values()]
        await asyncio.gather(*(live(bundle, root, size, marks) for bundle in bundles))
    (first, begun), (last, ended) = marks
    return 1000 * (ended - begun) / (last - first) / SITES


if __name__ == "__main__":
    run_inline()  # as `diamond net start` does
    for size in map(int, sys.argv[1:] or (4_000, 100_000)):
        print(f"{size:>10} bytes a message: {asyncio.run(everyone(size)):.2f} ms a site and round")
