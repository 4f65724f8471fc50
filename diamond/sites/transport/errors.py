"""Errors of calls and of connections, in plain words."""

import socket
import ssl

from . import packet_stream
from .audit import sanitize_text


class Unreachable(ConnectionError):
    """Error: a neighbour did not respond, but may be back soon."""


class Refused(PermissionError):
    """Error: a neighbour refused; retrying is useless."""


class RunMismatch(Refused):
    """Error: a neighbour runs something else, until one of the two is restarted."""


class OutdatedRoster(Refused):
    """Error: a site has an older roster than the caller, and will have the newer one soon."""


class RunFailed(Refused):
    """Error: the run of a neighbour has failed for good, and so the whole run."""


# Codes of the packets that carry errors: a packet with another error is unreadable.
ERROR_CODES: dict[type[Exception], int] = {
    OutdatedRoster: packet_stream.OUTDATED_ROSTER,
    RunFailed: packet_stream.RUN_FAILED,
    RunMismatch: packet_stream.RUN_MISMATCH,
    Refused: packet_stream.REFUSED,
}
WRONG_KEY = "its key is not the one in the roster"
REVOKED = "its certificate was revoked by its authority"


def encode_error(error: Exception) -> tuple[int, bytes]:
    """Return code and body of the packet with an error."""
    codes = (code for kind, code in ERROR_CODES.items() if isinstance(error, kind))
    body = str(error).encode()[: packet_stream.MAX_REFUSAL_BYTES]
    return next(codes, packet_stream.UNREADABLE), body


def decode_error(code: int, body: memoryview) -> Exception:
    """Return the error in a packet; what may be over soon is `Unreachable`."""
    reason = sanitize_text(bytes(body).decode(errors="replace"))
    kinds = {known: kind for kind, known in ERROR_CODES.items()}
    error = kinds.get(code, Unreachable)(reason)
    if not isinstance(error, OutdatedRoster):
        return error
    unreachable = Unreachable(reason)
    unreachable.__cause__ = error
    return unreachable


def describe_error(cause: BaseException) -> str:
    """Rephrase common errors of the library in plain words."""
    authority = "its certificate is not of this federation's authority"
    if isinstance(cause, ssl.SSLCertVerificationError):
        if "expired" in cause.verify_message or "not yet valid" in cause.verify_message:
            return "its certificate has expired, or one of the clocks is wrong"
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
