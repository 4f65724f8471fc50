"""Signed messages of a site: sign the own, verify those received, and compare statements.

Every message carries a statement about itself, and the statements about earlier messages that this
site has received and that others need to compare. A statement about a neighbour's message goes to
this site's neighbours with its next message, and further as far as `comparison_hops` says. If one
key signed two different digests for one exchange, both statements are a proof: it is written to the
run folder, passed on with every later message, and the site that signed is out from the next
exchange on: its messages are not used.

A revoked key makes no statement any more: a site signs its stored messages again by its new key
before it sends them, and statements of a revoked key that others pass on are ignored. Messages that
this site accepted before the revocation, and has on its disk, remain accepted.

Votes about absent neighbours and the negotiation of a rollback are not signed: a site that was
killed may answer them differently.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from ...core.parsing import refuse_unreadable
from ...network.comparison_paths import MAX_HOPS, comparison_hops, distances_without
from ..identity.site_names import SiteNames, site_name
from ..memory.epoch_entry import earlier_folders
from ..memory.outbox import Receipt, Receipts
from ..memory.sent_record import SentRecord
from ..transport import wire_format
from ..transport.audit import Audit
from ..transport.errors import Refused
from ..transport.reachability import all_neighbours
from ..transport.wire_format import Envelope, Frame, FrameError, Layout
from . import equivocation_proof
from .equivocation_proof import BadProof, EquivocationProof, check_proof, read_proof, write_proof
from .signed_records import (
    Identity,
    RevokedKey,
    Slot,
    Statement,
    StatementSigner,
    digest_of,
    read_statement,
)

if TYPE_CHECKING:
    from ..rounds.node import Node

MAX_PASSED_ON, MAX_PROOFS = 64, 8  # with one message
MAX_ATTACHED_BYTES = 48_000  # of statements and certificates with one message
MAX_QUEUED, MAX_HELD = 1000, 10_000  # statements
WINDOW = 100  # exchanges for which statements are compared


class ProvenLie(NamedTuple):
    """Proof about a site, and the first exchange without it."""

    proof: EquivocationProof
    first_exchange: int
    path: Path | None


class SignedMessages:
    """Signed messages of agent `agent` in one run, and the statements that it compares."""

    def __init__(
        self,
        agent: int,
        run: str,
        signer: StatementSigner,
        neighbours: Mapping[int, Sequence[int]],
        folder: Path | None,
        record: SentRecord,
        receipts: Receipts,
        audit: Audit,
        names: SiteNames,
        round_of: Callable[[int], int],
        is_signed: Callable[[int], bool] = lambda exchange: True,
        earlier_folders: Sequence[Path] = (),
    ):
        self.agent, self.run, self.signer = agent, run, signer
        self.neighbours, self.folder, self.audit, self.names = neighbours, folder, audit, names
        self.round_of, self.is_signed = round_of, is_signed
        self.record, self.receipts = record, receipts
        self.earlier_folders = earlier_folders  # of epochs with other members
        self.proven: dict[int, ProvenLie] = {}
        self._newest = 0  # exchange
        self._versions: dict[tuple[int, int], int] = {}  # of the keys that signed own messages
        self._identities: dict[tuple[int, int], tuple[Identity, bytes]] = {}  # by number, version
        self._held: dict[Slot, Statement] = {}
        self._queue: deque[tuple[Statement, int]] = deque(maxlen=MAX_QUEUED)  # with hops
        self._hops_onward = lru_cache(maxsize=1024)(self._find_hops_onward)
        self._load_proofs()

    def _find_hops_onward(self, j: int) -> int:
        """Return the most hops a statement about j may have travelled for this site to pass it on.

        -1 if this site never passes one on. Neighbours of j pass on only what j sent them.
        """
        limit = comparison_hops(self.neighbours, j)
        if limit is None:
            return -1
        distances = distances_without(self.neighbours, j, self.agent)
        others = {k for k in self.neighbours[j] if k != self.agent}
        nearest = min((distances.get(k, MAX_HOPS + 1) for k in others), default=MAX_HOPS + 1)
        onward = limit - nearest
        return min(onward, 0) if j in self.neighbours[self.agent] else onward

    def _load_proofs(self) -> None:
        """Load the proofs of this run, so that a restarted site computes the same bits."""
        folders = [self.folder, *self.earlier_folders] if self.folder else []
        for folder in folders:
            for path in sorted((folder / equivocation_proof.PROOF_FOLDER).glob("*.json")):
                proof, first_exchange = read_proof(path, self.signer.bundle().ca)
                if folder != self.folder:  # of an earlier set of members
                    self.proven[proof.first.signer] = ProvenLie(proof, 0, path)
                elif proof.first.run == self.run:
                    self.proven[proof.first.signer] = ProvenLie(proof, first_exchange, path)

    def is_out(self, j: int, exchange: int) -> bool:
        """Return whether messages of j are not used in that exchange."""
        lie = self.proven.get(j)
        return lie is not None and lie.first_exchange <= exchange

    def encode(self, envelope: Envelope, arrays: Sequence[Any]) -> Frame:
        """Encode a message with its signed statement and those that are passed on."""
        if not self.is_signed(envelope.round):
            return wire_format.encode(envelope, arrays)
        return wire_format.encode(envelope, arrays, lambda parts: self._attach(envelope, parts))

    def decode(
        self, frame: Frame, envelope: Envelope, expected: Layout, is_stored: bool = False
    ) -> list[Any]:
        """Decode a message whose statement its sender must have signed.

        `is_stored` if the message was accepted before and its key may be revoked since.
        """
        if not self.is_signed(envelope.round):
            return wire_format.decode(frame, envelope, expected)

        def read(attachment: bytes, content: memoryview) -> None:
            try:
                self._read(envelope, attachment, content)
            except RevokedKey as cause:
                if not is_stored:
                    raise FrameError(str(cause)) from None

        return wire_format.decode(frame, envelope, expected, read)

    def renew(self, frame: Frame, envelope: Envelope) -> Frame:
        """Return a message of this site, signed again if its key was renewed since."""
        self.signer.refresh()
        place = envelope.round, envelope.consensus_step
        if not self.is_signed(envelope.round) or self._versions.get(place) == self.signer.version:
            return frame
        header, content = wire_format.unpack(frame, len(frame))
        attached = msgpack.unpackb(header["attached"])
        if attached[0] != self.signer.version:
            attached[:3] = self._sign(envelope, content)
            frame = wire_format.pack(header | {"attached": msgpack.packb(attached)}, content)
        self._versions[place] = self.signer.version
        return frame

    def _attach(self, envelope: Envelope, parts: Sequence[Any]) -> bytes:
        signature = self._sign(envelope, *parts)
        self._versions[envelope.round, envelope.consensus_step] = self.signer.version
        while len(self._versions) > MAX_HELD:
            del self._versions[next(iter(self._versions))]
        self._newest = max(self._newest, envelope.round)
        statements, certificates = self._take_queued()
        proofs = [
            [lie.proof.identity.encoded(), *map(_fields, lie.proof[2:])]
            for lie in [lie for lie in self.proven.values() if lie.proof.first.run == self.run]
        ][-MAX_PROOFS:]
        return msgpack.packb([*signature, statements, certificates, proofs])

    def _sign(self, envelope: Envelope, *parts: Any) -> tuple[int, bytes, bytes]:
        """Sign the arrays of a message; return the key's version, the signature and certificate."""
        own = self.signer.sign(self.run, envelope.round, envelope.consensus_step, digest_of(*parts))
        key = f"key of roster {own.version}"
        self.record.record(
            envelope.round, envelope.consensus_step, own.digest, self.round_of(envelope.round), key
        )
        return own.version, own.signature, self.signer.certificate

    def _take_queued(self) -> tuple[list[Any], list[bytes]]:
        """Return the statements to pass on, and certificates that a neighbour may not have."""
        statements: list[Any] = []
        certificates: dict[tuple[int, int], bytes] = {}
        size = 0
        while self._queue and len(statements) < MAX_PASSED_ON and size < MAX_ATTACHED_BYTES:
            statement, hops = self._queue.popleft()
            if statement.signer in self.proven:
                continue
            fields, key = [*_fields(statement), hops + 1], statement.slot[:2]
            knows = {statement.signer, *self.neighbours[statement.signer]}
            if key not in certificates and not knows.issuperset(self.neighbours[self.agent]):
                certificates[key] = self._identities[key][1]
                size += len(certificates[key])
            statements.append(fields)
            size += 150
        return statements, list(certificates.values())

    def _read(self, envelope: Envelope, attachment: bytes, content: memoryview) -> None:
        """Verify the statement about a message of a neighbour, and compare those it passes on."""
        j, exchange = envelope.sender, envelope.round
        with refuse_unreadable(
            FrameError, "its signature cannot be read", Refused, passing=(RevokedKey,)
        ):
            version, signature, certificate, passed_on, certificates, proofs = msgpack.unpackb(
                attachment, max_ext_len=0
            )
            certificates = [_check_bytes(content) for content in certificates[:MAX_PASSED_ON]]
            identity = self._identify(_check_bytes(certificate), j)
            fields = [version, j, exchange, envelope.consensus_step, digest_of(content), signature]
            statement = read_statement(self.run, fields)
            entries = [(read_statement(self.run, e[:6]), _check_hops(e[6]))
                       for e in passed_on[:MAX_PASSED_ON]]  # fmt: skip
            pairs = [(_check_bytes(c), read_statement(self.run, a), read_statement(self.run, b))
                     for c, a, b in proofs[:MAX_PROOFS]]  # fmt: skip
        held = self._held.get(statement.slot)
        if held is None or held.digest != statement.digest:
            if not identity.has_signed(statement):
                raise FrameError("its signature is not of this message")
        self._newest = max(self._newest, exchange)
        self.receipts.record(j, Receipt(*statement[3:6], version, signature))
        self._compare(statement, 0)
        try:
            for encoded in certificates:
                with suppress(RevokedKey):
                    self._identify(encoded)
            for passed_on_statement, hops in entries:
                with suppress(RevokedKey):
                    self._receive_passed_on(passed_on_statement, hops)
            for encoded, first, second in pairs:
                with suppress(RevokedKey):
                    self._receive_proof(encoded, first, second)
        except (Refused, BadProof) as cause:
            name = site_name(self.names, j)
            self.audit.record_event(name, f"passed on a false statement: {cause}")

    def has_signed(self, j: int, receipt: Receipt) -> bool:
        """Return whether this site signed by its key what neighbour j reports to hold."""
        statement = Statement(
            self.run, receipt.version, self.agent, *receipt.place, receipt.digest, receipt.signature
        )
        if receipt.version != self.signer.version:
            return False  # an earlier key may have signed another message
        if is_own := self._identify(self.signer.certificate).has_signed(statement):
            return is_own
        reason = "reports a message of this site that the site did not sign"
        self.audit.record_event(site_name(self.names, j), reason)
        return False

    def _identify(self, certificate: bytes, expected: int | None = None) -> Identity:
        number, identity = self.signer.identify(certificate)
        if expected not in (None, number):
            raise Refused("its statement has the certificate of another site")
        self._identities.setdefault((number, identity.version), (identity, certificate))
        return identity

    def _receive_passed_on(self, statement: Statement, hops: int) -> None:
        """Compare a statement that a neighbour passed on; raises `Refused` if it is false."""
        if abs(statement.exchange - self._newest) > WINDOW or statement.signer in self.proven:
            return
        if statement.signer not in self.neighbours:
            raise Refused("it is about no member of this run")
        held, known = self._held.get(statement.slot), self._identities.get(statement.slot[:2])
        if statement.signer == self.agent or known is None:  # the neighbours know its own key
            return
        if held is None or held.digest != statement.digest:
            if not self._identify(known[1]).has_signed(statement):
                raise Refused(f"{site_name(self.names, statement.signer)} did not sign it")
            self._compare(statement, hops)

    def _compare(self, statement: Statement, hops: int) -> None:
        """Hold a verified statement, pass it on where needed, or prove that its site lied."""
        held = self._held.get(statement.slot)
        if held is None:
            while len(self._held) >= MAX_HELD or self._is_outdated(next(iter(self._held), None)):
                del self._held[next(iter(self._held))]
            self._held[statement.slot] = statement
            if hops <= self._hops_onward(statement.signer):
                self._queue.append((statement, hops))
        elif held.digest != statement.digest and statement.signer not in self.proven:
            identity, _ = self._identities[statement.slot[:2]]
            self._prove(check_proof(identity, held, statement))

    def _is_outdated(self, slot: Slot | None) -> bool:
        return slot is not None and slot[2] < self._newest - WINDOW

    def _receive_proof(self, certificate: bytes, first: Statement, second: Statement) -> None:
        if first.signer in self.proven or first.signer == self.agent:
            return
        identity = self._identify(certificate, first.signer)
        self._prove(check_proof(identity, first, second))

    def _prove(self, proof: EquivocationProof) -> None:
        """Keep a proof, on the disk before any message depends on it."""
        first_exchange = self._newest + 1
        path = write_proof(self.folder, proof, first_exchange) if self.folder else None
        self.proven[proof.first.signer] = ProvenLie(proof, first_exchange, path)
        place = f"; the proof is {path}" if path else ""
        self.audit.record_event(
            site_name(self.names, proof.first.signer),
            f"told different neighbours different things in round "
            f"{self.round_of(proof.first.exchange)}, by two messages that it signed: its messages "
            f"are no longer used{place}",
        )


def sign_messages(signer: StatementSigner, node: "Node") -> SignedMessages:
    """Return the signed messages of a node."""
    agent, clock, audit = node.agent, node.clock, node.service.audit
    members, neighbours = agent.members, all_neighbours(agent.links)
    is_signed = lambda exchange: not clock.negotiates(exchange)
    return SignedMessages(
        agent.number,
        node.run_digest,
        signer,
        {members[i]: tuple(members[j] for j in others) for i, others in enumerate(neighbours)},
        node.folder,
        node.sent,
        node.service.outbox.receipts,
        audit,
        node.names,
        clock.round_of,
        is_signed,
        earlier_folders(node.folder, agent.first_round),
    )


def _fields(statement: Statement) -> list[Any]:
    """Return the fields of a statement that travel; the receiver knows the run."""
    return list(statement[1:])


def _check_bytes(certificate: Any) -> bytes:
    if not isinstance(certificate, bytes):
        raise FrameError("no certificate")
    return certificate


def _check_hops(hops: Any) -> int:
    if type(hops) is not int or not 1 <= hops <= MAX_HOPS:
        raise FrameError("a statement that came too far")
    return hops
