"""Prometheus metrics of a site, read over its port during a run."""

import asyncio
import re

import pytest
from crash_cluster import EVERY, LIMITS, ROUNDS, team
from tls_sites import ports

from diamond.sites.rounds.node import Node
from diamond.sites.transport.in_process_transport import InProcessNetwork
from diamond.sites.transport.metrics_endpoint import MAX_READERS, METRICS, serve_metrics

LINE = re.compile(r'diamond_(\w+)(?:\{neighbour="((?:[^"\\]|\\.)*)"\})? (-?[\d.e+-]+)')


async def fetched(port, request=b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        answer = await reader.read()
    except ConnectionResetError:
        answer = b""
    writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    return head, body


def test_metrics_are_served_during_the_run(tmp_path):
    wire, names, heard = InProcessNetwork(delay=0.0), {0: "a", 1: 'the "middle"', 2: "c"}, []

    async def everyone():
        for agent in team():
            place = tmp_path / str(agent.number)
            fixed = agent, ROUNDS, wire.transport(agent.number), place, EVERY, LIMITS
            wire.nodes[agent.number] = Node(*fixed, names=names)
        async with serve_metrics(lambda: wire.nodes[0], 0) as port:
            before = await fetched(port)
            await asyncio.gather(*(node.run() for node in wire.nodes.values()))
            heard.extend([before, await fetched(port)])
            heard.append(await fetched(port, b"POST /metrics HTTP/1.1\r\nHost: [::1]:9\r\n\r\n"))
            for host in (b"Host: evil.example", b"Host: localhost.evil.example:80", b"Accept: *"):
                request = b"GET /metrics HTTP/1.1\r\n" + host + b"\r\n\r\n"
                assert (await fetched(port, request))[0].startswith("HTTP/1.1 403")
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_READERS)]
            await asyncio.sleep(0.05)
            heard.append(await fetched(port))  # one too many
            for _, writer in silent:
                writer.close()

    asyncio.run(everyone())
    (head, before), (_, after), (wrong, _), crowded = heard
    assert head.startswith("HTTP/1.1 200 OK") and wrong.startswith("HTTP/1.1 404")
    assert crowded == ("", "")
    first, last = ({m[:2]: float(m[2]) for m in LINE.findall(one)} for one in (before, after))
    assert {name for name, _ in last} == set(METRICS)
    label = r"the \"middle\""
    assert f'diamond_neighbour_round{{neighbour="{label}"}} {ROUNDS}' in after
    assert first["round", ""] == 0 and last["round", ""] == last["rounds", ""] == ROUNDS
    assert last["sent_bytes_total", ""] == ROUNDS * team()[0].bytes_per_round
    assert 0 < last["waited_seconds_total", ""] < last["seconds_total", ""]


def test_an_occupied_port_is_named():
    async def twice():
        (port,) = ports(1)
        async with serve_metrics(None, port), serve_metrics(None, port):
            pass

    with pytest.raises(OSError, match=r"127.0.0.1:\d+ cannot be listened on .* another --metrics"):
        asyncio.run(twice())
