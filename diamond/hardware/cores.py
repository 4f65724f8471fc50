"""CPU cores available to this process, and worker processes bound to one core each."""

import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def available_cores() -> list[int]:
    """Return the numbers of the available cores; all cores if the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pinned_process_pool(processes: int) -> ProcessPoolExecutor:
    """Return worker processes bound to one core each, which avoids threads that wait."""
    spawn_context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    core_queue = spawn_context.Queue()
    for core in itertools.islice(itertools.cycle(available_cores()), processes):
        core_queue.put(core)
    return ProcessPoolExecutor(processes, spawn_context, _pin_to_core, (core_queue,))


def _pin_to_core(core_queue: Any) -> None:
    core = core_queue.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
