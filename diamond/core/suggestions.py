"""Suggestions of known names for a misspelled name."""

import difflib
from collections.abc import Collection, Set


def did_you_mean(word: object, known: Collection[str]) -> str:
    """Return "did you mean x?" for the known name nearest to `word`, else list all known names.

    Case is ignored. The names are listed in their order; those of a set are sorted.
    """
    spelled = {name.lower(): name for name in known}
    if near := difflib.get_close_matches(str(word).lower(), spelled, n=1, cutoff=0.6):
        return f"did you mean {spelled[near[0]]}?"
    listed = sorted(known) if isinstance(known, Set) else known
    return f"there are {', '.join(listed)}" if listed else "there are none"
