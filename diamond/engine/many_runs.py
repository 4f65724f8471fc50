"""Many runs of several algorithms, numbers and seeds on one problem and network.

On an accelerator, runs that differ in numbers and seeds only become one program with an axis of
runs, because small problems leave the device idle otherwise. On a CPU the runs follow each other,
which is as fast there.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..core.sampling import Sampling
from ..core.validation import as_int
from ..hardware.memory import TooLarge
from ..interface.round_interface import Algorithm
from ..metrics.display import displayed
from ..metrics.divergence import Diverged
from ..metrics.evaluations import Every
from ..metrics.measures import Measure, parse_measures
from ..network import Network
from ..problem import Problem
from ..records.run import Run
from .lanes import LaneDriver
from .simulate import check, simulate, warn_of_repeated_rows
from .single_device import OneDevice

LANES = 288  # maximum number of parallel runs
NAME = "runs"  # label of all runs in the progress display


class Outcome(NamedTuple):
    """Result of one run."""

    history: dict[str, np.ndarray]  # as `Run.history`, up to divergence
    diverged: int | None  # round of divergence


def many(
    problem: Problem,
    network: Network,
    runs: Sequence[tuple[Algorithm, int]],
    rounds: int,
    every: Every = 100,
    sampling: Sampling = "blocks",
    batched: bool | None = None,
    on_run: Callable[[int], None] | None = None,
    memory: int | None = None,
    progress: bool = True,
    measure: Measure = "exact",
    backends: dict[Any, OneDevice] | None = None,
) -> list[Outcome]:
    """Return the outcome of each (algorithm, seed) in order, equal to `simulate` up to rounding.

    Args:
        problem, network, rounds, every, sampling, measure: as in `simulate`.
        runs: pairs of an algorithm and a seed.
        batched: make runs that differ in their numbers only one program; by default on an
            accelerator. Then `seconds` is a run's share of the total time, and a run whose loss
            rises is repeated alone, because lanes cannot roll back.
        on_run: called with the number of completed runs.
        memory: bytes of the device; fewer runs go in parallel if not all fit.
        progress: show the number of completed runs on a terminal or in a notebook.
        backends: cache of compiled programs of earlier calls, extended by this call.
    """
    if batched is None:
        batched = jax.default_backend() != "cpu"
    outcomes: list[Outcome] = []
    for algorithm, seed in runs:
        check(problem, network, algorithm, rounds, every, sampling)
        as_int("seed", seed)

    known = {} if backends is None else backends

    def alone(algorithm: Algorithm, seed: int) -> Outcome:
        given = problem, network, algorithm, rounds, seed, every, sampling
        kind = id(problem), id(network), algorithm.batch, sampling, memory
        if kind not in known:
            known[kind] = OneDevice(problem, network, algorithm.batch, sampling, memory=memory)
        with warnings.catch_warnings():  # trials may well have steps that are too small
            warnings.filterwarnings("ignore", "x stands still", RuntimeWarning)
            run, diverged = _alone(*given, backend=known[kind], measure=measure)
        return Outcome(run.history, diverged)

    with displayed([NAME], rounds, progress) as display:
        display.begin(NAME, rounds)

        def count(made: int) -> None:
            display.stage(NAME, f"{made} of {len(runs)} made")
            if on_run and made:
                on_run(made)

        count(0)
        if not batched:
            for given in runs:
                outcomes.append(alone(*given))
                count(len(outcomes))
            return outcomes
        made: dict[int, Outcome] = {}
        about = problem, network, runs, rounds, every, sampling, measure
        for table, lanes in _all(*about, memory):
            made |= zip(table.ravel().tolist(), map(Outcome, lanes.histories(), lanes.failed))
            made |= {i: alone(*runs[i]) for i in table.ravel()[lanes.rerun].tolist()}
            count(len(made))
        return [made[i] for i in range(len(runs))]


def seeds_together(
    seeds: Sequence[int],
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    every: Every = 100,
    sampling: Sampling = "blocks",
    measure: Measure = "exact",
) -> list[Run | None]:
    """Return the run of each seed, all made by one program; None for a run that diverged.

    Each run equals that of `simulate` up to rounding; `seconds` is its share of the total time.
    """
    check(problem, network, algorithm, rounds, every, sampling)
    warn_of_repeated_rows(problem, algorithm.batch)
    runs = [(algorithm, as_int("seed", seed)) for seed in seeds]
    made: dict[int, Run | None] = {}
    for table, lanes in _all(problem, network, runs, rounds, every, sampling, measure):
        lanes.warn_of_standstill()
        made |= zip(table.ravel().tolist(), lanes.runs())
        for i in table.ravel()[lanes.rerun].tolist():
            given = problem, network, algorithm, rounds, seeds[i], every, sampling
            run, diverged = _alone(*given, measure=measure)
            made[i] = run if diverged is None else None
    return [made[i] for i in range(len(runs))]


def _alone(*given: Any, **options: Any) -> tuple[Run, int | None]:
    """Make one run alone; return the round in which it diverged too, or None."""
    try:
        return simulate(*given, on_divergence="stop", progress=False, **options), None
    except Diverged as error:
        return error.run, error.round


def _tables(seeds: list[int]) -> list[np.ndarray]:
    """Arrange the runs in tables of at most LANES: a row has runs of one seed.

    Each mini-batch is then fetched once per row, and the products of the row's runs with it become
    one. Rows that are too short repeat their last run.
    """
    each: dict[int, list[int]] = {}
    for i, seed in enumerate(seeds):
        each.setdefault(seed, []).append(i)
    width = min(LANES, max(map(len, each.values()), default=1))
    rows = [of[k : k + width] for of in each.values() for k in range(0, len(of), width)]
    full = np.array([row + [row[-1]] * (width - len(row)) for row in rows], int).reshape(-1, width)
    many = max(1, LANES // width)
    return [full[k : k + many] for k in range(0, len(full), many)]


def _all(
    problem: Problem,
    network: Network,
    runs: Sequence[tuple[Algorithm, int]],
    rounds: int,
    every: Every,
    sampling: Sampling,
    measure: Measure,
    memory: int | None = None,
) -> Iterator[tuple[np.ndarray, LaneDriver]]:
    """Make the tables of runs in turn; a table that does not fit the device is halved.

    While one table runs, the next is compiled, if the device has room for both.
    """
    kinds: dict[Any, list[int]] = {}
    for i, (algorithm, _) in enumerate(runs):
        kinds.setdefault(jax.tree.structure(algorithm), []).append(i)
    waiting = [
        np.array(kind)[table]
        for kind in kinds.values()
        for table in _tables([runs[i][1] for i in kind])
    ]
    measures = parse_measures(measure, problem)
    ahead: dict[int, LaneDriver] = {}  # driver of the next table, by its first run

    def made(table: np.ndarray) -> LaneDriver:
        given = [runs[i] for i in table.ravel()]
        return LaneDriver(problem, network, given, table.shape, sampling, measures, memory)

    while waiting:
        table = waiting.pop(0)
        try:
            lanes = ahead.pop(int(table[0, 0]), None) or made(table)
            if lanes.ready() and waiting:
                ahead[int(waiting[0][0, 0])] = made(waiting[0])
            lanes.drive(rounds, every)
        except TooLarge:
            ahead.clear()
            if table.size == 1:
                raise
            waiting[:0] = np.array_split(table, 2, axis=0 if len(table) > 1 else 1)
        else:
            yield table, lanes
