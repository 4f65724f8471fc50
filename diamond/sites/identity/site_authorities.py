"""Authorities of sites: certificates of an existing PKI, and the site that each of them names.

The signed roster lists the certificates of such an authority, the root and those below that issue
certificates of sites, and for each of its sites the name that a certificate must have. So an
authority vouches for its own sites only. A site renews its certificate there, without a new roster.
Revoked certificates are in `crl.pem` of a bundle, lists that the authority signs and that running
sites take up as soon as the file is replaced.
"""

import datetime
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from ...core.parsing import refuse_unreadable
from .private_keys import BadBundle

CRLS = "crl.pem"  # in a bundle
CRL_BLOCK = re.compile(b"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.S)
SUBJECT_KINDS = ("dns:", "uri:", "dn:")  # of a name in a certificate
ISSUING_KEYS = (ec.EllipticCurvePublicKey, rsa.RSAPublicKey)
NEEDED_USES = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}


def subject_names(certificate: x509.Certificate) -> set[str]:
    """Return the names in a certificate: dns:..., uri:..., and dn:... as in RFC 4514."""
    names = {f"dn:{certificate.subject.rfc4514_string()}"}
    try:
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return names
    names |= {f"dns:{name}" for name in others.get_values_for_type(x509.DNSName)}
    return names | {
        f"uri:{name}" for name in others.get_values_for_type(x509.UniformResourceIdentifier)
    }


def is_issued_by(certificate: x509.Certificate, authority: Iterable[str]) -> bool:
    """Return whether one of the authority's certificates, in PEM and valid now, has issued it."""
    now = datetime.datetime.now(datetime.UTC)
    for pem in authority:
        issuer = _load_issuer(pem)
        if issuer.not_valid_before_utc <= now < issuer.not_valid_after_utc and _has_issued(
            issuer, certificate
        ):
            return True
    return False


def _has_issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


@lru_cache(maxsize=64)
def _load_issuer(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def check_authority(name: str, authority: Iterable[str]) -> None:
    """Raise `BadBundle` unless these certificates are a root's and those that follow from it."""
    with refuse_unreadable(BadBundle, f"the certificates of {name} cannot be read"):
        certificates = [x509.load_pem_x509_certificate(pem.encode()) for pem in authority]
        for certificate in certificates:
            subject = certificate.subject.rfc4514_string()
            constraints = [e.value for e in certificate.extensions]
            if not any(isinstance(c, x509.BasicConstraints) and c.ca for c in constraints):
                raise BadBundle(f"{name}: {subject} may issue no certificates; list those that may")
            if not isinstance(certificate.public_key(), ISSUING_KEYS):
                raise BadBundle(f"{name}: the key of {subject} is neither elliptic nor RSA")
            if not any(_has_issued(issuer, certificate) for issuer in certificates):
                raise BadBundle(f"{name}: the issuer of {subject} is missing; list the root too")
    if not certificates:
        raise BadBundle(f"{name} has no certificates")


def read_authority(name: str, path: Path) -> tuple[str, ...]:
    """Read the certificates of an authority, root and intermediate ones, from a PEM file."""
    with refuse_unreadable(BadBundle, f"{path} has no certificates in PEM"):
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
        pems = tuple(c.public_bytes(Encoding.PEM).decode() for c in certificates)
    check_authority(name, pems)
    return pems


def check_own_certificate(certificate: x509.Certificate, place: Path) -> None:
    """Raise `BadBundle` if a certificate of a site's own authority is of no use for sites."""
    if not isinstance(certificate.public_key(), ec.EllipticCurvePublicKey):
        raise BadBundle(f"the key of {place} is not elliptic: have it issued for P-256 or P-384")
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not NEEDED_USES <= {*uses}:
        raise BadBundle(
            f"{place} is not for servers and clients, and a site is both: have it issued with "
            f"serverAuth and clientAuth"
        )


@lru_cache(maxsize=8)
@refuse_unreadable(BadBundle, f"{CRLS} cannot be read")
def read_crls(content: bytes) -> tuple[x509.CertificateRevocationList, ...]:
    """Return the revocation lists in a PEM file."""
    lists = tuple(x509.load_pem_x509_crl(block) for block in CRL_BLOCK.findall(content))
    if content.strip() and not lists:
        raise BadBundle(f"{CRLS} has no revocation list in PEM")
    return lists


@refuse_unreadable(BadBundle, f"{CRLS} cannot be read")
def check_crls(content: bytes, issuers: Iterable[str]) -> None:
    """Raise `BadBundle` if a revocation list is not of one of these certificates, or damaged."""
    keys = [_load_issuer(pem).public_key() for pem in issuers]
    for crl in read_crls(content):
        issuer, _ = crl.issuer.rfc4514_string(), (crl.next_update_utc, list(crl))
        if not any(isinstance(key, ISSUING_KEYS) and crl.is_signature_valid(key) for key in keys):
            raise BadBundle(f"{CRLS} has a list of {issuer} that no authority of the roster signed")


def is_revoked(certificate: x509.Certificate, crls: bytes) -> bool:
    """Return whether the issuer of a certificate has revoked it."""
    lists = (crl for crl in read_crls(crls) if crl.issuer == certificate.issuer)
    number = certificate.serial_number
    return any(crl.get_revoked_certificate_by_serial_number(number) is not None for crl in lists)


def stale_crls(content: bytes) -> str:
    """Return a warning about revocation lists in place of which newer ones are due."""
    now = datetime.datetime.now(datetime.UTC)
    due = [
        crl.issuer.rfc4514_string()
        for crl in read_crls(content)
        if crl.next_update_utc is not None and crl.next_update_utc < now
    ]
    return f"{CRLS} is old: copy the newest list of {', '.join(due)} into the bundle" * bool(due)
