"""Errors of calls and of connections, on the wire and as exceptions."""

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
