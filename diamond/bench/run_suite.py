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
from ..tuning.successive_halving import Rung, best, split_by_candidate, tune
from ..tuning.trial_cache import Trial, TrialRequest, cached_trials
from .cases import Case
from .suites import KEPT, SHORT, TUNING, Suite
from .suites import suite as read
from .tunable_values import factors, tunable

# Columns of a run's history that are kept.
MEASURES = ("round", "upper_loss")
# Calls are gradients and products, each on one row.
COSTS = ("samples", "calls", "bytes", "seconds", "network_seconds")
Pair = dict[str, Any]
Setting = tuple[Algorithm, dict[str, float]]  # with its numbers in round 0


def run_suite(
    suite: Suite,
    folder: Path,
    processes: int = 1,
    on_pair: Callable[[Pair], None] = lambda pair: None,
    seconds: float = math.inf,
) -> list[Pair]:
    """Run every pair of case and method; return their outcomes in the order of the suite.

    No pair is begun after `seconds`; pairs that were not begun are left out.
    """
    names = [(case.name, method) for case, method in suite.pairs]
    apart = sorted(names, key=lambda pair: suite.methods.index(pair[1]))  # share compiled programs
    jobs = [(suite.source, dict(suite.changes), *pair, folder) for pair in apart]
    found: dict[tuple[str, str], Pair] = {}
    for pair in _outcomes(jobs, min(processes, len(jobs)), time.monotonic() + seconds):
        found[pair["case"], pair["method"]] = pair
        on_pair(pair)
    return [found[name] for name in names if name in found]


def _outcomes(jobs: list[Any], processes: int, end: float) -> Iterator[Pair]:
    if processes <= 1:
        yield from (run_pair(*job) for job in jobs if time.monotonic() < end)
        return
    with pinned_process_pool(processes) as workers:
        waiting: set[Future[Pair]] = set()
        left = iter(jobs)
        try:
            while True:
                free = processes - len(waiting) if time.monotonic() < end else 0
                waiting |= {workers.submit(run_pair, *job) for job in itertools.islice(left, free)}
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise


def run_pair(source: str, changes: dict[str, Any], name: str, method: str, folder: Path) -> Pair:
    """Tune one method on one case, and run the best setting from other seeds."""
    suite = read(source, **changes)
    (case,) = [case for case in suite.cases if case.name == name]
    with warnings.catch_warnings():  # the results say which runs diverged
        warnings.simplefilter("ignore", RuntimeWarning)
        return _tune_and_run(suite, case, method, folder)


def _tune_and_run(suite: Suite, case: Case, method: str, folder: Path) -> Pair:
    problem, network = case.make()
    tuned = tunable(method, problem, network, case.batch, TUNING)
    settings = suite.settings if tuned.base else 1  # a method without numbers has nothing to tune
    candidates = [tuned.at(drawn) for drawn in factors(settings)]
    backends: dict[Any, Any] = {}
    short, long = max(1, round(SHORT * case.rounds)), case.rounds

    def run(
        settings: Sequence[Setting], seeds: Sequence[int], rounds: int, measured: list[int]
    ) -> list[list[Trial]]:
        """Return the runs of each setting, one per seed."""
        about = {"case": dict(case.about), "method": method, "batch": case.batch}
        about |= {"rounds": rounds, "measured": measured, "fixed": str(tuned.fixed)}
        requests = [
            TrialRequest(algorithm, seed, about | {"numbers": numbers, "seed": seed})
            for algorithm, numbers in settings
            for seed in seeds
        ]
        fixed = lambda: problem, network, requests, rounds, measured
        shared: dict[str, Any] = {"measure": "loss", "backends": backends}
        found = cached_trials(*fixed, folder / "trials", lambda done: None, **shared)
        return split_by_candidate(found, len(seeds))

    results = tune(
        candidates,
        lambda settings, seeds, rounds: run(settings, seeds, rounds, late_rounds(rounds)),
        range(TUNING, TUNING + suite.tuning_seeds),
        [Rung(short, 1), Rung(long, suite.tuning_seeds, KEPT)],
        _late_loss,
    )
    winner = best(results)
    seeds, fewer = range(suite.seeds), range(suite.untuned_seeds)
    (tuned_runs,) = run([winner.candidate], seeds, long, case.measured)
    (untuned_runs,) = run([(tuned.untuned(), {"untuned": 1.0})], fewer, long, case.measured)
    return {
        "case": case.name,
        "method": method,
        "numbers": winner.candidate[1],
        "best": results.index(winner),
        "tried": [
            {"numbers": result.candidate[1]} | dict(zip(("short", "upper_loss"), result.losses))
            for result in results
        ],
        "tuned": [_columns(trial, seed) for trial, seed in zip(tuned_runs, seeds)],
        "untuned": [_columns(trial, seed) for trial, seed in zip(untuned_runs, fewer)],
    }


def _late_loss(trial: Trial) -> float:
    """Return the mean upper loss over the late evaluations of a trial."""
    return float(np.mean(trial["history"]["upper_loss"][1:]))  # all but the start


def _columns(trial: Trial, seed: int) -> dict[str, Any]:
    """Return a run in the columns that statistics need."""
    history = {name: np.asarray(values, float) for name, values in trial["history"].items()}
    history["calls"] = history["gradients"] + history["hvps"] + history["jvps"]
    columns = [name for name in (*MEASURES, *COSTS) if name in history]
    few = lambda values: [float(f"{value:.6g}") for value in values]
    kept = {name: few(history[name]) for name in columns}
    return {"seed": seed, "diverged": trial["diverged"], "history": kept}
