"""Errors of connections in plain words."""

import socket
import ssl

from . import packet_stream
from .audit import sanitize_text

EXPIRED = "its certificate has expired, or one of the clocks is wrong"


def describe_error(cause: BaseException) -> str:
    """Rephrase common errors of the library in plain words."""
    authority = "its certificate is not of this federation's authority"
    if isinstance(cause, ssl.SSLCertVerificationError):
        if "expired" in cause.verify_message or "not yet valid" in cause.verify_message:
            return EXPIRED
        return authority
    if isinstance(cause, packet_stream.PacketTooLong):
        return "an answer larger than any message of this run"
    if isinstance(cause, ConnectionRefusedError) or "Connect call failed" in str(cause):
        return "nothing listens there"
    if isinstance(cause, socket.gaierror):
        return "no machine of that name is known"
    descriptions = {
        "CERTIFICATE_EXPIRED": "it does not take this site's certificate, which has expired",
        "UNKNOWN_CA": "it does not take this site's certificate, which is of another authority",
        "WRONG_VERSION_NUMBER": "what listens there does not speak TLS",
    }
    refusals = "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_REQUIRED", "DECRYPT_ERROR"
    descriptions |= dict.fromkeys(refusals, "it does not take this site's certificate")
    text = f"{getattr(cause, 'reason', None) or ''} {cause}"
    described = (words for code, words in descriptions.items() if code in text.upper())
    return next(described, "") or sanitize_text(getattr(cause, "strerror", None) or cause)


def describe_admission_failure(cause: BaseException, limit: float) -> str:
    """Explain why a connection to this site was not admitted within `limit` seconds."""
    if isinstance(cause, ssl.SSLError):
        return f"no mutual TLS ({cause.reason or cause})"
    if isinstance(cause, TimeoutError) or "handshake is taking longer" in str(cause):
        return f"no proof of a key within {limit:g} s"
    return str(cause) or type(cause).__name__
