"""Address at which the operator's commands reach a running site that has none in the roster.

The site listens on loopback, with mutual TLS as everywhere, and writes the address into its bundle.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .roster import Bundle

LOOPBACK = "127.0.0.1:0"  # the system chooses the port
FILE = "operator.address"


@contextmanager
def publish_operator_address(folder: Path, listen: str, port: int) -> Iterator[None]:
    """Write the address into the bundle while the site runs, if the system has chosen its port."""
    if listen != LOOPBACK:
        yield
        return
    path = folder / FILE
    with suppress(OSError):  # a bundle that cannot be written: --listen gives the address
        path.write_text(f"{LOOPBACK.rsplit(':', 1)[0]}:{port}\n")
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def operator_address(folder: Path, bundle: Bundle, listen: str | None) -> str:
    """Return the address of the running site for its operator; empty if it is unknown."""
    if listen or bundle.me.address:
        return listen or bundle.me.address
    with suppress(OSError):
        return (folder / FILE).read_text().strip()
    return ""
