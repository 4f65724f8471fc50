"""Cached trials: each trial is a file, so that an interrupted experiment can resume."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .._version import __version__
from ..core.host_transfer import default_dtype
from ..core.sampling import Sampling
from ..engine.many_runs import simulate_many
from ..engine.single_device import SingleDevice
from ..interface.round_interface import Algorithm
from ..metrics.evaluations import Every
from ..metrics.measures import Measure
from ..network import Network
from ..problem import Problem
from ..records.checkpoint_file import replace_file

Trial = dict[str, Any]
TRIALS_PER_WRITE = {"cpu": 1}  # trials between two writes; an accelerator takes all at once


class TrialRequest(NamedTuple):
    """A trial to run, or to read from the cache by `cache_description`."""

    algorithm: Algorithm
    seed: int
    cache_description: dict[str, Any]  # everything that determines its numbers, as JSON


def cached_trials(
    problem: Callable[[], Problem],
    network: Network,
    requests: Sequence[TrialRequest],
    rounds: int,
    *,
    every: Every,
    folder: Path,
    on_trial: Callable[[int], None],
    sampling: Sampling = "blocks",
    measure: Measure | None = None,
    backends: dict[Any, SingleDevice] | None = None,
) -> list[Trial]:
    """Return the trials of `requests`, from the cache or run.

    Their algorithms differ in numbers only. Each trial is a file in the folder `memory`, written
    when the trial is complete. `on_trial` is called with the number of completed trials, cached
    ones first. `problem` is called only if a trial has to run. `measure`
    and `backends` are as in `simulate_many`.
    """
    paths = [folder / f"{_cache_key(request.cache_description)}.json" for request in requests]
    missing = [i for i, path in enumerate(paths) if not path.exists()]
    on_trial(len(requests) - len(missing))
    folder.mkdir(parents=True, exist_ok=True)
    size = TRIALS_PER_WRITE.get(jax.default_backend(), max(len(missing), 1))
    built_problem = problem() if missing else None
    backends = {} if backends is None else backends
    for first in range(0, len(missing), size):
        group = missing[first : first + size]
        runs = [(requests[i].algorithm, requests[i].seed) for i in group]
        start = time.perf_counter()
        assert built_problem is not None
        outcomes = simulate_many(
            built_problem,
            network,
            runs,
            rounds,
            every,
            sampling,
            measure=measure,
            backends=backends,
        )
        wall_seconds = (time.perf_counter() - start) / len(group)
        for i, outcome in zip(group, outcomes):
            trial = {
                "about": requests[i].cache_description,
                "diverged": outcome.diverged,
                "device": jax.devices()[0].device_kind,
                "wall": wall_seconds,
                "history": {k: np.asarray(v).tolist() for k, v in outcome.history.items()},
            }
            replace_file(paths[i], json.dumps(trial).encode(), durable=False)
        on_trial(len(group))
    return [json.loads(path.read_text()) for path in paths]


def summarize_trial(trial: Trial) -> dict[str, float]:
    """Summarize a trial: averages over the run, and over its last fifth."""
    if trial["diverged"] is not None:
        return {"upper_loss": float("inf"), "metric": float("inf")}
    history = {k: np.asarray(v) for k, v in trial["history"].items()}
    tail_length = max(1, len(history["round"]) // 5)
    late_means = {k: float(history[k][-tail_length:].mean()) for k in history if k != "round"}
    average = {"metric": float(history["metric"][1:].mean())}
    return (
        late_means
        | average
        | {"final_metric": late_means["metric"], "curvature": max(history["curvature"])}
    )


def _cache_key(cache_description: dict[str, Any]) -> str:
    description = cache_description | {
        "version": __version__,
        "device": jax.devices()[0].device_kind,
    }
    description |= {"precision": default_dtype().name}
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:24]
