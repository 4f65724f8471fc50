"""Forecast of the time, memory and traffic of a run from its first rounds."""

import time
import warnings
from typing import NamedTuple

import numpy as np

from ..core import cost_counter
from ..core.sampling import Sampling
from ..hardware.compiler import optimized_compilation
from ..interface.round_interface import Algorithm
from ..metrics.measures import Measure, parse_measures
from ..network import Network
from ..problem import Problem
from ..schedules.deferred import (
    ResolutionContext,
    agreed_bytes,
    count_exchanges,
    reestimation_rounds,
)
from .backend_selection import select_backend
from .multi_device import Devices
from .precision import Precision, product_precision
from .simulate import check_arguments
from .single_driver import SingleDriver

ENOUGH = 0.1  # seconds of rounds that suffice for a forecast


class Forecast(NamedTuple):
    """Time, memory, samples and traffic of a whole run."""

    compile_seconds: float  # already spent: the run reuses the compiled programs
    seconds: float  # of rounds and evaluations
    rounds_per_second: float
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
    every: int = 100,
    sampling: Sampling = "blocks",
    devices: Devices | None = None,
    precision: Precision | None = None,
    memory: int | None = None,
    measure: Measure | None = None,
) -> Forecast:
    """Compile the run, make a few rounds and one evaluation, and extrapolate.

    A run that does not fit its devices, or `memory` bytes of each, is rejected as by `simulate`.
    """
    check_arguments(problem, network, algorithm, rounds, every, sampling)
    with (
        product_precision(precision),
        optimized_compilation(problem.is_large),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # the run itself will give these warnings
        backend = select_backend(
            problem, network, algorithm.batch, sampling, devices, precision, memory
        )
        measures = parse_measures(measure, problem)
        started = time.perf_counter()
        run = SingleDriver(problem, network, algorithm, seed, sampling, backend, measures)
        timings = _time_rounds(run, rounds, time.perf_counter() - started)
    resolved, context = run.policy.resolved, run.policy.context
    evaluations = 1 + -(-rounds // every)
    reestimation = _reestimation_cost(context, rounds)
    sent = resolved.bytes + reestimation.bytes
    running = timings.round * rounds
    on_links = run.recorder.links.costs(
        rounds, resolved.rounds + reestimation.exchanges, sent, running
    )
    needs = [
        memory_need
        for memory_need in (backend.rounds.memory_need, run.measurement.program.memory_need)
        if memory_need is not None
    ]
    return Forecast(
        compile_seconds=timings.compiling,
        seconds=running + timings.evaluation * evaluations,
        rounds_per_second=1 / timings.round if timings.round else float("inf"),
        memory=max(needs, default=None),
        samples=float(np.mean(resolved.cost.samples))
        + reestimation.samples
        + timings.samples * rounds,
        bytes=sent + network.count_messages(rounds) * run.recorder.inputs.traffic.bytes,
        **on_links,
    )


class _Timings(NamedTuple):
    compiling: float  # seconds
    round: float  # seconds per round
    evaluation: float  # seconds per evaluation
    samples: float  # per agent and round


def _time_rounds(run: SingleDriver, rounds: int, compiling: float) -> _Timings:
    """Run a few rounds from the start, and two evaluations at their end."""
    start = run.progress
    count, elapsed = 0, 0.0
    while elapsed < ENOUGH and count < rounds:
        count = min(max(1, 2 * count), rounds)
        run.progress, before = run.progress if run.backend.donates else start, run.seconds
        run.progress, _ = run.run_rounds(run.t + count)
        elapsed = run.seconds - before
    first, second = (_timed_evaluation(run) for _ in range(2))
    samples_drawn = float(cost_counter.total(run.backend.gather(run.progress.spent)).mean(0)[0])
    rounds_timed, rounds_made = max(count, 1), max(run.t, 1)
    return _Timings(
        compiling + first - second, elapsed / rounds_timed, second, samples_drawn / rounds_made
    )


class _ReestimationCost(NamedTuple):
    samples: float  # mean over the agents
    bytes: int
    exchanges: int  # number of exchanges


def _reestimation_cost(context: ResolutionContext, rounds: int) -> _ReestimationCost:
    """Return what later estimates of open numbers will cost an agent, and send over the network."""
    assert context.network is not None
    repeats = len(reestimation_rounds(rounds, context.memory))
    renewed = {name: estimate for name, estimate in context.memory.items() if not estimate.lasting}
    links = context.network.count_messages(context.network.diameter)
    samples_drawn = sum(float(np.mean(estimate.cost.samples)) for estimate in renewed.values())
    exchanges = repeats * context.network.diameter * count_exchanges(renewed).talks
    return _ReestimationCost(
        repeats * samples_drawn, repeats * links * agreed_bytes(renewed), exchanges
    )


def _timed_evaluation(run: SingleDriver) -> float:
    begun = time.perf_counter()
    run.measure()
    return time.perf_counter() - begun
