"""Proof that a site told different neighbours different things: two statements that it signed.

The file has the certificate of the site and both statements. Everything that it says follows from
the certificate, which the federation's authority signed, and from the two signatures; nothing else
in the file is believed. Who passed a statement on cannot alter it, and nobody else can sign one.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ...core.parsing import refuse_unreadable
from ...records.checkpoint_file import replace_file
from ..identity.certificate_holder import verify_issuer
from ..transport.errors import Refused
from ..transport.wire_format import FrameError
from .signed_records import Identity, Statement, read_identity, read_statement

FORMAT = "diamond proof of two messages, 1"
PROOF_FOLDER = "proofs"
MAX_PROOF_BYTES = 100_000


class BadProof(ValueError):
    """Error: a file proves nothing; the message says why."""


class EquivocationProof(NamedTuple):
    """Two statements of one site about the same exchange, with different digests."""

    site: str
    identity: Identity
    first: Statement
    second: Statement

    def describe(self) -> str:
        """Describe what is proven."""
        about = "a measurement before" if self.first.consensus_step else "the message of"
        digests = " and ".join(s.digest.hex()[:16] for s in (self.first, self.second))
        return (
            f"{self.site} signed two different messages as {about} exchange {self.first.exchange} "
            f"of run {self.first.run[:16]} (SHA-256 {digests}...), with its key of roster "
            f"{self.first.version}"
        )


def check_proof(identity: Identity, first: Statement, second: Statement) -> EquivocationProof:
    """Return the proof that two statements make; raises `BadProof`."""
    for name in ("run", "version", "signer", "exchange", "consensus_step"):
        if getattr(first, name) != getattr(second, name):
            kind = {"run": "run", "exchange": "exchange"}.get(name, name.replace("_", " "))
            raise BadProof(f"the statements differ in their {kind}, so that both may be true")
    if first.digest == second.digest:
        raise BadProof("both statements are about the same message")
    for number, statement in enumerate((first, second), 1):
        if not identity.has_signed(statement):
            raise BadProof(f"{identity.site} did not sign statement {number}")
    return EquivocationProof(identity.site, identity, first, second)


def write_proof(folder: Path, proof: EquivocationProof, first_exchange: int) -> Path:
    """Write a proof into a run folder; the site is out from `first_exchange` on."""
    folder = folder / PROOF_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"[^\w.-]", "_", proof.site) + ".json")
    certificate = proof.identity.certificate.public_bytes(Encoding.PEM).decode()
    statements = [
        statement._asdict()
        | {"digest": statement.digest.hex(), "signature": statement.signature.hex()}
        for statement in (proof.first, proof.second)
    ]
    document = {
        "format": FORMAT,
        "site": proof.site,
        "certificate": certificate,
        "statements": statements,
        "out_from_exchange": first_exchange,
    }
    replace_file(path, json.dumps(document, indent=1).encode())
    return path


def read_proof(path: Path, ca: bytes) -> tuple[EquivocationProof, int]:
    """Read and verify a proof with the authority's certificate.

    Returns the proof and the exchange from which the writer left the site out. The certificate may
    have expired since.
    """
    try:
        return _read_proof(path, ca)
    except BadProof as cause:
        raise BadProof(f"{path}: {cause}") from None


def _read_proof(path: Path, ca: bytes) -> tuple[EquivocationProof, int]:
    with refuse_unreadable(BadProof, "cannot be read", Refused, FrameError):
        if path.stat().st_size > MAX_PROOF_BYTES:
            raise BadProof("too long for a proof")
        document = json.loads(path.read_bytes())
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise BadProof("no proof file of diamond")
        first, second = map(_read_entry, document["statements"])
        first_exchange = int(document.get("out_from_exchange", 0))
        certificate = x509.load_pem_x509_certificate(document["certificate"].encode())
        verify_issuer(certificate, ca)
        identity = read_identity(certificate)
    return check_proof(identity, first, second), first_exchange


def _read_entry(entry: dict[str, Any]) -> Statement:
    names = "version", "signer", "exchange", "consensus_step"
    digest, signature = (bytes.fromhex(entry[name]) for name in ("digest", "signature"))
    run = entry["run"]
    if not isinstance(run, str):
        raise FrameError("a statement without its run")
    return read_statement(run, [*(entry[name] for name in names), digest, signature])
