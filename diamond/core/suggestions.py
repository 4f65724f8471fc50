"""Suggestions of known names for a misspelled name."""

import difflib
from collections.abc import Collection, Set


def did_you_mean(word: object, known: Collection[str]) -> str:
    """Return "did you mean x?" for the known name nearest to `word`, else list all known names.

    Case is ignored. The names are listed in their order; those of a set are sorted.
    """
    by_lower_case = {name.lower(): name for name in known}
    if matches := difflib.get_close_matches(str(word).lower(), by_lower_case, n=1, cutoff=0.6):
        return f"did you mean {by_lower_case[matches[0]]}?"
    names = sorted(known) if isinstance(known, Set) else known
    return f"there are {', '.join(names)}" if names else "there are none"
