"""All runs of a suite: trials, runs with the best setting, and runs without tuning.

Every run is a file in the folder of the suite (`tuning.trial_cache`), so that an interrupted
benchmark resumes. A pair of case and method is one job; jobs are shared by several processes.
"""

import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

import numpy as np

from ..hardware.cores import pinned_process_pool
from ..interface.round_interface import Algorithm
from ..metrics.evaluations import late_rounds
from ..tuning.successive_halving import Rung, best_result, split_by_candidate, tune
from ..tuning.trial_cache import Trial, TrialRequest, cached_trials
from .cases import BenchmarkCase
from .costs import COSTS, MEASURES
from .suites import CONTINUED_SHARE, FIRST_TUNING_SEED, SHORT_TRIAL_SHARE, Suite, load_suite
from .tunable_values import draw_factors, make_tunable

Pair = dict[str, Any]
AlgorithmSetting = tuple[Algorithm, dict[str, float]]  # with its numbers in round 0


def run_suite(
    suite: Suite,
    folder: Path,
    processes: int = 1,
    on_pair: Callable[[Pair], None] = lambda pair: None,
    *,
    seconds: float = math.inf,
) -> list[Pair]:
    """Run every pair of case and method; return their outcomes in the order of the suite.

    No pair is begun after `seconds`; pairs that were not begun are left out.
    """
    names = [(case.name, method) for case, method in suite.pairs]
    # Pairs of one method share compiled programs.
    ordered = sorted(names, key=lambda pair: suite.methods.index(pair[1]))
    jobs = [(suite.source, dict(suite.changes), *pair, folder) for pair in ordered]
    outcomes: dict[tuple[str, str], Pair] = {}
    for pair in _run_jobs(jobs, min(processes, len(jobs)), time.monotonic() + seconds):
        outcomes[pair["case"], pair["method"]] = pair
        on_pair(pair)
    return [outcomes[name] for name in names if name in outcomes]


def _run_jobs(jobs: list[Any], processes: int, deadline: float) -> Iterator[Pair]:
    if processes <= 1:
        yield from (run_pair(*job) for job in jobs if time.monotonic() < deadline)
        return
    with pinned_process_pool(processes) as workers:
        waiting: set[Future[Pair]] = set()
        remaining = iter(jobs)
        try:
            while True:
                free_workers = processes - len(waiting) if time.monotonic() < deadline else 0
                waiting |= {
                    workers.submit(run_pair, *job)
                    for job in itertools.islice(remaining, free_workers)
                }
                if not waiting:
                    return
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise


def run_pair(source: str, changes: dict[str, Any], name: str, method: str, folder: Path) -> Pair:
    """Tune one method on one case, and run the best setting from other seeds."""
    suite = load_suite(source, **changes)
    (case,) = [case for case in suite.cases if case.name == name]
    with warnings.catch_warnings():  # the results say which runs diverged
        warnings.simplefilter("ignore", RuntimeWarning)
        return _tune_and_run(suite, case, method, folder)


def _tune_and_run(suite: Suite, case: BenchmarkCase, method: str, folder: Path) -> Pair:
    problem, network = case.make()
    method_family = make_tunable(method, problem, network, case.batch, seed=FIRST_TUNING_SEED)
    settings = suite.settings if method_family.base else 1  # without numbers, nothing is tuned
    candidates = [method_family.with_factors(draw) for draw in draw_factors(settings)]
    backends: dict[Any, Any] = {}
    short, long = max(1, round(SHORT_TRIAL_SHARE * case.rounds)), case.rounds

    def run(
        settings: Sequence[AlgorithmSetting], seeds: Sequence[int], rounds: int, measured: list[int]
    ) -> list[list[Trial]]:
        """Return the runs of each setting, one per seed."""
        description = {"case": dict(case.cache_description), "method": method, "batch": case.batch}
        description |= {"rounds": rounds, "measured": measured, "fixed": str(method_family.fixed)}
        requests = [
            TrialRequest(algorithm, seed, description | {"numbers": numbers, "seed": seed})
            for algorithm, numbers in settings
            for seed in seeds
        ]
        inputs = (lambda: problem), network, requests, rounds
        options: dict[str, Any] = {"measure": "loss", "backends": backends, "every": measured}
        options |= {"folder": folder / "trials", "on_trial": lambda count: None}
        trials = cached_trials(*inputs, **options)
        return split_by_candidate(trials, len(seeds))

    results = tune(
        candidates,
        lambda settings, seeds, rounds: run(settings, seeds, rounds, late_rounds(rounds)),
        range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + suite.tuning_seeds),
        [Rung(short, 1), Rung(long, suite.tuning_seeds, CONTINUED_SHARE)],
        lambda trial: float(np.mean(trial["history"]["upper_loss"][1:])),  # all but the start
    )
    winner = best_result(results)
    seeds, untuned_seeds = range(suite.seeds), range(suite.untuned_seeds)
    (tuned_runs,) = run([winner.candidate], seeds, long, case.evaluation_rounds)
    untuned = [(method_family.make(**method_family.free), {"untuned": 1.0})]
    (untuned_runs,) = run(untuned, untuned_seeds, long, case.evaluation_rounds)
    return {
        "case": case.name,
        "method": method,
        "numbers": winner.candidate[1],
        "best": results.index(winner),
        "tried": [
            {"numbers": result.candidate[1]} | dict(zip(("short", "upper_loss"), result.losses))
            for result in results
        ],
        "tuned": [_select_columns(trial, seed) for trial, seed in zip(tuned_runs, seeds)],
        "untuned": [
            _select_columns(trial, seed) for trial, seed in zip(untuned_runs, untuned_seeds)
        ],
    }


def _select_columns(trial: Trial, seed: int) -> dict[str, Any]:
    """Return a run in the columns that statistics need."""
    history = {name: np.asarray(values, float) for name, values in trial["history"].items()}
    history["calls"] = history["gradients"] + history["hvps"] + history["jvps"]
    columns = [name for name in (*MEASURES, *COSTS) if name in history]
    shorten = lambda values: [float(f"{value:.6g}") for value in values]
    columns_kept = {name: shorten(history[name]) for name in columns}
    return {"seed": seed, "diverged": trial["diverged"], "history": columns_kept}
