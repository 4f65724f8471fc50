"""Signed statements: the digest of a message, signed by its sender.

A statement says that a site sent the message with a SHA-256 digest in an exchange of a run. The
site signs it with its identity key; the version of the roster that introduced the key is part of
it. A site sends one message to all its neighbours, so that two statements of one key about the same
exchange with different digests prove that it told them different things. A signed record
contains the certificate of its signer.
"""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from ...core.parsing import refuse_unreadable
from ..identity.certificate_holder import find_holder, read_claim, verify_certificate
from ..identity.roster import SIGNATURE_ALGORITHM, Bundle, Member, Roster
from ..transport.errors import Refused
from ..transport.wire_format import FrameError

CONTEXT = b"diamond: message of a site\0"
DIGEST_BYTES, MAX_SIGNATURE_BYTES = 32, 80
Slot = tuple[int, int, int, int]  # signer, version, exchange, consensus step


class RevokedKey(Refused):
    """Error: a certificate is of the authority, but no site of the roster has its key any more."""


class Statement(NamedTuple):
    """Digest of the message of `signer` in an exchange, with its signature."""

    run: str  # digest of the run
    version: int  # of the roster that introduced the key
    signer: int
    exchange: int
    consensus_step: int
    digest: bytes  # SHA-256 of the arrays
    signature: bytes = b""

    @property
    def slot(self) -> Slot:
        """Return what the statement is about, within a run."""
        return self.signer, self.version, self.exchange, self.consensus_step

    def signed_bytes(self) -> bytes:
        """Return the bytes that are signed."""
        return CONTEXT + msgpack.packb(list(self[:-1]))


class Identity(NamedTuple):
    """Site that a certificate names, and its key."""

    site: str
    version: int
    key: ec.EllipticCurvePublicKey
    certificate: x509.Certificate

    def encoded(self) -> bytes:
        """Return the bytes of the certificate."""
        return self.certificate.public_bytes(Encoding.DER)

    def has_signed(self, statement: Statement) -> bool:
        """Return whether this key signed the statement."""
        if statement.version != self.version:
            return False
        try:
            self.key.verify(statement.signature, statement.signed_bytes(), SIGNATURE_ALGORITHM)
        except InvalidSignature:
            return False
        return True


def digest_of(*parts: Any) -> bytes:
    """Return the SHA-256 digest of the arrays of a message, as they are in its frame."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


@refuse_unreadable(FrameError, "a statement that cannot be read")
def read_statement(run: str, fields: Any) -> Statement:
    """Read a statement of this run that came with a message; raises `FrameError`."""
    numbers, digest, signature = (fields[:4], *fields[4:6]) if len(fields) == 6 else ((), b"", b"")
    if len(numbers) != 4 or any(type(n) is not int or not 0 <= n < 2**31 for n in numbers):
        raise FrameError("a statement without its exchange")
    if not isinstance(digest, bytes) or len(digest) != DIGEST_BYTES:
        raise FrameError("a statement without a digest")
    if not isinstance(signature, bytes) or not 0 < len(signature) <= MAX_SIGNATURE_BYTES:
        raise FrameError("a statement without a signature")
    version, signer, exchange, consensus_step = numbers
    return Statement(run, version, signer, exchange, consensus_step, digest, signature)


def read_identity(certificate: x509.Certificate) -> Identity:
    """Return the site that a certificate of the authority names; raises `Refused`."""
    key, claim = certificate.public_key(), read_claim(certificate)
    if claim is None or not isinstance(key, ec.EllipticCurvePublicKey):
        raise Refused("its certificate names no site: renew the keys (`diamond net renew`)")
    return Identity(claim.site, claim.version, key, certificate)


class StatementSigner:
    """Signer of a site; `bundle` returns its newest credentials."""

    def __init__(self, bundle: Callable[[], Bundle]):
        self.bundle = bundle
        self._holders: tuple[Roster | None, dict[bytes, tuple[int, Identity]]] = None, {}
        self._source: Bundle | None = None
        self.refresh()

    def refresh(self) -> Bundle:
        """Use the newest key of this site, and return its credentials."""
        bundle = self.bundle()
        if bundle is not self._source:
            self.certificate = bundle.encoded_certificate
            self.version = read_identity(bundle.x509_certificate).version
            self._source = bundle
        return bundle

    def sign(self, run: str, exchange: int, consensus_step: int, digest: bytes) -> Statement:
        """Sign the statement that this site's message has that digest."""
        bundle = self.refresh()
        statement = Statement(run, self.version, bundle.me.number, exchange, consensus_step, digest)
        return statement._replace(signature=bundle.sign(statement.signed_bytes()))

    @refuse_unreadable(Refused, "its certificate names no site")
    def identify(self, certificate: bytes) -> tuple[int, Identity]:
        """Return the number and identity of the site of a certificate; raises `Refused`."""
        bundle = self.bundle()
        if self._holders[0] is not bundle.roster:
            self._holders = bundle.roster, {}
        found = self._holders[1].get(certificate)
        if found is None:
            fixed = bundle.ca, bundle.roster, bundle.crls
            identity = read_identity(verify_certificate(certificate, *fixed))
            holder = find_holder(identity.certificate, bundle.roster)
            if holder is None or holder.name != identity.site:
                raise RevokedKey("its certificate is not of a site of this roster")
            found = self._holders[1][certificate] = holder.number, identity
        return found


def sign_record(bundle: Bundle, context: bytes, content: bytes) -> bytes:
    """Sign content by the key of this site, for a purpose that both ends know."""
    return msgpack.packb([content, bundle.encoded_certificate, bundle.sign(context + content)])


def verify_record(
    bundle: Bundle, context: bytes, record: bytes, kind: str
) -> tuple[bytes, Member | None]:
    """Return the content of a record and the member that signed it, if the roster has it.

    Raises `Refused` if nobody signed it for this purpose, `FrameError` if it is no record; `kind`
    is what the record is, in words.
    """
    with refuse_unreadable(FrameError, f"an answer that is no {kind}"):
        content, certificate_bytes, signature = msgpack.unpackb(record, max_ext_len=0)
        if not all(isinstance(part, bytes) for part in (content, certificate_bytes, signature)):
            raise FrameError(f"an answer that is no {kind}")
    certificate = verify_certificate(certificate_bytes, bundle.ca, bundle.roster, bundle.crls)
    with refuse_unreadable(Refused, f"a {kind} that its site did not sign for this purpose"):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        key.verify(signature, context + content, SIGNATURE_ALGORITHM)
    return content, find_holder(certificate, bundle.roster)
