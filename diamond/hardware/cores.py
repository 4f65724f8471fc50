"""CPU cores available to this process, and worker processes bound to one core each."""

import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def cores() -> list[int]:
    """Return the numbers of the available cores; all cores if the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pool(processes: int) -> ProcessPoolExecutor:
    """Return worker processes bound to one core each, which avoids threads that wait."""
    fresh = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    places = fresh.Queue()
    for core in itertools.islice(itertools.cycle(cores()), processes):
        places.put(core)
    return ProcessPoolExecutor(processes, fresh, _settle, (places,))


def _settle(places: Any) -> None:
    core = places.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
