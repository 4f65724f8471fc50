"""Roster of a federation, signed by its authority, and the credentials of one site.

A bundle is a folder for one site: the authority's certificate, the site's own key and certificate,
and the signed roster. A certificate carries the fingerprint of its key as its name, so that a site
accepts only the key in the roster from a neighbour that it dials.
"""

import datetime
import json
import os
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ...core.parsing import refuse_unreadable
from ...records import checkpoint_file
from . import site_authorities, stewards
from .private_keys import (
    KEY,
    BadBundle,
    fingerprint,
    load_signing_key,
    read_site_key,
    take_requested_key,
)
from .roster_checks import check_roster
from .site_authorities import CRLS

CA, CERTIFICATE = "ca.pem", "agent.pem"
ROSTER, SIGNATURE = "roster.json", "roster.sig"
RENEWED_FILES = ROSTER, SIGNATURE, CERTIFICATE, KEY, CRLS  # of a bundle, in mid-run
ACCEPTED = "roster.accepted"  # newest roster that the site has accepted, with its signature
SIGNATURE_ALGORITHM = stewards.ALGORITHM


@dataclass(frozen=True)
class Member:
    """Site: its agent's number, name, address and key, and the agents it may contact."""

    number: int
    name: str
    address: str  # host:port; empty: it accepts no connections, and dials its neighbours
    fingerprint: str  # sha256 of its public key, in hex
    neighbours: tuple[int, ...]
    relay: bool = False  # it also relays connections between sites without addresses
    retired: str = ""  # fingerprint of its previous key
    retired_until: float = 0.0  # time until which that key is accepted
    authority: str = ""  # the site's own, in place of a fingerprint: its name in the roster
    subject: str = ""  # name in the site's certificate, such as dns:north.example.org


@dataclass(frozen=True)
class RosterEpoch:
    """Members and network from a round on, as a version of the roster has set them."""

    from_round: int
    version: int
    members: tuple[int, ...]
    network: dict[str, Any]  # table of the network, as in the federation's file
    rewinds: bool = False  # sites return to their checkpoint of that round, without a lost site


@dataclass(frozen=True)
class Roster:
    """All members in the order of their numbers, and the agreed terms.

    With `epochs`, the first of which is that of round 0, members join and leave; those that left
    stay listed. A site that rejoins under its name is another member, with another number and key:
    nothing that it sends contradicts what it sent before. The neighbours of a member are those of
    all epochs.
    """

    federation: str
    members: tuple[Member, ...]
    terms: dict[str, Any] = field(default_factory=dict)  # settings of the run
    version: int = 1  # increases whenever keys are renewed
    relays: dict[str, str] = field(default_factory=dict)  # address of each relay without keys
    epochs: tuple[RosterEpoch, ...] = ()  # empty: all members take part in all rounds
    authorities: dict[str, tuple[str, ...]] = field(default_factory=dict)  # certificates in PEM
    stewards: int = 0  # how many of them must sign; 0: the authority signs

    def by_subject(self, certificate: x509.Certificate) -> Member | None:
        """Return the member whose own authority has issued that certificate for it."""
        if not self.authorities:
            return None
        names = site_authorities.subject_names(certificate)
        candidates = (m for m in reversed(self.members) if m.subject and m.subject in names)
        is_issued_by = site_authorities.is_issued_by
        return next(
            (m for m in candidates if is_issued_by(certificate, self.authorities[m.authority])),
            None,
        )

    def by_key(self, fingerprint: str) -> Member | None:
        """Return the member with that key."""
        return next((m for m in self.members if m.fingerprint == fingerprint), None)

    def by_retired_key(self, fingerprint: str) -> Member | None:
        """Return the member whose previous key this is, if it is still accepted."""
        now = time.time()
        candidates = (m for m in self.members if m.retired == fingerprint)
        return next((m for m in candidates if now < m.retired_until), None)

    def by_name(self, name: str) -> Member | None:
        """Return the member with that name, the last one if the site has rejoined."""
        return next((m for m in reversed(self.members) if m.name == name), None)

    def is_superseded(self, member: Member) -> bool:
        """Return whether the site of this member has rejoined as another member."""
        return self.by_name(member.name) != member

    @property
    def all_relays(self) -> dict[str, str]:
        """Return the addresses of all relays by name, sites first."""
        return {m.name: m.address for m in self.members if m.relay} | self.relays

    def encode(self) -> bytes:
        """Return the bytes that are signed."""
        document = asdict(self)
        for name in (
            "epochs",
            "authorities",
            "stewards",
        ):  # earlier versions know rosters without these
            if not document[name]:
                del document[name]
        for member in document["members"]:
            if not member["subject"]:
                del member["authority"], member["subject"]
        return json.dumps(document, indent=1).encode()

    @property
    def all_epochs(self) -> tuple[RosterEpoch, ...]:
        """Return the epochs; before the first change, the only one, of all members."""
        numbers, network = tuple(range(len(self.members))), self.terms.get("network", {})
        return self.epochs or (RosterEpoch(0, 1, numbers, dict(network)),)

    @property
    def founders(self) -> tuple[Member, ...]:
        """Return the members of round 0."""
        return self.members[: len(self.all_epochs[0].members)]


