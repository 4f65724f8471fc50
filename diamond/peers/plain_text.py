"""What others say, fit for a terminal and a log: one line, no control codes, not too long."""

from typing import Any

LONGEST = 400  # characters


def printable(said: Any, most: int = LONGEST) -> str:
    """`said` with everything that is not a plain character written out."""
    text = str(said)
    cut = text[: most + 1]
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    return plain if len(text) <= most and len(plain) <= most else plain[: most - 3] + "..."
