"""Trials of the paper's cases."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..tuning.trial_cache import Trial, TrialRequest, cached_trials
from .paper_case import Case, Constants, Scale


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
    """Return the trials of `method` with each (constants, seed), cached or run and cached.

    If `frozen` is true, x does not move.
    """
    fixed: dict[str, Any] = case.describe(scale) | {"method": method, "frozen": frozen}
    requests = [
        TrialRequest(
            case.algorithm(method, constants, frozen),
            seed,
            fixed | {"constants": constants, "seed": seed},
        )
        for constants, seed in settings
    ]
    problem = lambda: case.problem(scale, folder)
    sizes = scale.rounds, scale.every
    found = cached_trials(problem, case.network(), requests, *sizes, memory, on_trial)
    return [
        {"case": fixed, "constants": list(constants), "seed": seed}
        | {key: value for key, value in trial.items() if key != "about"}
        for (constants, seed), trial in zip(settings, found)
    ]
