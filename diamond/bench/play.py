"""All runs of a suite: trials, the runs of what was found best, and those without tuning.

Every run is a file in the folder of the suite (`engine.trial_cache`), so that an interrupted
benchmark goes on where it was. A pair of case and method is one job; jobs go to as many processes
as asked for.
"""

import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..engine.loss_only import LossOnly
from ..engine.many import many
from ..engine.trial_cache import Trial, Wanted, remembered
from ..machine.cores import pool
from ..metrics.evaluations import late
from .settings import factors, tunable
from .suites import KEPT, SHORT, TUNING, Suite
from .suites import suite as read

# What is kept of a run's history.
MEASURES = ("round", "upper_loss")
# Calls are gradients and products, each of one row.
COSTS = ("samples", "calls", "bytes", "seconds", "network_seconds")
Pair = dict[str, Any]


def play(
    suite: Suite,
    folder: Path,
    processes: int = 1,
    on_pair: Callable[[Pair], None] = lambda pair: None,
    seconds: float = math.inf,
) -> list[Pair]:
    """The outcome of every pair of case and method, in the order of the suite.

    No pair is begun after so many `seconds`; those that were not are left out.
    """
    names = [(case.name, method) for case, method in suite.pairs]
    apart = sorted(names, key=lambda pair: suite.methods.index(pair[1]))  # share compiled programs
    jobs = [(suite.source, dict(suite.changes), *pair, folder) for pair in apart]
    found: dict[tuple[str, str], Pair] = {}
    for pair in _made(jobs, min(processes, len(jobs)), time.monotonic() + seconds):
        found[pair["case"], pair["method"]] = pair
        on_pair(pair)
    return [found[name] for name in names if name in found]


def _made(jobs: list[Any], processes: int, end: float) -> Iterator[Pair]:
    if processes <= 1:
        yield from (pair(*job) for job in jobs if time.monotonic() < end)
        return
    with pool(processes) as workers:
        waiting: set[Future[Pair]] = set()
        left = iter(jobs)
        try:
            while True:
                free = processes - len(waiting) if time.monotonic() < end else 0
                waiting |= {workers.submit(pair, *job) for job in itertools.islice(left, free)}
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise


def pair(source: str, changes: dict[str, Any], name: str, method: str, folder: Path) -> Pair:
    """One method on one case: what was tried, what was best, and what came of it."""
    with warnings.catch_warnings():  # results say what a run came to
        warnings.simplefilter("ignore", RuntimeWarning)
        return made(read(source, **changes), name, method, folder)


def made(suite: Suite, name: str, method: str, folder: Path, **parts: Any) -> Pair:
    """The same of a suite at hand; of a method composed of `parts` too."""
    (case,) = [case for case in suite.cases if case.name == name]
    problem, network = case.make()
    known = tunable(method, problem, network, case.batch, TUNING, **parts)
    settings = suite.settings if known.base else 1  # a method without numbers has nothing to tune
    tried = [known.at(drawn) for drawn in factors(settings)]
    make = LossOnly() if jax.default_backend() == "cpu" else many

    def runs(given: list[Any], seeds: range, rounds: int, measured: list[int]) -> list[list[Trial]]:
        """The runs of each algorithm, one a seed."""
        about = {"case": dict(case.about), "method": method, "batch": case.batch}
        about |= {"rounds": rounds, "measured": measured, "fixed": str(known.fixed)}
        wanted = [
            Wanted(algorithm, seed, about | {"numbers": numbers, "seed": seed})
            for algorithm, numbers in given
            for seed in seeds
        ]
        fixed = lambda: problem, network, wanted, rounds, measured
        found = remembered(*fixed, folder / "trials", lambda done: None, make=make)
        return [found[i : i + len(seeds)] for i in range(0, len(found), len(seeds))]

    def losses(given: list[Any], seeds: int, rounds: int) -> list[float]:
        """The late upper loss of each algorithm, in the mean over its trials."""
        trials = runs(given, range(TUNING, TUNING + seeds), rounds, late(rounds))
        return [sum(map(_late, each)) / seeds for each in trials]

    short, long = max(1, round(SHORT * case.rounds)), case.rounds
    brief = losses(tried, 1, short)
    order, size = np.argsort(brief, kind="stable").tolist(), math.ceil(KEPT * len(tried))
    whole: dict[int, float] = {}
    for first in range(0, len(order), size):  # the next best ones where all of the best diverge
        group = order[first : first + size]
        whole |= zip(group, losses([tried[i] for i in group], suite.tuning_seeds, long))
        if math.isfinite(min(whole.values())):
            break
    best = min(whole, key=lambda i: whole[i])
    seeds, fewer = range(suite.seeds), range(suite.untuned_seeds)
    (tuned,) = runs([tried[best]], seeds, long, case.measured)
    (untuned,) = runs([(known.untuned(), {"untuned": 1.0})], fewer, long, case.measured)
    return {
        "case": name,
        "method": method,
        "numbers": tried[best][1],
        "best": best,
        "tried": [
            {"numbers": numbers, "short": loss} | ({"upper_loss": whole[i]} if i in whole else {})
            for i, ((_, numbers), loss) in enumerate(zip(tried, brief))
        ],
        "tuned": [_kept(trial, seed) for trial, seed in zip(tuned, seeds)],
        "untuned": [_kept(trial, seed) for trial, seed in zip(untuned, fewer)],
    }


def _late(trial: Trial) -> float:
    """The upper loss late in a trial, infinite if it diverged."""
    losses = trial["history"]["upper_loss"][1:]  # all but the start
    loss = float(np.mean(losses)) if trial["diverged"] is None else math.inf
    return loss if math.isfinite(loss) else math.inf


def _kept(trial: Trial, seed: int) -> dict[str, Any]:
    """A run in the columns that statistics need."""
    history = {name: np.asarray(values, float) for name, values in trial["history"].items()}
    history["calls"] = history["gradients"] + history["hvps"] + history["jvps"]
    columns = [name for name in (*MEASURES, *COSTS) if name in history]
    few = lambda values: [float(f"{value:.6g}") for value in values]
    kept = {name: few(history[name]) for name in columns}
    return {"seed": seed, "diverged": trial["diverged"], "history": kept}
