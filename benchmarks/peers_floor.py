"""The bare floor of a site, for `benchmarks/peers.py`: TLS streams and the compiled round.

    python benchmarks/peers_floor.py BUNDLE BYTES ROUNDS

Blocking sockets with the keys of a bundle, one message to every neighbour and one from each a
round, straight into the program; no envelopes, checks, checkpoints, measuring, or second tries.
Prints seconds and processor seconds of the second half of the rounds.
"""

import json
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np

import diamond
from diamond.hardware.compilation_cache import enable_compile_cache
from diamond.hardware.compiler import run_inline
from diamond.sites.identity import roster
from diamond.sites.rounds.max_consensus import MaxConsensus
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.tls import tls_context

sys.path.insert(0, str(Path(__file__).parent))
from peers import METHOD, PROBLEM


def streams(site: roster.Bundle) -> dict[int, tuple]:
    """One stream to every neighbour, as (to send on, to receive from)."""
    outer = socket.create_server(("127.0.0.1", int(site.me.address.rsplit(":")[-1])))
    coming, going = {}, {}

    def accept() -> None:
        while len(coming) < len(site.neighbours):
            connection, _ = outer.accept()
            secured = tls_context(site, is_server=True).wrap_socket(connection, server_side=True)
            coming[secured.recv(1)[0]] = secured

    waiting = threading.Thread(target=accept)
    waiting.start()
    for member in site.neighbours:
        name, port = member.address.rsplit(":", 1)
        while True:
            try:
                connection = socket.create_connection((name, int(port)))
                break
            except OSError:
                time.sleep(0.05)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secured = tls_context(site, is_server=False)
        going[member.number] = secured.wrap_socket(
            connection, server_hostname=roster.certificate_name(member.fingerprint)
        )
        going[member.number].sendall(bytes([site.me.number]))
    waiting.join()
    return {j: (going[j], coming[j]) for j in going}


def main(bundle: Path, size: int, rounds: int) -> None:
    """All rounds."""
    run_inline()
    enable_compile_cache()
    space: dict = {}
    exec(PROBLEM, space)
    site = roster.load_bundle(bundle)
    network = diamond.network.ring(len(site.roster.members))
    number = site.me.number
    agent = Agent(space["make"](number, size // 8), network, METHOD, number)
    progress = agent.resolve_deferred(agent.initial_progress(), MaxConsensus())
    layout = agent.layout_at(0)
    buffers = {j: bytearray(sum(leaf.size for leaf in layout)) for j in agent.neighbours}
    arrays = {j: split(buffer, layout) for j, buffer in buffers.items()}
    ways = streams(site)
    for t in range(rounds):
        if t == rounds // 2:
            begun, spent = time.perf_counter(), time.process_time()
        own_arrays = agent.outgoing_arrays(progress, 0, None)
        sending = threading.Thread(
            target=send, args=([going for going, _ in ways.values()], own_arrays)
        )
        sending.start()
        local_result = agent.compute(progress, 0)
        for j, (_, coming) in ways.items():
            view = memoryview(buffers[j])
            while view:
                view = view[coming.recv_into(view) :]
        sending.join()
        progress = agent.finish_round(
            agent.finish_exchange(progress, 0, local_result, arrays | {number: own_arrays})
        )
    took = {"seconds": time.perf_counter() - begun, "processor": time.process_time() - spent}
    print(json.dumps(took))
    for going, coming in ways.values():
        going.close(), coming.close()


def send(ways: list, own_arrays: list) -> None:
    """A message to everyone."""
    for way in ways:
        for array in own_arrays:
            way.sendall(memoryview(np.ascontiguousarray(array)).cast("B"))


def split(buffer: bytearray, layout: tuple) -> list[np.ndarray]:
    """The arrays that the bytes are."""
    arrays, start = [], 0
    for leaf in layout:
        flat = np.frombuffer(buffer, leaf.dtype, leaf.size // np.dtype(leaf.dtype).itemsize, start)
        arrays.append(flat.reshape(leaf.shape))
        start += leaf.size
    return arrays


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
