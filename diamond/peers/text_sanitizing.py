"""Sanitizing of foreign text for terminals and logs: one line, no control codes, bounded."""

from typing import Any

LONGEST = 400  # characters


def printable(said: Any, most: int = LONGEST) -> str:
    """Return `said` with all special characters escaped."""
    text = str(said)
    cut = text[: most + 1]
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    return plain if len(text) <= most and len(plain) <= most else plain[: most - 3] + "..."
