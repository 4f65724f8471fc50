"""Mutual TLS 1.3 with the keys of a bundle, and the identity of the other end."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509

from ...core.parsing import refuse_unreadable
from ..identity.roster import Bundle
from .errors import Refused


def tls_context(bundle: Bundle, is_server: bool) -> ssl.SSLContext:
    """Return the TLS context of this site as server or as client.

    TLS verifies that an authority signed the other end's certificate. Which site it belongs to is
    verified by `certificate_holder` before anything is sent, in both directions by the same rule.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=bundle.anchors.decode())
    if bundle.roster.authorities:  # which may issue by certificates that are no roots
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if is_server:
        context.num_tickets = 0  # connections are never resumed
    with _temporary_file(bundle.certificate + bundle.key) as path:
        context.load_cert_chain(path)
    return context


@refuse_unreadable(Refused, "its certificate cannot be read")
def peer_identity(ssl_object: ssl.SSLObject) -> tuple[x509.Certificate, float]:
    """Return the certificate of the other end and its expiry."""
    content = ssl_object.getpeercert(binary_form=True)
    assert content is not None  # it was required
    certificate = x509.load_der_x509_certificate(content)
    return certificate, certificate.not_valid_after_utc.timestamp()


@contextmanager
def _temporary_file(content: bytes) -> Iterator[str]:
    """Yield a private file name for `content`, since `ssl` reads keys from files only."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("diamond")
        with os.fdopen(number, "wb") as stream:
            stream.write(content)
            stream.flush()
            yield f"/proc/self/fd/{number}"
        return
    with tempfile.TemporaryDirectory() as folder:  # private to its owner
        path = Path(folder, "pair.pem")
        path.write_bytes(content)
        yield str(path)
