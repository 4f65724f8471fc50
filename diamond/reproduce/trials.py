"""Trials with a memory: each is a file, so that an interrupted experiment goes on where it was."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._version import __version__
from ..runtimes.many import many
from .case import Case, Constants, Scale

Trial = dict[str, Any]
GROUP = {"cpu": 1}  # trials between two savings; an accelerator takes as many as it is given


def run(
    case: Case,
    scale: Scale,
    method: str,
    settings: Sequence[tuple[Constants, int]],
    memory: Path,
    folder: Path | None,
    on_trial: Callable[[int], None],
    frozen: bool = False,
) -> list[Trial]:
    """The trials of `method` with each (constants, seed): remembered, or run and remembered.

    `frozen`: without moving x.
    """
    fixed = case.describe(scale) | {"method": method, "frozen": frozen}
    keys = [_key(fixed, *setting) for setting in settings]
    missing = [i for i, k in enumerate(keys) if not (memory / f"{k}.json").exists()]
    on_trial(len(settings) - len(missing))
    memory.mkdir(parents=True, exist_ok=True)
    size = GROUP.get(jax.default_backend(), max(len(missing), 1))
    problem = case.problem(scale, folder) if missing else None
    for first in range(0, len(missing), size):
        group = missing[first : first + size]
        runs = [(case.algorithm(method, settings[i][0], frozen), settings[i][1]) for i in group]
        begun = time.perf_counter()
        assert problem is not None
        outcomes = many(problem, case.network(), runs, scale.rounds, scale.every)
        wall = (time.perf_counter() - begun) / len(group)
        for i, outcome in zip(group, outcomes):
            constants, seed = settings[i]
            trial = {
                "case": fixed,
                "constants": constants,
                "seed": seed,
                "diverged": outcome.diverged,
                "device": jax.devices()[0].device_kind,
                "wall": wall,
                "history": {k: np.asarray(v).tolist() for k, v in outcome.history.items()},
            }
            _write(memory / f"{keys[i]}.json", trial)
        on_trial(len(group))
    return [json.loads((memory / f"{k}.json").read_text()) for k in keys]


def _key(fixed: dict, constants: Constants, seed: int) -> str:
    fixed = fixed | {"constants": constants, "seed": seed, "version": __version__}
    fixed |= {"device": jax.devices()[0].device_kind, "precision": jnp.zeros(()).dtype.name}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:24]


def _write(path: Path, content: Trial) -> None:
    """All of a file or nothing of it, whatever happens meanwhile."""
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def score(trial: Trial) -> dict[str, float]:
    """A trial in a few numbers: averages over the run, and over its last fifth."""
    if trial["diverged"] is not None:
        return {"upper_loss": float("inf"), "metric": float("inf")}
    history = {k: np.asarray(v) for k, v in trial["history"].items()}
    tail = max(1, len(history["round"]) // 5)
    late = {k: float(history[k][-tail:].mean()) for k in history if k != "round"}
    spread = {"metric": float(history["metric"][1:].mean())}
    return late | spread | {"final_metric": late["metric"], "curvature": max(history["curvature"])}
