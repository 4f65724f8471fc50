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
from ..metrics.evaluations import Every, marks
from ..network import Network
from ..numbers.open_numbers import refreshes
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from ..runs.run import Run
from .lanes import BatchedRuns
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
) -> list[Outcome]:
    """The outcome of each (algorithm, seed), in order: that of `simulate`, to rounding.

    `batched` as one program for all that differ in their numbers only: by default on an
    accelerator, unless some find K for themselves. There, `seconds` is a run's share of the time
    of all; fewer runs go together where all do not fit the device, or `memory` bytes of it. Lanes
    have one clock, so that a run whose objective rises, and which goes back, is made again alone.
    `on_run` is told how many runs are done. `progress` shows that on the error output if that is a
    terminal or a notebook.
    """
    if batched is None:
        batched = jax.default_backend() != "cpu"
    outcomes: list[Outcome] = []
    for algorithm, seed in runs:
        check(problem, network, algorithm, rounds, every, sampling)
        whole("seed", seed)

    def alone(algorithm: Algorithm, seed: int) -> Outcome:
        given = problem, network, algorithm, rounds, seed, every, sampling
        with warnings.catch_warnings():  # of trials, steps that are too small are some
            warnings.filterwarnings("ignore", "x stands still", RuntimeWarning)
            run, diverged = _alone(*given, memory=memory)
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
        for table, lanes in _all(problem, network, runs, rounds, every, sampling, memory):
            made |= zip(table.ravel().tolist(), _outcomes(lanes))
            made |= {i: alone(*runs[i]) for i in table.ravel()[lanes.risen].tolist()}
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
) -> list[Run | None]:
    """The run of each seed, all as one program; None for one that diverged.

    That of `simulate`, to rounding; `seconds` is its share of the time of all.
    """
    check(problem, network, algorithm, rounds, every, sampling)
    warn_of_repeated_rows(problem, algorithm.batch)
    runs = [(algorithm, whole("seed", seed)) for seed in seeds]
    made: dict[int, Run | None] = {}
    for table, lanes in _all(problem, network, runs, rounds, every, sampling):
        lanes.warn_of_standstill()
        made |= zip(table.ravel().tolist(), lanes.runs())
        for i in table.ravel()[lanes.risen].tolist():  # as `many` has it
            given = problem, network, algorithm, rounds, seeds[i], every, sampling
            run, diverged = _alone(*given)
            made[i] = run if diverged is None else None
    return [made[i] for i in range(len(runs))]


def _alone(*given: Any, memory: int | None = None) -> tuple[Run, int | None]:
    """A run by itself, until it diverges if it does: then in which round."""
    try:
        return simulate(*given, on_divergence="stop", memory=memory), None
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
    memory: int | None = None,
) -> Iterator[tuple[np.ndarray, BatchedRuns]]:
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
    ahead: dict[int, BatchedRuns] = {}  # that of the next table, by its first run

    def made(table: np.ndarray) -> BatchedRuns:
        given = [runs[i] for i in table.ravel()]
        return BatchedRuns(problem, network, given, table.shape, sampling, memory)

    while waiting:
        table = waiting.pop(0)
        try:
            lanes = ahead.pop(int(table[0, 0]), None) or made(table)
            if lanes.ready() and waiting:
                ahead[int(waiting[0][0, 0])] = made(waiting[0])
            _go(lanes, rounds, every)
        except TooLarge:
            ahead.clear()
            if table.size == 1:
                raise
            waiting[:0] = np.array_split(table, 2, axis=0 if len(table) > 1 else 1)
        else:
            yield table, lanes


def _go(lanes: BatchedRuns, rounds: int, every: Every) -> None:
    """All rounds of the runs of a table, measured on the way."""
    measured = marks(every, rounds)
    renewals = set(refreshes(rounds)) if lanes.changes else set()
    for until in sorted(measured | renewals):
        lanes.advance(until)
        if until in renewals:
            lanes.renew()
        if until in measured:
            lanes.measure(last=until == rounds)


def _outcomes(lanes: BatchedRuns) -> list[Outcome]:
    failed = np.asarray(lanes.failed).tolist()
    found = zip(lanes.histories(), failed)
    return [Outcome(history, round if round >= 0 else None) for history, round in found]
