"""Many runs of several algorithms, numbers and seeds on one problem and network.

On an accelerator, runs that differ in numbers and seeds only become one program with an axis of
runs, because small problems leave the device idle otherwise. On a CPU the runs follow each other,
which is as fast there.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from ..core.sampling import Sampling
from ..core.validation import as_int
from ..hardware.device_memory import TooLarge
from ..interface.round_interface import Algorithm
from ..metrics.display import progress_display
from ..metrics.divergence_error import Diverged
from ..metrics.evaluations import Every, default_every
from ..metrics.measures import Measure, parse_measures
from ..network import Network
from ..problem import Problem
from ..records.run import Run
from .lanes import LaneDriver
from .simulate import check_arguments, simulate, warn_of_repeated_rows
from .single_device import SingleDevice

LANES = 288  # maximum number of parallel runs
NAME = "runs"  # label of all runs in the progress display


class Outcome(NamedTuple):
    """Result of one run."""

    history: dict[str, np.ndarray]  # as `Run.history`, up to divergence
    diverged: int | None  # round of divergence


def simulate_many(
    problem: Problem,
    network: Network,
    runs: Sequence[tuple[Algorithm, int]],
    rounds: int,
    every: Every | None = None,
    sampling: Sampling = "blocks",
    batched: bool | None = None,
    on_run: Callable[[int], None] | None = None,
    memory: int | None = None,
    progress: bool = True,
    measure: Measure | None = None,
    backends: dict[Any, SingleDevice] | None = None,
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
        check_arguments(problem, network, algorithm, rounds, every=every, sampling=sampling)
        as_int("seed", seed)
    every = default_every(rounds) if every is None else every

    known_backends = {} if backends is None else backends

    def simulate_alone(algorithm: Algorithm, seed: int) -> Outcome:
        key = id(problem), id(network), algorithm.batch, sampling, memory
        if key not in known_backends:
            known_backends[key] = SingleDevice(
                problem, network, algorithm.batch, sampling, memory=memory
            )
        with warnings.catch_warnings():  # trials may well have steps that are too small
            warnings.filterwarnings("ignore", "x stands still", RuntimeWarning)
            inputs = problem, network, algorithm, rounds, seed, every, sampling
            options = {"backend": known_backends[key], "measure": measure}
            run, diverged = _simulate_alone(*inputs, **options)
        return Outcome(run.history, diverged)

    with progress_display([NAME], rounds, progress) as display:
        display.begin(NAME, rounds)

        def report_count(completed: int) -> None:
            display.stage(NAME, f"{completed} of {len(runs)} made")
            if on_run and completed:
                on_run(completed)

        report_count(0)
        if not batched:
            for algorithm, seed in runs:
                outcomes.append(simulate_alone(algorithm, seed))
                report_count(len(outcomes))
            return outcomes
        by_index: dict[int, Outcome] = {}
        measures = parse_measures(measure, problem)
        make_lanes = partial(
            LaneDriver, problem, network, sampling=sampling, measures=measures, memory=memory
        )
        for table, lanes in _drive_lanes(runs, rounds, every, make_lanes):
            by_index |= zip(table.ravel().tolist(), map(Outcome, lanes.histories(), lanes.failed))
            by_index |= {i: simulate_alone(*runs[i]) for i in table.ravel()[lanes.rerun].tolist()}
            report_count(len(by_index))
        return [by_index[i] for i in range(len(runs))]


def simulate_seeds(
    seeds: Sequence[int],
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    every: Every | None = None,
    sampling: Sampling = "blocks",
    measure: Measure | None = None,
) -> list[Run | None]:
    """Return the run of each seed, all made by one program; None for a run that diverged.

    Each run equals that of `simulate` up to rounding; `seconds` is its share of the total time.
    """
    check_arguments(problem, network, algorithm, rounds, every=every, sampling=sampling)
    every = default_every(rounds) if every is None else every
    warn_of_repeated_rows(problem, algorithm.batch)
    runs = [(algorithm, as_int("seed", seed)) for seed in seeds]
    runs_by_index: dict[int, Run | None] = {}
    measures = parse_measures(measure, problem)
    make_lanes = partial(
        LaneDriver, problem, network, sampling=sampling, measures=measures, stores_best=True
    )
    for table, lanes in _drive_lanes(runs, rounds, every, make_lanes):
        lanes.warn_of_standstill()
        runs_by_index |= zip(table.ravel().tolist(), lanes.runs())
        for i in table.ravel()[lanes.rerun].tolist():
            run_inputs = problem, network, algorithm, rounds, seeds[i], every, sampling
            run, diverged = _simulate_alone(*run_inputs, measure=measure)
            runs_by_index[i] = run if diverged is None else None
    return [runs_by_index[i] for i in range(len(runs))]


def _simulate_alone(*arguments: Any, **options: Any) -> tuple[Run, int | None]:
    """Make one run alone; return the round in which it diverged too, or None."""
    try:
        return simulate(*arguments, on_divergence="stop", progress=False, **options), None
    except Diverged as error:
        return error.run, error.round


def _lane_tables(seeds: list[int]) -> list[np.ndarray]:
    """Arrange the runs in tables of at most LANES: a row has runs of one seed.

    Each mini-batch is then fetched once per row, and the products of the row's runs with it become
    one. Rows that are too short repeat their last run.
    """
    runs_of_seed: dict[int, list[int]] = {}
    for i, seed in enumerate(seeds):
        runs_of_seed.setdefault(seed, []).append(i)
    width = min(LANES, max(map(len, runs_of_seed.values()), default=1))
    rows = [
        indices[k : k + width]
        for indices in runs_of_seed.values()
        for k in range(0, len(indices), width)
    ]
    padded = np.array([row + [row[-1]] * (width - len(row)) for row in rows], int).reshape(
        -1, width
    )
    rows_per_table = max(1, LANES // width)
    return [padded[k : k + rows_per_table] for k in range(0, len(padded), rows_per_table)]


def _drive_lanes(
    runs: Sequence[tuple[Algorithm, int]],
    rounds: int,
    every: Every,
    make_lanes: Callable[..., LaneDriver],
) -> Iterator[tuple[np.ndarray, LaneDriver]]:
    """Make the tables of runs in turn; a table that does not fit the device is halved.

    While one table runs, the next is compiled, if the device has room for both. `make_lanes` makes
    the driver of the runs of a table, given its shape.
    """
    runs_of_structure: dict[Any, list[int]] = {}
    for i, (algorithm, _) in enumerate(runs):
        runs_of_structure.setdefault(jax.tree.structure(algorithm), []).append(i)
    waiting = [
        np.array(indices)[table]
        for indices in runs_of_structure.values()
        for table in _lane_tables([runs[i][1] for i in indices])
    ]
    compiled_ahead: dict[int, LaneDriver] = {}  # driver of the next table, by its first run
    make_driver = lambda table: make_lanes([runs[i] for i in table.ravel()], table.shape)
    while waiting:
        table = waiting.pop(0)
        try:
            lanes = compiled_ahead.pop(int(table[0, 0]), None) or make_driver(table)
            if lanes.wait_for_compiler() and waiting:
                compiled_ahead[int(waiting[0][0, 0])] = make_driver(waiting[0])
            lanes.drive(rounds, every)
        except TooLarge:
            compiled_ahead.clear()
            if table.size == 1:
                raise
            waiting[:0] = np.array_split(table, 2, axis=0 if len(table) > 1 else 1)
        else:
            yield table, lanes
