"""Folder names made from the user's own names."""

from collections.abc import Iterable

LONGEST = 120  # bytes; file systems allow 255


def folder_name(name: str) -> str:
    """Make a name safe for a folder: "er(9, p=0.3)" becomes "er-9-p0.3", "../evil" becomes "evil".

    Letters, digits, "_" and "." stay, other characters become "-"; no name starts with "." or "-".
    """
    kept = "".join(c if c.isalnum() or c in "._" else "-" for c in name.replace("=", ""))
    plain = "-".join(filter(None, kept.split("-"))).strip(".-")
    return plain.encode()[:LONGEST].decode(errors="ignore").rstrip(".-") or "run"


def apart(names: Iterable[str]) -> list[str]:
    """Make names distinct: repeated names get -2 or the next free number."""
    wanted = list(names)
    found: list[str] = []
    for name in wanted:
        number, one = 1, name
        while one in found or (number > 1 and one in wanted):
            number += 1
            one = f"{name}-{number}"
        found.append(one)
    return found
