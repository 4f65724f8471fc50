"""Overview of a federation: signed statuses, collected from neighbour to neighbour.

A site that is asked asks its other neighbours in turn, once per query, and passes their answers on.
Every site signs its own status together with the random number of the query, so that no site on the
way can alter an answer or repeat an old one. A status has the round, the state, and for whom and
how long the site waits; the loss only if the site's operator shares it.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...core.parsing import refuse_unreadable
from ...metrics.site_status import SiteStatus
from ..identity.credentials import Credentials
from ..identity.roster import Bundle
from ..transport.errors import Refused, Unreachable
from ..transport.messages import QUERY_BYTES, OverviewAnswer, OverviewQuery
from ..transport.wire_format import Frame, FrameError
from ..trust.signed_records import sign_record, verify_record
from .client import Transport
from .node_status import validate_status

MAX_RECORDS, MAX_RECORD_BYTES = 80, 4096  # a response fits in the header of a frame
MAX_RESPONSE_BYTES = 60_000
MAX_QUERIES = 20  # new queries a second
MAX_SEEN = 1000  # queries that are remembered
CONTEXT = b"diamond: status of a site\0"
PASSED_ON = 0.8  # share of the time that a site leaves its neighbours


def new_query() -> bytes:
    """Return the random number of a query."""
    return os.urandom(QUERY_BYTES)


class StatusCollector:
    """Answers of a running site to queries; `status` returns its own status."""

    def __init__(
        self, credentials: Credentials, transport: Transport, status: Callable[[], dict[str, Any]]
    ):
        self.credentials, self.transport, self.status = credentials, transport, status
        self._seen: dict[bytes, float] = {}  # queries, and when they came

    async def answer(self, query: OverviewQuery) -> Frame:
        """Answer a query with the signed statuses of this site and of those beyond it."""
        number, site = query.query, self.credentials.bundle
        if number in self._seen:
            return OverviewAnswer([]).encode()  # it came another way
        self._remember(number)
        records = [sign_status(site, number, _public_part(self.status()))]
        if query.hops > 0:
            onward = OverviewQuery(
                site.me.number, number, PASSED_ON * query.seconds, query.hops - 1
            )
            others = [j for j in site.me.neighbours if j != query.sender]
            for answers in await asyncio.gather(*(self._ask(j, onward) for j in others)):
                records += answers
        return OverviewAnswer(_bounded(records)).encode()

    def _remember(self, query: bytes) -> None:
        now = time.monotonic()
        if sum(now - then < 1.0 for then in self._seen.values()) >= MAX_QUERIES:
            raise Refused(f"more than {MAX_QUERIES} queries in a second")
        while len(self._seen) >= MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[query] = now

    async def _ask(self, j: int, query: OverviewQuery) -> list[bytes]:
        try:
            async with asyncio.timeout(query.seconds):
                return read_records(await self.transport.send_request(j, query.encode()))
        except (TimeoutError, Unreachable, Refused, FrameError):
            return []


def _public_part(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return what sites that are no neighbours may know; reasons name addresses."""
    names = "agent", "round", "rounds", "state", "away", "loss", "liars"
    waiting = [{**entry, "why": ""} for entry in status["waiting"]]
    return {name: status[name] for name in names if name in status} | {"waiting": waiting}


def _bounded(records: Iterable[bytes]) -> list[bytes]:
    """Return as many records as fit into a response."""
    chosen, size = [], 0
    for record in records:
        size += len(record) + 5
        if len(record) > MAX_RECORD_BYTES or size > MAX_RESPONSE_BYTES:
            break
        chosen.append(record)
    return chosen[:MAX_RECORDS]


def read_records(response: Frame) -> list[bytes]:
    """Return the records in a response."""
    return _bounded(OverviewAnswer.read(response).records)


def sign_status(bundle: Bundle, query: bytes, status: Mapping[str, Any]) -> bytes:
    """Sign a status of this site, for one query."""
    return sign_record(bundle, CONTEXT + query, json.dumps(status).encode())


def verify_status(bundle: Bundle, query: bytes, record: bytes) -> SiteStatus:
    """Return the status in a record, whose site must have signed it for this query."""
    content, holder = verify_record(bundle, CONTEXT + query, record, "status")
    with refuse_unreadable(FrameError, "an answer that is no status"):
        status = validate_status(json.loads(content), len(bundle.roster.members))
    if holder is None or holder.number != status["agent"]:
        raise Refused("a status in the name of another site")
    return status


def verify_statuses(
    bundle: Bundle, query: bytes, records: Iterable[bytes]
) -> dict[str, SiteStatus]:
    """Return the statuses by site; records that do not pass are left out."""
    statuses = {}
    for record in records:
        try:
            status = verify_status(bundle, query, record)
        except (Refused, FrameError):
            continue
        statuses[bundle.roster.members[status["agent"]].name] = status
    return statuses
