"""Private keys of sites, kept where they are used, and requests for their certificates.

A site that makes its own key sends a request to the authority and never the key. The new key waits
beside the bundle until the bundle has the certificate that belongs to it.
"""

import hashlib
import os
import shlex
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from ...core.parsing import refuse_unreadable

SiteSubject = tuple[str, str]  # authority of a site's own, and a name in its certificates
KEY, REQUESTED_KEY = "agent.key", "request.key"  # in a bundle: in use, and without certificate yet
PASSPHRASE, PASSPHRASE_FILE = "DIAMOND_KEY_PASSPHRASE", "DIAMOND_KEY_PASSPHRASE_FILE"
KEY_COMMAND = "DIAMOND_KEY_COMMAND"  # prints the key of a bundle that has no file of it
COMMAND_SECONDS = 60.0
ENCRYPTED = b"ENCRYPTED PRIVATE KEY"
MAX_NAME = 64  # characters of a common name in a certificate


class BadBundle(ValueError):
    """Error: a bundle is incomplete or not of one federation."""


class SiteRequest(NamedTuple):
    """Request of a site for a certificate of its public key."""

    site: str
    public_key: ec.EllipticCurvePublicKey


def fingerprint(key: CertificatePublicKeyTypes) -> str:
    """Return the SHA-256 digest of a public key."""
    content = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(content).hexdigest()


def write_private_key(
    path: Path, key: ec.EllipticCurvePrivateKey, passphrase: str | None = None
) -> None:
    """Write a key that only its owner can read, from the first byte on."""
    encryption: KeySerializationEncryption = NoEncryption()
    if passphrase:
        encryption = BestAvailableEncryption(passphrase.encode())
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
    os.replace(temporary, path)


@lru_cache(maxsize=8)  # a signed run needs it for every message
def load_signing_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Decode the private key of a site or of the authority."""
    key = load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def read_site_key(folder: Path) -> bytes:
    """Return the key of a bundle: of its file, or printed by the operator's command.

    A key that a command prints is in memory only.
    """
    command = os.environ.get(KEY_COMMAND)
    if command is None or (folder / KEY).exists():
        return read_key(folder / KEY)
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, timeout=COMMAND_SECONDS, check=True
        )
    except subprocess.CalledProcessError as cause:
        lines = cause.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise BadBundle(f"{KEY_COMMAND} failed ({cause.returncode}: {lines[0]})") from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as cause:
        raise BadBundle(f"{KEY_COMMAND} cannot be run: {cause}") from None
    return _decrypt(done.stdout, KEY_COMMAND, None)


def read_key(path: Path, passphrase: str | None = None) -> bytes:
    """Return the key in a file; one that is encrypted is opened by the passphrase."""
    return _decrypt(path.read_bytes(), str(path), passphrase)


def _decrypt(content: bytes, source: str, passphrase: str | None) -> bytes:
    """Return a key without encryption, or refuse what is none."""
    refusal, password = f"{source} holds no private key", None
    if ENCRYPTED in content:
        refusal = f"the passphrase does not open {source}"
        if not (password := (passphrase or given_passphrase()).encode()):
            raise BadBundle(
                f"{source} is encrypted: put its passphrase into a file that only you can read, "
                f"and the name of that file into the variable {PASSPHRASE_FILE}"
            )
    with refuse_unreadable(BadBundle, refusal):
        key = load_pem_private_key(content, password)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadBundle(f"the key of {source} is not of an elliptic curve, as sites need it")
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _is_p256(curve: ec.EllipticCurve) -> bool:
    return isinstance(curve, ec.SECP256R1)


def given_passphrase() -> str:
    """Return the passphrase of keys that the environment gives; empty if it gives none."""
    if name := os.environ.get(PASSPHRASE_FILE):
        try:
            return Path(name).read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as cause:
            raise BadBundle(f"{PASSPHRASE_FILE} = {name} cannot be read: {cause}") from None
    return os.environ.get(PASSPHRASE, "")


def create_request(folder: Path, site: str, passphrase: str | None = None) -> Path:
    """Make a key of the site in its bundle's folder; return the file of the request to be signed.

    A key that waits for its certificate is used again, so that a repeated command does no harm; it
    is encrypted if it was not, and a passphrase is given.
    """
    if not 0 < len(site) <= MAX_NAME or not site.isprintable() or Path(site).name != site:
        raise BadBundle(
            f"site = {site!r} is no name of a site; give the name in the federation's file"
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    waiting = folder / REQUESTED_KEY
    if waiting.exists():
        key = load_signing_key(read_key(waiting, passphrase))
    else:
        key = ec.generate_private_key(ec.SECP256R1())
    if not waiting.exists() or (passphrase and ENCRYPTED not in waiting.read_bytes()):
        write_private_key(waiting, key, passphrase)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, site)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    path = folder / f"{site}.csr"
    path.write_bytes(request.public_bytes(Encoding.PEM))
    return path


def read_request(path: Path) -> SiteRequest:
    """Read a request; its signature shows that the sender has the key."""
    with refuse_unreadable(BadBundle, f"{path} is no request of `diamond net request`"):
        request = x509.load_pem_x509_csr(path.read_bytes())
        key = request.public_key()
        (name,) = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not isinstance(key, ec.EllipticCurvePublicKey) or not _is_p256(key.curve):
            raise BadBundle(f"the key of {path} is not of the curve P-256, which sites use")
        if not request.is_signature_valid:
            raise InvalidSignature
        return SiteRequest(str(name.value), key)


def take_requested_key(folder: Path, certificate: bytes) -> None:
    """Put the waiting key into use if the bundle has its certificate now."""
    waiting = folder / REQUESTED_KEY
    if waiting.exists():
        requested = load_signing_key(read_key(waiting)).public_key()
        if requested == x509.load_pem_x509_certificate(certificate).public_key():
            os.replace(waiting, folder / KEY)
