"""Many runs, of several algorithms, numbers and seeds, on one problem and network.

On an accelerator those that differ in numbers and seeds only are one program, the runs being an
axis of their own: small problems leave it idle otherwise. On a CPU they run one after another,
which is as fast there.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..core.sampling import Sampling
from ..core.whole_numbers import whole
from ..machine.memory import TooLarge
from ..metrics.display import displayed
from ..metrics.divergence import Diverged
from ..metrics.evaluations import Every
from ..metrics.measures import Measure, parse_measures
from ..network import Network
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from ..runs.run import Run
from .lanes import LaneDriver
from .one_device import OneDevice
from .simulate import check, simulate, warn_of_repeated_rows

LANES = 288  # runs side by side, at most
NAME = "runs"  # in the display, all together


class Outcome(NamedTuple):
    """What became of one run."""

    history: dict[str, np.ndarray]  # until it diverged, if it did; as `Run.history`
    diverged: int | None  # the round in which it did


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
    """The outcome of each (algorithm, seed), in order: that of `simulate`, to rounding.

    Args:
        problem, network, rounds, every, sampling, measure: as in `simulate`.
        runs: pairs of an algorithm and a seed.
        batched: run all that differ in their numbers only as one program; by default on an
            accelerator. There, `seconds` is a run's share of the time of all. All lanes are in the
            same round, so that a run whose loss rises, and which rolls back, is made again alone.
        on_run: called with the number of runs that are done.
        memory: bytes of the device; fewer runs go together where all do not fit.
        progress: show the number of runs that are done, on a terminal or in a notebook.
        backends: compiled programs of earlier calls, to which those of this call are added.
    """
    if batched is None:
        batched = jax.default_backend() != "cpu"
    outcomes: list[Outcome] = []
    for algorithm, seed in runs:
        check(problem, network, algorithm, rounds, every, sampling)
        whole("seed", seed)

    known = {} if backends is None else backends

    def alone(algorithm: Algorithm, seed: int) -> Outcome:
        given = problem, network, algorithm, rounds, seed, every, sampling
        kind = id(problem), id(network), algorithm.batch, sampling, memory
        if kind not in known:
            known[kind] = OneDevice(problem, network, algorithm.batch, sampling, memory=memory)
        with warnings.catch_warnings():  # of trials, steps that are too small are some
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
    """The run of each seed, all as one program; None for one that diverged.

    That of `simulate`, to rounding; `seconds` is its share of the time of all.
    """
    check(problem, network, algorithm, rounds, every, sampling)
    warn_of_repeated_rows(problem, algorithm.batch)
    runs = [(algorithm, whole("seed", seed)) for seed in seeds]
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
    """A run by itself, and the round in which it diverged, if it did."""
    try:
        return simulate(*given, on_divergence="stop", progress=False, **options), None
    except Diverged as error:
        return error.run, error.round


def _tables(seeds: list[int]) -> list[np.ndarray]:
    """The runs as tables of at most LANES: a row has runs of one seed, which draw the same rows.

    What is drawn is fetched once a row, and the products of a row's runs with it become one. Rows
    that are too short repeat their last run.
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
    """The runs as tables, each made side by side; one that does not fit the device is halved.

    While one runs, the next is compiled, if the device has room for both.
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
    ahead: dict[int, LaneDriver] = {}  # that of the next table, by its first run

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
