"""Stewards: persons several of whom must sign a roster, in place of one authority.

The certificate of the authority, which every bundle has, names the keys of the stewards and how
many of their signatures a roster needs. Each signs on a machine of its own, and the signatures are
collected beside the roster. The authority still issues certificates, of keys in a signed roster.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

from ...core.parsing import refuse_unreadable
from .private_keys import BadBundle, fingerprint, load_signing_key, read_key
from .site_authorities import subject_names

PREFIX = "urn:diamond:stewards:"
ALGORITHM = ec.ECDSA(hashes.SHA256())
MAX_STEWARDS = 20
Signatures = dict[bytes, bytes]  # by public key


class Stewards(NamedTuple):
    """Digests of the stewards' keys, and how many of them must sign a roster."""

    keys: tuple[str, ...]
    threshold: int

    def encode(self) -> str:
        """Encode the stewards as a name in the authority's certificate."""
        return PREFIX + ":".join([str(self.threshold), *self.keys])


def choose_stewards(keys: Iterable[ec.EllipticCurvePublicKey], threshold: int) -> Stewards:
    """Return the stewards with these keys; raise `BadBundle` if so many signatures cannot be."""
    digests = tuple(dict.fromkeys(map(fingerprint, keys)))
    if not 1 <= threshold <= len(digests) <= MAX_STEWARDS:
        raise BadBundle(
            f"{threshold} signatures of {len(digests)} stewards with different keys: give 1 to "
            f"{MAX_STEWARDS} stewards, and a --threshold of at most as many"
        )
    return Stewards(digests, threshold)


def read_stewards(authority: x509.Certificate) -> Stewards | None:
    """Return the stewards that the authority's certificate names; None if it names none."""
    names = (name.removeprefix("uri:") for name in sorted(subject_names(authority)))
    for name in names:
        if name.startswith(PREFIX):
            threshold, *keys = name.removeprefix(PREFIX).split(":")
            return Stewards(tuple(keys), int(threshold))
    return None


def read_signatures(content: bytes) -> Signatures:
    """Return the signatures in a file by public key."""
    with refuse_unreadable(BadBundle, "the stewards' signatures of the roster cannot be read"):
        document = json.loads(content)
        if len(document) > MAX_STEWARDS:
            raise BadBundle("the roster has more signatures than there are stewards")
        return {bytes.fromhex(key): bytes.fromhex(signature) for key, signature in document}


def write_signatures(signatures: Signatures) -> bytes:
    """Return the content of a file with these signatures."""
    return json.dumps([[key.hex(), value.hex()] for key, value in signatures.items()]).encode()


def verify_stewards(stewards: Stewards, content: bytes, signature: bytes) -> None:
    """Raise `InvalidSignature` or `BadBundle` unless enough stewards have signed the content."""
    signatures = read_signatures(signature)
    count = len(valid_signatures(stewards, content, signatures))
    if signatures and not count:
        raise InvalidSignature
    if count < stewards.threshold:
        raise BadBundle(
            f"the roster has {count} of {stewards.threshold} signatures of stewards: collect the "
            f"others by `diamond net endorse`"
        )


def valid_signatures(stewards: Stewards, content: bytes, signatures: Signatures) -> Signatures:
    """Return the signatures of the content that are of stewards, one of each."""
    valid: Signatures = {}
    with refuse_unreadable(BadBundle, "the key of a steward cannot be read"):
        for encoded, signature in signatures.items():
            key = load_der_public_key(encoded)
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise BadBundle("the key of a steward is not elliptic")
            try:
                key.verify(signature, content, ALGORITHM)
            except InvalidSignature:
                continue
            if fingerprint(key) in stewards.keys:
                valid[encode_key(key)] = signature
    return valid


def encode_key(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the bytes of a steward's key beside its signature."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def sign_as_steward(stewards: Stewards, content: bytes, path: Path) -> Signatures:
    """Return the signature of the content by the steward whose key is in a file."""
    key = load_signing_key(read_key(path))
    if fingerprint(key.public_key()) not in stewards.keys:
        raise BadBundle(f"{path} is not the key of a steward of this federation")
    return {encode_key(key.public_key()): key.sign(content, ALGORITHM)}
