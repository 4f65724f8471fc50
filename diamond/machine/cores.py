"""The cores of this machine that this process may use, and processes that keep to one each."""

import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def cores() -> list[int]:
    """By number; all of them where the system does not say which."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pool(processes: int) -> ProcessPoolExecutor:
    """Workers, each on a core of its own: threads of many small programs only wait for another."""
    fresh = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    places = fresh.Queue()
    for core in itertools.islice(itertools.cycle(cores()), processes):
        places.put(core)
    return ProcessPoolExecutor(processes, fresh, _settle, (places,))


def _settle(places: Any) -> None:
    core = places.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
