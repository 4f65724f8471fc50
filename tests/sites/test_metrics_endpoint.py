"""Metrics of a site, read over its port during a run by the parsers of Prometheus."""

import asyncio

import pytest
from crash_cluster import EVERY, LIMITS, ROUNDS, team
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
from tls_sites import ports

from diamond.sites.rounds.node import Node
from diamond.sites.transport.in_process_transport import InProcessNetwork
from diamond.sites.transport.metrics_endpoint import MAX_READERS, METRICS, serve_metrics

GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
ACCEPT = b"Accept: application/openmetrics-text; version=1.0.0\r\n"


async def fetched(port, request=GET + ACCEPT + b"\r\n"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    return head, body


def values(families):
    """Values by the name of the metric and of the neighbour; those of the process are left out."""
    samples = (sample for family in families for sample in family.samples)
    own = (s for s in samples if s.name.startswith("diamond_"))
    return {(s.name[8:], s.labels.get("neighbour", "")): s.value for s in own}


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
            heard.extend([before, await fetched(port), await fetched(port, GET + b"\r\n")])
            other_path = b"GET /private HTTP/1.1\r\nHost: [::1]:9\r\n\r\n"
            heard.append(await fetched(port, other_path))
            for host in (b"Host: evil.example", b"Host: localhost.evil.example:80", b"Accept: *"):
                request = b"GET /metrics HTTP/1.1\r\n" + host + b"\r\n\r\n"
                assert " 403 " in (await fetched(port, request))[0].splitlines()[0]
            for odd in (b"POST /metrics HTTP/1.1\r\n\r\n", b"\xff\0\r\n\r\n"):
                assert " 200 " not in (await fetched(port, odd))[0]
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_READERS)]
            await asyncio.sleep(0.2)
            heard.append(await fetched(port))  # one too many
            for _, writer in silent:
                writer.close()
            await asyncio.sleep(0.2)
            assert (await fetched(port))[1]  # there is room again

    asyncio.run(everyone())
    (head, before), (_, after), (plain_head, plain), (wrong, _), crowded = heard
    assert " 200 OK" in head.splitlines()[0] and " 404 " in wrong.splitlines()[0]
    assert "application/openmetrics-text" in head and "text/plain" in plain_head
    assert crowded == ("", "")
    first, last = (values(openmetrics.text_string_to_metric_families(t)) for t in (before, after))
    assert {name for name, _ in last if not name.endswith("_created")} == set(METRICS)
    assert last["neighbour_round", 'the "middle"'] == ROUNDS
    assert first["round", ""] == 0 and last["round", ""] == last["rounds", ""] == ROUNDS
    assert last["sent_bytes_total", ""] == ROUNDS * team()[0].bytes_per_round
    assert 0 < last["waited_seconds_total", ""] < last["seconds_total", ""]
    earlier_format = values(parser.text_string_to_metric_families(plain))
    assert earlier_format["round", ""] == ROUNDS and "process_resident_memory_bytes" in plain


def test_an_occupied_port_is_named():
    async def twice():
        (port,) = ports(1)
        async with serve_metrics(None, port), serve_metrics(None, port):
            pass

    with pytest.raises(OSError, match=r"127.0.0.1:\d+ cannot be listened on .* another --metrics"):
        asyncio.run(twice())
