"""Records that a site has signed by the key of its certificate, which they contain."""

import msgpack
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from ..core.parsing import refuse_unreadable
from .call_errors import Refused
from .membership import find_holder, verify_certificate
from .roster import SIGNATURE_ALGORITHM, Bundle, Member
from .wire_format import FrameError


def sign_record(bundle: Bundle, context: bytes, content: bytes) -> bytes:
    """Sign content by the key of this site, for a purpose that both ends know."""
    key = load_pem_private_key(bundle.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(bundle.certificate)
    signature = key.sign(context + content, SIGNATURE_ALGORITHM)
    return msgpack.packb([content, certificate.public_bytes(Encoding.DER), signature])


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
    certificate = verify_certificate(certificate_bytes, bundle.ca)
    with refuse_unreadable(Refused, f"a {kind} that its site did not sign for this purpose"):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        key.verify(signature, context + content, SIGNATURE_ALGORITHM)
    return content, find_holder(certificate, bundle.roster)
