"""Folder names made from the user's own names."""

from collections.abc import Iterable

MAX_BYTES = 120  # bytes; file systems allow 255


def folder_name(name: str) -> str:
    """Make a name safe for a folder: "er(9, p=0.3)" becomes "er-9-p0.3", "../evil" becomes "evil".

    Letters, digits, "_" and "." stay, other characters become "-"; no name starts with "." or "-".
    """
    cleaned = "".join(c if c.isalnum() or c in "._" else "-" for c in name.replace("=", ""))
    joined = "-".join(filter(None, cleaned.split("-"))).strip(".-")
    return joined.encode()[:MAX_BYTES].decode(errors="ignore").rstrip(".-") or "run"


def make_unique(names: Iterable[str]) -> list[str]:
    """Make names distinct: repeated names get -2 or the next free number."""
    requested = list(names)
    unique: list[str] = []
    for name in requested:
        number, candidate = 1, name
        while candidate in unique or (number > 1 and candidate in requested):
            number += 1
            candidate = f"{name}-{number}"
        unique.append(candidate)
    return unique
