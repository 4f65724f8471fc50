"""Messages between sites without arrays: one class for each kind, with its fields.

A message is a frame whose header has the kind and the fields of its class (`wire_format.pack`). The
content of a header from outside is checked when it is decoded: a class lists what its fields may
be, and everything else is refused by `FrameError`. `Service.answer_request` handles each class of
requests. Messages of rounds, which have arrays, are encoded by `wire_format.encode`.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self, dataclass_transform, get_args

from ...core.parsing import refuse_unreadable
from . import wire_format
from .wire_format import MAX_REQUEST_BYTES, WIRE_NAMES, Frame, FrameError, pack, unpack

UP, DOWN, YES = "up", "down", "yes"  # votes on an edge; yes: bound by the other end's decision
STUCK = "stuck"  # in place of a vote: the agent needs the decision of another neighbour
MAX_VOTE_BYTES = 64  # votes are shorter, messages of rounds are not
QUERY_BYTES, MAX_QUERY_SECONDS = 16, 30.0  # of a query of all statuses
MAX_NUMBER = 2**31  # of exchanges and of consensus steps


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class SiteMessage:
    """Message of one kind; every subclass is a frozen dataclass.

    Fields that are None are left out of the header.
    """

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        cls.kind = kind
        dataclass(frozen=True)(cls)

    def encode(self) -> Frame:
        """Encode the message as a frame."""
        named = {WIRE_NAMES.get(name, name): value for name, value in vars(self).items()}
        present = {name: value for name, value in named.items() if value is not None}
        return pack({"kind": self.kind, **present})

    @classmethod
    def decode(cls, header: Mapping[str, Any]) -> Self:
        """Decode a header; raise `FrameError` unless each field has its type and is possible."""
        values = {}
        for entry in fields(cls):
            value = header.get(WIRE_NAMES.get(entry.name, entry.name), entry.default)
            types = get_args(entry.type) or (entry.type,)
            if value is MISSING or (Any not in types and type(value) not in types):
                raise FrameError(f"a message of the kind {cls.kind!r} without its {entry.name}")
            values[entry.name] = value
        message = cls(**values)
        message.check()
        return message

    @classmethod
    def read(cls, frame: Frame) -> Self:
        """Decode a frame from outside; raise `FrameError` if it is not of this class."""
        with refuse_unreadable(FrameError, f"no message of the kind {cls.kind!r}"):
            return cls.decode(unpack(frame, MAX_REQUEST_BYTES)[0])

    def check(self) -> None:
        """Raise `FrameError` if a field has the right type and an impossible value."""


class SessionOpening(SiteMessage, kind="open"):
    """First packet of a connection: the caller's roster, and the number of its process.

    With `answers`, the caller also answers requests on this connection.
    """

    roster: Any = None
    instance: Any = None
    answers: Any = None


class Ping(SiteMessage, kind="ping"):
    """Request for a sign of life."""

    sender: int


class Pong(SiteMessage, kind="ping"):
    """Answer to a `Ping`: the sender's clock, and the versions that it has installed."""

    time: float | None = None
    versions: Any = None


class StatusQuery(SiteMessage, kind="status"):
    """Request for the status of one site."""

    sender: int


class StopRequest(SiteMessage, kind="stop"):
    """Request of the site's own operator to stop after the round."""

    sender: int


class StatusAnswer(SiteMessage, kind="status"):
    """Status of a site as plain data; `node_status.validate_status` decodes it."""

    status: dict[str, Any]

    def encode(self) -> Frame:
        """Encode the message as a frame."""
        return pack({"kind": self.kind, **self.status})


class StopAnswer(StatusAnswer, kind="stop"):
    """Status of a site that is asked to stop."""


class Greeting(SiteMessage, kind="hello"):
    """Digests of what the sender runs, by part.

    A site that runs wants answers `within` so many seconds, and receipts of its messages from
    `first`, (exchange, consensus step), on. A test of the connection sends neither.
    """

    sender: int
    parts: Any
    within: float | None = None
    first: Any = None

    @property
    def run(self) -> Any:
        """Return the digest of the sender's run, if there is one."""
        return self.parts.get("run") if isinstance(self.parts, dict) else None

    def check(self) -> None:
        """See `SiteMessage`; parts that differ are described later."""
        if self.first is not None:
            check_place(self.first)


class GreetingAnswer(SiteMessage, kind="hello"):
    """Exchanges that the sender will not compute again, and that it keeps for the caller.

    `receipts` are those of the caller's messages; `more` if there are others.
    """

    durable: int = 0
    first_stored: int = 0
    receipts: Any = None
    more: Any = None


class RosterOffer(SiteMessage, kind="roster"):
    """Compressed roster that the authority has signed."""

    sender: int
    roster: bytes
    signature: bytes


class RosterAnswer(SiteMessage, kind="roster"):
    """Version of the sender's roster; with a refusal of an older one, the roster itself."""

    version: int
    refused: str | None = None
    roster: bytes | None = None
    signature: bytes | None = None


