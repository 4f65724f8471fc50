"""Chained digest of a run's evaluations."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

TIMES = ("seconds", "waited", "network_seconds", "joules")  # times do not identify the trajectory


def chain_digest(lines: Iterable[dict[str, Any]], chain: str = "") -> str:
    """Compute SHA-256 of every evaluation without its times, chained to `chain` of earlier ones.

    A checkpoint can thus validate all earlier evaluations with one number.
    """
    for line in lines:
        untimed = {name: value for name, value in line.items() if name not in TIMES}
        content = chain + json.dumps(untimed, sort_keys=True)
        chain = hashlib.sha256(content.encode()).hexdigest()
    return chain
