"""Trials of the paper's cases."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..tuning.trial_cache import Trial, TrialRequest, cached_trials
from .paper_case import Constants, ExperimentScale, PaperCase


def run_trials(
    case: PaperCase,
    scale: ExperimentScale,
    method: str,
    settings: Sequence[tuple[Constants, int]],
    cache_folder: Path,
    folder: Path | None,
    on_trial: Callable[[int], None],
    frozen: bool = False,
) -> list[Trial]:
    """Return the trials of `method` with each (constants, seed), cached or run and cached.

    If `frozen` is true, x does not move.
    """
    description: dict[str, Any] = case.describe(scale) | {"method": method, "frozen": frozen}
    requests = [
        TrialRequest(
            case.algorithm(method, constants, frozen),
            seed,
            description | {"constants": constants, "seed": seed},
        )
        for constants, seed in settings
    ]
    problem = lambda: case.problem(scale, folder)
    trials = cached_trials(
        problem,
        case.network(),
        requests,
        scale.rounds,
        every=scale.every,
        folder=cache_folder,
        on_trial=on_trial,
    )
    return [
        {"case": description, "constants": list(constants), "seed": seed}
        | {key: value for key, value in trial.items() if key != "about"}
        for (constants, seed), trial in zip(settings, trials)
    ]
