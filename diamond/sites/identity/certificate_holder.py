"""Membership: which site of the roster the holder of a certificate is.

Both ends of every connection, relays and readers of signed statuses apply the same rule. The
authority must have signed the certificate. Its key is the one that the roster lists for a site, or
the site's previous key for as long as the roster says. Or the site's own
authority has issued it with the name that the roster lists (`site_authorities`). Or the certificate
itself names the site and a roster version above the reader's: so renewed keys are accepted before
the new roster arrives.
"""

import datetime
from typing import NamedTuple
from urllib.parse import quote, unquote

from cryptography import x509

from ...core.parsing import refuse_unreadable
from ..transport.error_texts import EXPIRED
from ..transport.errors import REVOKED, OutdatedRoster, Refused
from .private_keys import fingerprint
from .roster import Bundle, Member, Roster
from .site_authorities import is_revoked

PREFIX = "urn:diamond:"
NOT_OF_AUTHORITY = "its certificate is not of this federation's authority"


class IdentityClaim(NamedTuple):
    """Name of a site in a certificate, and the version of the roster issued with it.

    `number` tells a site that has rejoined from the member that it was before.
    """

    federation: str
    site: str
    version: int
    number: int | None = None


def encode_claim(claim: IdentityClaim) -> str:
    """Encode a claim as a name of a certificate."""
    return PREFIX + ":".join(quote(str(part), safe="") for part in claim if part is not None)


def read_claim(certificate: x509.Certificate) -> IdentityClaim | None:
    """Return the claim of a certificate; None if it has none."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    for name in names.get_values_for_type(x509.UniformResourceIdentifier):
        parts = name.removeprefix(PREFIX).split(":")
        numbers = [int(part) for part in parts[2:] if part.isdecimal()]
        if name.startswith(PREFIX) and 1 <= len(numbers) == len(parts) - 2 <= 2:
            return IdentityClaim(unquote(parts[0]), unquote(parts[1]), *numbers)
    return None


@refuse_unreadable(Refused, "its certificate cannot be read")
def find_holder(certificate: x509.Certificate, roster: Roster) -> Member | None:
    """Return the member that holds a certificate of the authority; None if there is none."""
    if member := roster.by_subject(certificate):
        return member
    key = fingerprint(certificate.public_key())
    member = roster.by_key(key) or roster.by_retired_key(key)
    # A name that a certificate claims proves nothing if others also issue certificates, or if the
    # authority alone may not change the roster.
    has_claims = not (roster.authorities or roster.stewards)
    claim = read_claim(certificate) if has_claims and member is None else None
    if claim and claim.federation == roster.federation and claim.version > roster.version:
        member = roster.by_name(claim.site)
        return member if member and claim.number in (None, member.number) else None
    return member


def find_neighbour(certificate: x509.Certificate, bundle: Bundle, their_version: int) -> Member:
    """Return the neighbour, or the site itself, that holds the certificate of a connection."""
    roster, me = bundle.roster, bundle.me
    if is_revoked(certificate, bundle.crls):
        raise Refused(REVOKED)
    member = find_holder(certificate, roster)
    if member is None:
        key = fingerprint(certificate.public_key())
        raise unknown_key(key, me.name, roster.version, their_version)
    if member.number not in (*me.neighbours, me.number):
        raise no_neighbour(member.name, me.name, roster.version, their_version)
    return member


@refuse_unreadable(Refused, NOT_OF_AUTHORITY)
def verify_certificate(
    content: bytes, ca: bytes, roster: Roster, crls: bytes = b""
) -> x509.Certificate:
    """Decode a certificate from outside TLS; raise `Refused` unless an authority signed it."""
    certificate = x509.load_der_x509_certificate(content)
    if roster.by_subject(certificate) is None:
        verify_issuer(certificate, ca)
    if is_revoked(certificate, crls):
        raise Refused(REVOKED)
    now = datetime.datetime.now(datetime.UTC)
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc:
        raise Refused(EXPIRED)
    return certificate


@refuse_unreadable(Refused, NOT_OF_AUTHORITY)
def verify_issuer(certificate: x509.Certificate, ca: bytes) -> None:
    """Raise `Refused` unless the authority signed the certificate, which may have expired."""
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))


def no_neighbour(name: str, other: str, own_version: int, their_version: int) -> Refused:
    """Explain why a member is refused; with a newer roster than the reader's, it may be one."""
    kind = OutdatedRoster if their_version > own_version else Refused
    return kind(f"{name} is no neighbour of {other}")


def unknown_key(key: str, name: str, own_version: int, their_version: int) -> Refused:
    """Explain why a key of this authority is refused; the claimed version decides nothing else."""
    if their_version > own_version:
        return OutdatedRoster(
            f"{name} has roster {own_version}, not yet {their_version}; start it again with "
            f"its new bundle"
        )
    superseded = f": roster {their_version} is superseded, take the new bundle" * (
        their_version < own_version
    )
    return Refused(
        f"the certificate is of this federation, but its key {key[:16]}... is not in roster "
        f"{own_version} of {name}{superseded}"
    )