@dataclass(frozen=True)
class Bundle:
    """Credentials of one site."""

    ca: bytes
    certificate: bytes
    key: bytes
    roster: Roster
    me: Member
    crls: bytes = b""  # revocation lists of authorities of sites

    @property
    def anchors(self) -> bytes:
        """Return the certificates of all authorities that issue certificates of sites."""
        lists = self.roster.authorities.values()
        return self.ca + b"".join(pem.encode() for pems in lists for pem in pems)

    @property
    def x509_certificate(self) -> x509.Certificate:
        """Return the certificate, decoded."""
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def encoded_certificate(self) -> bytes:
        """Return the certificate as other sites receive it."""
        return self.x509_certificate.public_bytes(serialization.Encoding.DER)

    @property
    def expires(self) -> datetime.datetime:
        """Return the expiry of the certificate."""
        return self.x509_certificate.not_valid_after_utc

    def sign(self, content: bytes) -> bytes:
        """Sign content by the key of this site."""
        return load_signing_key(self.key).sign(content, SIGNATURE_ALGORITHM)

    @property
    def neighbours(self) -> list[Member]:
        """Return the members that this site contacts, each site that has rejoined once."""
        members = [self.roster.members[j] for j in self.me.neighbours]
        return [member for member in members if not self.roster.is_superseded(member)]


def certificate_name(fingerprint: str) -> str:
    """Return the name in the certificate of that key; DNS labels have at most 63 characters."""
    return f"{fingerprint[:32]}.{fingerprint[32:]}.diamond"


@refuse_unreadable(BadBundle, "the roster cannot be read")
def decode_roster(content: bytes) -> Roster:
    """Decode a roster; raises `BadBundle` if it contradicts itself."""
    document = json.loads(content)
    members = [Member(**m | {"neighbours": tuple(m["neighbours"])}) for m in document["members"]]
    listed = document.get("epochs", [])
    epochs = tuple(RosterEpoch(**epoch | {"members": tuple(epoch["members"])}) for epoch in listed)
    terms, relays = dict(document["terms"]), dict(document.get("relays", {}))
    version, federation = int(document["version"]), document["federation"]
    authorities = {str(n): tuple(pems) for n, pems in document.get("authorities", {}).items()}
    threshold = int(document.get("stewards", 0))
    roster = Roster(
        federation, tuple(members), terms, version, relays, epochs, authorities, threshold
    )
    check_roster(roster)
    return roster


def load_bundle(folder: Path) -> Bundle:
    """Load the bundle in `folder`, and verify its signature and its own certificate."""
    roster = load_roster(folder)
    _check_private_mode(folder / KEY)
    with refuse_unreadable(BadBundle, f"{folder} is no whole bundle"):
        ca, certificate = ((folder / name).read_bytes() for name in (CA, CERTIFICATE))
        take_requested_key(folder, certificate)
        own = x509.load_pem_x509_certificate(certificate)
        crls = (folder / CRLS).read_bytes() if (folder / CRLS).exists() else b""
        me = roster.by_key(fingerprint(own.public_key())) or roster.by_subject(own)
    if me is None:
        raise BadBundle(
            f"the key of {folder / CERTIFICATE} is not in the roster, nor is a name in it of an "
            f"authority of the roster; ask for a new one"
        )
    if me.subject:
        site_authorities.check_own_certificate(own, folder / CERTIFICATE)
    with refuse_unreadable(BadBundle, f"{folder} is no whole bundle"):
        key = read_site_key(folder)
    if load_signing_key(key).public_key() != own.public_key():
        raise BadBundle(
            f"the key of {folder} and {CERTIFICATE} do not belong together: copy both of one bundle"
        )
    pems = [pem for authority in roster.authorities.values() for pem in authority]
    site_authorities.check_crls(crls, pems)
    if site_authorities.is_revoked(own, crls):
        raise BadBundle(f"{folder / CERTIFICATE} was revoked; ask its authority for a new one")
    return Bundle(ca, certificate, key, roster, me, crls)


