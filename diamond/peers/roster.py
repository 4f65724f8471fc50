"""Who belongs to a federation, signed by its own authority, and one site's proof that it does.

A bundle is a folder for one site: the authority's certificate, the site's own key and certificate,
and the signed roster. A certificate carries the fingerprint of its key as its name, so that a site
that dials a neighbour accepts the very key of the roster and no other.
"""

import datetime
import hashlib
import json
import os
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CA, CERTIFICATE, KEY, ROSTER, SIGNATURE = (
    "ca.pem",
    "agent.pem",
    "agent.key",
    "roster.json",
    "roster.sig",
)
SIGNED = ec.ECDSA(hashes.SHA256())


class BadBundle(ValueError):
    """A bundle that is not whole or not of one federation."""


@dataclass(frozen=True)
class Member:
    """A site: its agent's number, name, address, key, and the agents it may talk to."""

    number: int
    name: str
    address: str  # host:port
    fingerprint: str  # sha256 of its public key, in hex
    neighbours: tuple[int, ...]


@dataclass(frozen=True)
class Roster:
    """All members, in the order of their numbers, and what they have agreed to run."""

    federation: str
    members: tuple[Member, ...]
    terms: dict[str, Any] = field(default_factory=dict)  # what the sites are to run
    version: int = 1  # one more whenever keys are renewed

    def by_key(self, fingerprint: str) -> Member | None:
        """The member with that key."""
        return next((m for m in self.members if m.fingerprint == fingerprint), None)

    def encode(self) -> bytes:
        """The bytes that are signed."""
        return json.dumps(asdict(self), indent=1).encode()


@dataclass(frozen=True)
class Bundle:
    """What one site has."""

    ca: bytes
    certificate: bytes
    key: bytes
    roster: Roster
    me: Member

    @property
    def expires(self) -> datetime.datetime:
        """When its certificate ceases to be taken."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    @property
    def neighbours(self) -> list[Member]:
        """The members this site talks to."""
        return [self.roster.members[j] for j in self.me.neighbours]


def fingerprint(key: CertificatePublicKeyTypes) -> str:
    """sha256 of a public key."""
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()


def host(fingerprint: str) -> str:
    """The name in the certificate of that key; a label of a name has 63 characters at most."""
    return f"{fingerprint[:32]}.{fingerprint[32:]}.diamond"


def decode(content: bytes) -> Roster:
    """The roster in those bytes."""
    told = json.loads(content)
    members = [Member(**m | {"neighbours": tuple(m["neighbours"])}) for m in told["members"]]
    if [m.number for m in members] != list(range(len(members))):
        raise ValueError("the members are not numbered from 0")
    return Roster(told["federation"], tuple(members), dict(told["terms"]), int(told["version"]))


def load(folder: Path) -> Bundle:
    """The bundle in `folder`, once its signature and its own certificate are known to be right."""
    roster = signed(folder)
    _private(folder / KEY)
    try:
        ca, certificate, key = ((folder / name).read_bytes() for name in (CA, CERTIFICATE, KEY))
        own = fingerprint(x509.load_pem_x509_certificate(certificate).public_key())
    except OSError as cause:
        raise BadBundle(f"{folder} is no whole bundle: {cause}") from None
    except ValueError as cause:
        raise BadBundle(f"{folder} is no bundle: {cause}") from None
    me = roster.by_key(own)
    if me is None:
        raise BadBundle(
            f"the key of {folder / CERTIFICATE} is not in the roster; ask for a new one"
        )
    return Bundle(ca, certificate, key, roster, me)


def fresh(bundle: Bundle, days: int = 30) -> str:
    """What is to be said of a certificate that expires within so many days; raises if it has."""
    left = bundle.expires - datetime.datetime.now(datetime.UTC)
    when, renewed = f"{bundle.expires:%Y-%m-%d %H:%M} UTC", "`diamond net renew` at the authority"
    if left.total_seconds() <= 0:
        raise BadBundle(
            f"the certificate of {bundle.me.name} expired on {when}, so that no neighbour talks to "
            f"it: get a new bundle ({renewed}), or set this machine's clock right"
        )
    if left > datetime.timedelta(days=days):
        return ""
    return f"the certificate of {bundle.me.name} expires on {when}: have it renewed ({renewed})"


def _private(key: Path) -> None:
    """Refuse a key that others on this machine can read, or could."""
    if os.name == "posix" and key.exists():
        mode = stat.S_IMODE(key.stat().st_mode)
        if mode & 0o077:
            raise BadBundle(
                f"{key} can be read by others on this machine (mode {mode:04o}): chmod 600 {key}"
            )


def signed(folder: Path) -> Roster:
    """The roster in `folder`, once its signature is known to be right."""
    try:
        ca, content, signature = ((folder / name).read_bytes() for name in (CA, ROSTER, SIGNATURE))
        authority = x509.load_pem_x509_certificate(ca).public_key()
        if not isinstance(authority, ec.EllipticCurvePublicKey):
            raise BadBundle(f"{folder / CA} is not of a federation of diamond")
        authority.verify(signature, content, SIGNED)
        return decode(content)
    except InvalidSignature:
        raise BadBundle(f"{folder / ROSTER} is not what the authority of {CA} signed") from None
    except OSError as cause:
        raise BadBundle(f"{folder} is no whole bundle: {cause}") from None
    except (ValueError, KeyError, TypeError) as cause:
        if isinstance(cause, BadBundle):
            raise
        raise BadBundle(f"{folder} is no bundle: {cause}") from None