class OverviewQuery(SiteMessage, kind="overview"):
    """Request for the statuses of all sites at most `hops` edges further, within `seconds`."""

    sender: int
    query: bytes  # random number
    seconds: float
    hops: int

    def check(self) -> None:
        if len(self.query) != QUERY_BYTES or not 0 < self.seconds <= MAX_QUERY_SECONDS:
            raise FrameError("a query without its random number or its limits")


class OverviewAnswer(SiteMessage, kind="overview"):
    """Signed statuses of sites."""

    records: Any

    def check(self) -> None:
        records = self.records
        if not isinstance(records, list) or not all(isinstance(each, bytes) for each in records):
            raise FrameError("an answer without statuses")


class KeyRequest(SiteMessage):
    """Request for keys of masked sums, with the sender's public key in that run."""

    sender: int
    run: str
    key: bytes


class OwnKeyRequest(KeyRequest, kind="mask key"):
    """Request for the receiver's own signed key."""


class AllKeysRequest(KeyRequest, kind="mask keys"):
    """Request for the signed keys of the receiver's other neighbours."""


class OwnKeyAnswer(SiteMessage, kind="mask key"):
    """Signed public key of the sender."""

    record: bytes


class AllKeysAnswer(SiteMessage, kind="mask keys"):
    """Signed public keys of the sender's neighbours: pairs of a number and a record."""

    records: Any


class RoundRequest(SiteMessage):
    """Request about exchange `round`; the caller never needs one before `durable`.

    `consensus_step` counts from 1 the messages of a consensus before the message of the round.
    """

    run: str
    sender: int
    round: int
    durable: int
    consensus_step: int = 0

    @classmethod
    def decode(cls, header: Mapping[str, Any]) -> Self:
        """See `SiteMessage`; a request has no other fields."""
        names = (WIRE_NAMES.get(entry.name, entry.name) for entry in fields(cls))
        wire_format.check_fields(header, ["kind", *names])
        return super().decode(header)

    def check(self) -> None:
        if not 0 <= self.durable <= self.round < MAX_NUMBER or not (
            0 <= self.consensus_step < MAX_NUMBER
        ):
            raise FrameError(
                f"a request for round {self.round}, kept up to {self.durable}: no such one"
            )


class MessageRequest(RoundRequest, kind="ask"):
    """Request for the message of an exchange."""


class SubscriptionRequest(RoundRequest, kind="follow"):
    """Request for the message of an exchange and for all later ones."""


class VoteRequest(RoundRequest, kind="word"):
    """Request for the vote on the edge in an exchange."""


class DurableReport(RoundRequest, kind="kept"):
    """Report of what is durable at the sender; there is no answer."""


class PositionReport(RoundRequest, kind="position"):
    """Report how many exchanges the sender has finished; the answer is the same of the receiver."""


class RollbackNotice(SiteMessage, kind="gone"):
    """Notice that the sender rolled back and will never send this message."""

    run: str
    sender: int
    round: int
    consensus_step: int = 0


class Vote(SiteMessage, kind="word"):
    """Vote on an edge, empty if there is none yet; if it is down, for all rounds before `until`."""

    vote: str
    until: int = 0

    @classmethod
    def read(cls, frame: Frame) -> Self:
        """Decode an answer, which is empty if there is no vote yet."""
        if not frame:
            return cls("")
        with refuse_unreadable(FrameError, "a vote that cannot be read"):
            header, _ = unpack(frame, MAX_REQUEST_BYTES)
            if header.get("kind") != cls.kind or header.get("word") not in (UP, DOWN, YES, STUCK):
                raise FrameError("an answer that is neither a message nor a word")
            if "until" not in header:
                raise FrameError("a vote without its rounds")
            return cls.decode(header)


Request = (
    Ping | StatusQuery | StopRequest | Greeting | RosterOffer | OverviewQuery | KeyRequest
) | RoundRequest
REQUESTS: dict[str, type[Request]] = {
    request.kind: request
    for request in (
        *(Ping, StatusQuery, StopRequest, Greeting, RosterOffer, OverviewQuery),
        *(OwnKeyRequest, AllKeysRequest, MessageRequest, SubscriptionRequest, VoteRequest),
        *(DurableReport, PositionReport),
    )
}


@refuse_unreadable(FrameError, "a request that cannot be read")
def decode_request(header: Mapping[str, Any]) -> Request:
    """Decode the request in a header."""
    kind = header.get("kind")
    if kind not in REQUESTS:
        raise FrameError(f"a request for {wire_format.shorten(kind)}, which is unknown here")
    return REQUESTS[kind].decode(header)


def check_place(place: Any) -> None:
    """Raise `FrameError` unless `place` is an exchange and a consensus step."""
    exchange, step = place if isinstance(place, list | tuple) and len(place) == 2 else (None, None)
    if not (type(exchange) is type(step) is int and 0 <= exchange <= MAX_NUMBER >= step >= 0):
        raise FrameError("a greeting without the place from which receipts are wanted")
