"""One view of all sites: signed by each, passed on by its neighbours, and nothing forged."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from dialing_sites import found, relay, site
from tls_sites import ports

from diamond.sites.rounds.overview import (
    MAX_QUERIES,
    StatusCollector,
    new_query,
    sign_status,
    verify_status,
    verify_statuses,
)
from diamond.sites.transport.errors import Refused
from diamond.sites.transport.messages import OverviewQuery, StatusQuery
from diamond.sites.transport.operator_queries import query_federation, query_members
from diamond.sites.transport.wire_format import FrameError, unpack

STATUS = {"agent": 1, "round": 3, "rounds": 9, "state": "running", "waiting": [], "away": []}


@contextlib.asynccontextmanager
async def answering(bundle):
    async with site(bundle) as node:
        collector = StatusCollector(node.rpc.credentials, node.rpc, node.status)
        node.service.answer_overview = collector.answer
        node.service.open_connections = node.rpc.open_connections
        yield node


@pytest.mark.parametrize("listening", [{0, 1, 2}, {0}])
def test_a_site_sees_those_behind_its_neighbours(tmp_path, listening):
    places = {"hub": f"127.0.0.1:{ports(1)[0]}"} if listening == {0} else None
    bundles = found(tmp_path, listening, places)

    async def attempt():
        async with contextlib.AsyncExitStack() as stack:
            if places:
                await stack.enter_async_context(relay(tmp_path / "hub"))
            nodes = [await stack.enter_async_context(answering(bundle)) for bundle in bundles]
            nodes[2].t = 7
            while sum(len(node.rpc.open_connections()) for node in nodes[1:]) < 2 and places:
                await asyncio.sleep(0.01)
            address = f"127.0.0.1:{nodes[0].server.port}"
            seen = await query_federation(bundles[0], 4.0, address)
            near = await query_members(
                bundles[0],
                StatusQuery,
                [bundles[0].me, *bundles[0].neighbours],
                4.0,
                own_address=address,
            )
        return seen, near

    seen, near = asyncio.run(attempt())
    assert [answer["round"] for answer in seen.values()] == [0, 0, 7]
    assert list(seen) == ["site0", "site1", "site2"] and list(near) == ["site0", "site1"]
    assert near["site1"]["state"] == "running"
    assert all("loss" not in answer for answer in seen.values())


def test_a_site_that_is_away_is_named(tmp_path):
    bundles = found(tmp_path, {0, 1, 2})

    async def attempt():
        async with answering(bundles[0]) as node, answering(bundles[1]):
            return await query_federation(bundles[0], 1.0, f"127.0.0.1:{node.server.port}")

    seen = asyncio.run(attempt())
    assert seen["site1"]["state"] == "running" and seen["site2"] == {
        "error": "no answer from this site"
    }


def test_a_status_is_signed_for_one_query_and_for_its_own_site(tmp_path):
    one, two, _ = found(tmp_path, {0, 1, 2})
    query, other = new_query(), new_query()
    record = sign_status(two, query, STATUS)
    assert verify_status(one, query, record)["round"] == 3
    with pytest.raises(Refused, match="did not sign"):
        verify_status(one, other, record)
    with pytest.raises(Refused, match="did not sign"):
        verify_status(one, query, record.replace(b'"round": 3', b'"round": 4'))
    with pytest.raises(Refused, match="in the name of another"):
        verify_status(one, query, sign_status(one, query, STATUS))
    stranger = found(tmp_path / "other", {0, 1, 2})[1]
    with pytest.raises(Refused, match="authority"):
        verify_status(one, query, sign_status(stranger, query, STATUS))
    for damaged in (b"", record[:-1], sign_status(two, query, {"agent": 1})):
        with pytest.raises((FrameError, Refused)):
            verify_status(one, query, damaged)
    forged = sign_status(replace(two, key=one.key), query, STATUS)
    assert list(verify_statuses(one, query, [forged, record])) == ["site1"]


def test_reasons_and_losses_stay_at_the_site_and_queries_are_few(tmp_path):
    bundle = found(tmp_path, {0, 1, 2})[1]
    waiting = [{"agent": 0, "seconds": 2.0, "why": "10.0.0.7: nothing listens there"}]

    async def attempt():
        async with site(bundle) as node:
            collector = StatusCollector(
                node.rpc.credentials, node.rpc, lambda: STATUS | {"waiting": waiting}
            )
            ask = lambda query: collector.answer(OverviewQuery(1, query, 1.0, 0))
            query = new_query()
            (record,) = unpack(await ask(query), 10**5)[0]["records"]
            assert b"10.0.0.7" not in record
            assert verify_status(bundle, query, record)["waiting"][0]["seconds"] == 2.0
            assert unpack(await ask(query), 10**5)[0]["records"] == []  # not twice
            with pytest.raises(Refused, match="queries in a second"):
                for _ in range(MAX_QUERIES):
                    await ask(new_query())

    asyncio.run(attempt())
