"""Names of people's own as names of folders."""

from collections.abc import Iterable

LONGEST = 120  # bytes; file systems take 255


def folder_name(name: str) -> str:
    """A name that is safe as a folder's: "er(9, p=0.3)" becomes "er-9-p0.3", "../evil" "evil".

    Letters, digits, "_" and "." stay, the rest becomes "-"; none begins with "." or "-".
    """
    kept = "".join(c if c.isalnum() or c in "._" else "-" for c in name.replace("=", ""))
    plain = "-".join(filter(None, kept.split("-"))).strip(".-")
    return plain.encode()[:LONGEST].decode(errors="ignore").rstrip(".-") or "run"


def apart(names: Iterable[str]) -> list[str]:
    """The names, the second of a kind with -2 after it, or the next number that is free."""
    wanted = list(names)
    found: list[str] = []
    for name in wanted:
        number, one = 1, name
        while one in found or (number > 1 and one in wanted):
            number += 1
            one = f"{name}-{number}"
        found.append(one)
    return found
