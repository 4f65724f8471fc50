"""The digest of a run's evaluations, each of itself and of those before it."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

TIMES = ("seconds", "waited", "network_seconds", "joules")  # not where the run went


def follow(lines: Iterable[dict[str, Any]], chain: str = "") -> str:
    """sha256 of every evaluation but for its times, and of `chain`, which stands for those before.

    So a checkpoint can vouch for the evaluations before it in one number.
    """
    for line in lines:
        kept = {name: value for name, value in line.items() if name not in TIMES}
        content = chain + json.dumps(kept, sort_keys=True)
        chain = hashlib.sha256(content.encode()).hexdigest()
    return chain
