"""The cores of this machine that this process may use."""

import os


def cores() -> list[int]:
    """By number; all of them where the system does not say which."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