def check_expiry(bundle: Bundle) -> str:
    """Return a warning if the certificate expires within 30 days; raise unless it is valid."""
    now = datetime.datetime.now(datetime.UTC)
    left, begin = bundle.expires - now, bundle.x509_certificate.not_valid_before_utc
    if now < begin:
        raise BadBundle(
            f"the certificate of {bundle.me.name} is valid from {begin:%Y-%m-%d %H:%M} UTC on, and "
            f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC: set it right"
        )
    warned = datetime.timedelta(days=30)
    when, renewed = f"{bundle.expires:%Y-%m-%d %H:%M} UTC", "`diamond net renew` at the authority"
    if bundle.me.subject:
        renewed = f"from {bundle.me.authority}, into {CERTIFICATE}"
        warned = min(warned, (bundle.expires - begin) / 3)
    if left.total_seconds() <= 0:
        raise BadBundle(
            f"the certificate of {bundle.me.name} expired on {when}, so that no neighbour talks to "
            f"it: get a new bundle ({renewed}), or set this machine's clock right"
        )
    if left > warned:
        return site_authorities.stale_crls(bundle.crls)
    return f"the certificate of {bundle.me.name} expires on {when}: have it renewed ({renewed})"


def _check_private_mode(key: Path) -> None:
    """Refuse a key that other users of this machine can read."""
    if os.name == "posix" and key.exists():
        mode = stat.S_IMODE(key.stat().st_mode)
        if mode & 0o077:
            raise BadBundle(
                f"{key} can be read by others on this machine (mode {mode:04o}): chmod 600 {key}"
            )


class SignedRoster(NamedTuple):
    """Bytes of a roster, and the signature of the authority, or those of stewards."""

    content: bytes
    signature: bytes

    def verify(self, ca: bytes) -> Roster:
        """Return the roster; raise `InvalidSignature`, or `BadBundle` if it cannot be read."""
        certificate = x509.load_pem_x509_certificate(ca)
        authority, listed = certificate.public_key(), stewards.read_stewards(certificate)
        if not isinstance(authority, ec.EllipticCurvePublicKey):
            raise BadBundle(f"{CA} is not of a federation of diamond")
        if listed is None:
            authority.verify(self.signature, self.content, SIGNATURE_ALGORITHM)
        else:
            stewards.verify_stewards(listed, self.content, self.signature)
        roster = decode_roster(self.content)
        if roster.stewards != (0 if listed is None else listed.threshold):
            raise BadBundle(f"the roster and {CA} name different numbers of stewards")
        return roster


def load_roster(folder: Path) -> Roster:
    """Load the roster in `folder`, and verify its signature; a newer accepted one replaces it."""
    return load_signed_roster(folder)[1]


def load_signed_roster(folder: Path) -> tuple[SignedRoster, Roster]:
    """Load the newest roster in `folder`, signed and decoded: its files, or one accepted since."""
    with refuse_unreadable(BadBundle, f"{folder} is no whole bundle"):
        ca = (folder / CA).read_bytes()
        signed = SignedRoster(*((folder / name).read_bytes() for name in (ROSTER, SIGNATURE)))
        try:
            roster = signed.verify(ca)
        except InvalidSignature:
            raise BadBundle(f"{folder / ROSTER} is not what the authority of {CA} signed") from None
        if (folder / ACCEPTED).exists():
            document = json.loads((folder / ACCEPTED).read_bytes())
            accepted = SignedRoster(document["content"].encode(), bytes.fromhex(document["sig"]))
            with suppress(InvalidSignature):  # of an earlier federation
                newer = accepted.verify(ca)
                if newer.version > roster.version:
                    return accepted, newer
        return signed, roster


def save_accepted(folder: Path, signed: SignedRoster) -> None:
    """Write a roster as the newest that this site or relay has accepted."""
    document = {"content": signed.content.decode(), "sig": signed.signature.hex()}
    try:
        checkpoint_file.replace_file(folder / ACCEPTED, json.dumps(document).encode())
    except OSError as cause:
        raise BadBundle(
            f"{folder} cannot hold the accepted roster ({cause}): make the bundle writable"
        ) from None
