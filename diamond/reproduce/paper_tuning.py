"""Fair tuning: the same number of trials, of the same length, for every method."""

import itertools
import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ..tuning import successive_halving
from ..tuning.successive_halving import Rung, mean_loss, split_by_candidate
from ..tuning.trial_cache import Trial, summarize_trial
from . import paper_case
from .paper_case import PUBLISHED_CONSTANTS, Constants, ExperimentScale, PaperCase
from .paper_methods import METHODS, MOMENTUM

# Factors a, b, e of alpha_t = a s, beta_t = b s, eta_t = gamma_t = e s^2 with s = (2 + t)^(-1/3).
# Methods without momentum have no e; they get nine values of a instead of three: 27 trials each.
FACTORS = {
    "meta": ((0.3, 1.0, 3.0), (0.1, 0.3, 1.0), (0.3, 1.0, 3.0)),
    "a9a": ((5.0, 50.0, 500.0), (0.3, 1.0, 3.0), (0.1, 0.3, 1.0)),
}
FINE_FACTORS = {
    "meta": (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0),
    "a9a": (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0),
}
LOSS_TOLERANCE = 1.25
SEEDS = (100, 101)  # different from those of the experiments
CONSTANTS_FILE = "constants.json"


def list_settings(case: PaperCase, method: str) -> list[Constants]:
    """List 27 settings in the paper's constants: c_alpha = a, c_beta = b / a, c_eta = e / a^2."""
    kind = "a9a" if case.dataset == "a9a" else "meta"
    a, b, e = (
        FACTORS[kind] if method in MOMENTUM else (FINE_FACTORS[kind], FACTORS[kind][1], (1.0,))
    )
    return [(a, b / a, e / a**2) for a, b, e in itertools.product(a, b, e)]


def tune_case(
    case: PaperCase,
    scale: ExperimentScale,
    cache_folder: Path,
    folder: Path | None,
    *,
    on_trial: Callable[[int], None],
) -> dict[str, Any]:
    """Choose the constants of every method by two rules, and return all trials.

    Both rules use the late upper loss (mean over the last fifth of the evaluations and two seeds);
    settings that diverge with any seed are excluded. "loss" takes the smallest. "tuned" takes the
    smallest average metric among the settings within a quarter of the best upper loss of any
    method. The metric alone is no criterion: it is smallest where saturated units have stopped
    learning.
    """
    rows: list[dict[str, Any]] = []
    budget = [Rung(scale.rounds, len(SEEDS))]
    for method in METHODS:

        def run_trials(
            constants: Sequence[Constants], seeds: Sequence[int], rounds: int, method: str = method
        ) -> list[list[Trial]]:
            settings = list(itertools.product(constants, seeds))
            trials = paper_case.run_trials(
                case, scale, method, settings, cache_folder, folder, on_trial
            )
            return split_by_candidate(trials, len(seeds))

        for result in successive_halving.tune(
            list_settings(case, method), run_trials, SEEDS, budget, _late_mean("upper_loss")
        ):
            metric = mean_loss(result.trials, _late_mean("metric"))
            means = {"upper_loss": result.loss, "metric": metric}
            rows.append({"method": method, "constants": result.candidate} | means)
    return {kind: choose_constants(rows, kind) for kind in ("tuned", "loss")} | {"trials": rows}


def choose_constants(rows: list[dict[str, Any]], kind: str) -> dict[str, Constants]:
    """Return the best constants of every method among `rows`, by the rule "tuned" or "loss"."""
    loss_limit = LOSS_TOLERANCE * min(row["upper_loss"] for row in rows)
    by_loss = lambda row: row["upper_loss"]
    by_both = lambda row: (max(row["upper_loss"], loss_limit), row["metric"])
    best = {}
    for method in METHODS:
        method_rows = [row for row in rows if row["method"] == method]
        best[method] = min(method_rows, key=by_both if kind == "tuned" else by_loss)["constants"]
    return best


def _late_mean(name: str) -> Callable[[Trial], float]:
    return lambda trial: summarize_trial(trial)[name]


def load_constants(case: PaperCase, kind: str, method: str) -> Constants:
    """Return the published constants, or those chosen by `tune` (on a graph with p = 0.3)."""
    if kind == "published":
        return PUBLISHED_CONSTANTS[case.dataset]
    tuned = json.loads(resources.files(__package__).joinpath(CONSTANTS_FILE).read_text())
    name = PaperCase(case.dataset, case.agents, case.partition).name
    a, b, c = tuned[name][kind][method]
    return a, b, c
