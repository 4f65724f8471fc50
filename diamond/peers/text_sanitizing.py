"""Sanitizing of foreign text for terminals and logs: one line, no control codes, bounded."""

from typing import Any

MAX_LENGTH = 400  # characters


def sanitize_text(value: Any, max_length: int = MAX_LENGTH) -> str:
    """Return `value` as text with all special characters escaped."""
    text = str(value)
    cut = text[: max_length + 1]
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    return (
        plain
        if len(text) <= max_length and len(plain) <= max_length
        else plain[: max_length - 3] + "..."
    )
