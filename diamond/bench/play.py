"""All runs of a suite: trials, the runs of what was found best, and those without tuning.

Every run is a file in the folder of the suite (`runtimes.trial_cache`), so that an interrupted
benchmark goes on where it was. A pair of case and method is one job; jobs go to as many processes
as asked for.
"""

import itertools
import math
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from ..machine.cores import cores
from ..runtimes.trial_cache import Trial, Wanted, remembered, score
from .settings import factors, tunable
from .suites import TUNING, Suite
from .suites import suite as read

# What is kept of a run's history.
MEASURES = ("round", "upper_loss", "metric")
# Calls are gradients and products, each of one row.
COSTS = ("samples", "calls", "bytes", "seconds", "network_seconds")
Pair = dict[str, Any]


def play(
    suite: Suite,
    folder: Path,
    processes: int = 1,
    on_pair: Callable[[Pair], None] = lambda pair: None,
) -> list[Pair]:
    """The outcome of every pair of case and method, in the order of the suite."""
    jobs = [
        (suite.source, dict(suite.changes), case.name, method, folder)
        for case, method in suite.pairs
    ]
    found: dict[tuple[str, str], Pair] = {}
    for pair in _made(jobs, min(processes, len(jobs))):
        found[pair["case"], pair["method"]] = pair
        on_pair(pair)
    return [found[case, method] for _, _, case, method, _ in jobs]


def _made(jobs: list[Any], processes: int) -> Iterator[Pair]:
    if processes <= 1:
        yield from (pair(*job) for job in jobs)
        return
    fresh = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    places = fresh.Queue()
    for core in itertools.islice(itertools.cycle(cores()), processes):
        places.put(core)
    with ProcessPoolExecutor(processes, fresh, _settle, (places,)) as pool:
        waiting = [pool.submit(pair, *job) for job in jobs]
        try:
            yield from (done.result() for done in as_completed(waiting))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _settle(places: Any) -> None:
    """A worker keeps to a core of its own: threads of many small programs only wait for another."""
    core = places.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def pair(source: str, changes: dict[str, Any], name: str, method: str, folder: Path) -> Pair:
    """One method on one case: what was tried, what was best, and what came of it."""
    with warnings.catch_warnings():  # results say what a run came to
        warnings.simplefilter("ignore", RuntimeWarning)
        return _pair(read(source, **changes), name, method, folder)


def _pair(suite: Suite, name: str, method: str, folder: Path) -> Pair:
    (case,) = [case for case in suite.cases if case.name == name]
    problem, network = case.make()
    known = tunable(method, problem, network, case.batch, TUNING)
    tried = [known.at(drawn) for drawn in factors(suite.settings)]

    def runs(made: list[Any], seeds: range) -> list[list[Trial]]:
        """The runs of each algorithm, one a seed."""
        about = {"case": dict(case.about), "method": method, "batch": case.batch}
        about |= {"rounds": case.rounds, "fixed": str(known.fixed)}
        wanted = [
            Wanted(algorithm, seed, about | {"numbers": numbers, "seed": seed})
            for algorithm, numbers in made
            for seed in seeds
        ]
        fixed = lambda: problem, network, wanted, case.rounds, case.every
        found = remembered(*fixed, folder / "trials", lambda done: None)
        return [found[i : i + len(seeds)] for i in range(0, len(found), len(seeds))]

    trials = runs(tried, range(TUNING, TUNING + suite.tuning_seeds))
    losses = [sum(score(t)["upper_loss"] for t in each) / len(each) for each in trials]
    losses = [loss if math.isfinite(loss) else math.inf for loss in losses]
    best = int(np.argmin(losses))
    seeds = range(suite.seeds)
    (tuned,) = runs([tried[best]], seeds)
    (untuned,) = runs([(known.untuned(), {"untuned": 1.0})], seeds)
    return {
        "case": name,
        "method": method,
        "numbers": tried[best][1],
        "best": best,
        "tried": [
            {"numbers": numbers, "upper_loss": loss} for (_, numbers), loss in zip(tried, losses)
        ],
        "tuned": [_kept(trial, seed) for trial, seed in zip(tuned, seeds)],
        "untuned": [_kept(trial, seed) for trial, seed in zip(untuned, seeds)],
    }


def _kept(trial: Trial, seed: int) -> dict[str, Any]:
    """A run in the columns that statistics need."""
    history = {name: np.asarray(values, float) for name, values in trial["history"].items()}
    history["calls"] = history["gradients"] + history["hvps"] + history["jvps"]
    columns = [name for name in (*MEASURES, *COSTS) if name in history]
    few = lambda values: [float(f"{value:.6g}") for value in values]
    kept = {name: few(history[name]) for name in columns}
    return {"seed": seed, "diverged": trial["diverged"], "history": kept}
