"""Forecast of the time, memory and traffic of a run from its first rounds."""

import math
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..core import cost_counter
from ..core.sampling import Sampling
from ..hardware.compiler import optimized_compilation
from ..interface.round_interface import Algorithm
from ..metrics.evaluations import Every, default_every, evaluation_rounds
from ..metrics.measures import Measure, parse_measures
from ..network import Network
from ..problem import Problem
from ..schedules.deferred import reestimation_rounds
from .backend_selection import select_backend
from .multi_device import Devices
from .precision import Precision, product_precision
from .simulate import check_arguments
from .single_driver import SingleDriver

ENOUGH = 0.2  # seconds of consecutive rounds that suffice for a forecast
LONG = 2.0  # seconds from which the first evaluation stands for later ones


class Forecast(NamedTuple):
    """Time, memory, samples and traffic of a whole run."""

    compile_seconds: float  # already spent: the run takes the programs from the cache
    seconds: float  # of rounds, evaluations and later estimates of step sizes
    rounds_per_second: float  # rounds / seconds
    memory: int | None  # bytes per device as reported by XLA; None if not reported
    samples: float  # rows drawn per agent
    bytes: int  # over all edges, in both directions
    network_seconds: float | None = None  # on the links of the network, if it has links
    joules: float | None = None


def forecast(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    seed: int = 0,
    every: Every | None = None,
    sampling: Sampling = "blocks",
    devices: Devices | None = None,
    precision: Precision | None = None,
    memory: int | None = None,
    measure: Measure | None = None,
) -> Forecast:
    """Compile the programs of the run, time a few rounds and an evaluation, and extrapolate.

    A run that does not fit its devices, or `memory` bytes of each, is rejected as by `simulate`.
    """
    check_arguments(problem, network, algorithm, rounds, every=every, sampling=sampling)
    every = default_every(rounds) if every is None else every
    with (
        product_precision(precision),
        optimized_compilation(problem.is_large),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # the run itself will give these warnings
        inputs = problem, network, algorithm.batch, sampling
        backend = select_backend(*inputs, devices=devices, precision=precision, memory=memory)
        measures = parse_measures(measure, problem)
        started = time.perf_counter()
        run = SingleDriver(problem, network, algorithm, seed, sampling, backend, measures)
        run.measurement.wait_for_compiler(run.progress)
        compiling = time.perf_counter() - started
        first = run.policy.resolved
        cost = _time_rounds(run, rounds)
        evaluation = _time_calls(lambda: _evaluate(run, rounds), LONG)
        repeats, estimation = 0, _Timing(0.0, 0.0, 1)
        if run.policy.context.needs_reestimation and rounds:
            repeats = len(reestimation_rounds(rounds))
            estimation = _time_calls(run.reestimate)
    last = run.policy.resolved
    setup_bytes = first.bytes + repeats * (last.bytes - first.bytes) // estimation.calls
    setup_exchanges = first.rounds + repeats * (last.rounds - first.rounds) // estimation.calls
    running = cost.seconds * rounds
    seconds = running + evaluation.seconds * len(evaluation_rounds(every, rounds))
    seconds += estimation.seconds * repeats
    needs = [backend.rounds.memory_need, run.measurement.program.memory_need]
    estimation_samples = float(np.mean(last.cost.samples)) if repeats else 0.0
    return Forecast(
        compile_seconds=compiling + evaluation.first_extra + estimation.first_extra,
        seconds=seconds,
        rounds_per_second=rounds / seconds,
        memory=max(filter(None, needs), default=None),
        samples=float(np.mean(first.cost.samples))
        + repeats * estimation_samples
        + cost.samples * rounds,
        bytes=setup_bytes + run.recorder.inputs.traffic.count_bytes(network, rounds),
        **run.recorder.links.costs(rounds, setup_exchanges, setup_bytes, running),
    )


class _Timing(NamedTuple):
    seconds: float  # of one call
    first_extra: float  # seconds that the first call took longer
    calls: int


def _time_calls(work: Callable[[], object], enough: float = math.inf) -> _Timing:
    """Time the second call of `work`, or the first one if it takes `enough` seconds."""
    seconds: list[float] = []
    while len(seconds) < 2 and sum(seconds) < enough:
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return _Timing(seconds[-1], max(0.0, seconds[0] - seconds[-1]), len(seconds))


def _evaluate(run: SingleDriver, rounds: int) -> None:
    """Measure the run and copy its state, as at every evaluation."""
    run.evaluate(None, rounds)
    run.snapshot()


class _RoundCost(NamedTuple):
    seconds: float  # per round
    samples: float  # per agent and round


def _time_rounds(run: SingleDriver, rounds: int) -> _RoundCost:
    """Time chunks of 1, 1, 2, 4, ... rounds; the last one counts, the first one is not warm."""
    samples_before = _samples_drawn(run)
    chunks: list[float] = []  # seconds per round
    count, elapsed = 1, 0.0
    while run.t < rounds and (len(chunks) < 2 or elapsed < ENOUGH):
        count = min(count, rounds - run.t)
        before = run.t, run.seconds
        run.progress, (failed,) = run.run_rounds(run.t + count)
        if run.t == before[0] and failed is None:  # the method has ended
            break
        elapsed = run.seconds - before[1]
        chunks.append(elapsed / max(run.t - before[0], 1))
        if failed is not None:
            break
        count = run.t
    return _RoundCost(
        chunks[-1] if chunks else 0.0, (_samples_drawn(run) - samples_before) / max(run.t, 1)
    )


def _samples_drawn(run: SingleDriver) -> float:
    """Return the rows that an agent has drawn, on average."""
    return float(cost_counter.total(run.backend.gather(run.progress.spent)).mean(0)[0])
