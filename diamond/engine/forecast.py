"""Forecast of the time, memory and traffic of a run from its first rounds."""

import time
import warnings
from typing import NamedTuple

import numpy as np

from ..core import cost_counter
from ..core.sampling import Sampling
from ..interface.round_interface import Algorithm
from ..metrics.measures import Measure, parse_measures
from ..network import Network
from ..problem import Problem
from ..schedules.deferred import ResolutionContext, agreed_bytes, reestimation_rounds, talked
from .driver import SingleDriver
from .multi_device import Devices, select_backend
from .precision import Precision, product_precision
from .simulate import check_arguments

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
    measure: Measure = "exact",
) -> Forecast:
    """Compile the run, make a few rounds and one evaluation, and extrapolate.

    A run that does not fit its devices, or `memory` bytes of each, is rejected as by `simulate`.
    """
    check_arguments(problem, network, algorithm, rounds, every, sampling)
    with product_precision(precision), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will give these warnings
        place = select_backend(
            problem, network, algorithm.batch, sampling, devices, precision, memory
        )
        measures = parse_measures(measure, problem)
        started = time.perf_counter()
        run = SingleDriver(problem, network, algorithm, seed, sampling, place, measures)
        tried = _try(run, rounds, time.perf_counter() - started)
    resolved, setting = run.policy.resolved, run.policy.setting
    evaluations = 1 + -(-rounds // every)
    seen = _renewals(setting, rounds)
    sent = resolved.bytes + seen.bytes
    running = tried.round * rounds
    on_links = run.recorder.links.of(rounds, resolved.rounds + seen.talks, sent, running)
    needs = [need for need in (place.rounds.need, run.survey.program.need) if need is not None]
    return Forecast(
        compile_seconds=tried.compiling,
        seconds=running + tried.evaluation * evaluations,
        rounds_per_second=1 / tried.round if tried.round else float("inf"),
        memory=max(needs, default=None),
        samples=float(np.mean(resolved.cost.samples)) + seen.samples + tried.samples * rounds,
        bytes=sent + network.count_messages(rounds) * run.recorder.inputs.traffic.bytes,
        **on_links,
    )


class _Tried(NamedTuple):
    compiling: float  # seconds
    round: float  # seconds per round
    evaluation: float  # seconds per evaluation
    samples: float  # per agent and round


def _try(run: SingleDriver, rounds: int, compiling: float) -> _Tried:
    """Run a few rounds from the start, and two evaluations at their end."""
    start = run.progress
    count, took = 0, 0.0
    while took < ENOUGH and count < rounds:
        count = min(max(1, 2 * count), rounds)
        run.progress, before = start, run.seconds
        run.progress, _ = run.run_rounds(count)
        took = run.seconds - before
    first, second = (_timed_evaluation(run) for _ in range(2))
    drawn = float(cost_counter.total(run.backend.whole(run.progress.spent)).mean(0)[0])
    each = max(count, 1)
    return _Tried(compiling + first - second, took / each, second, drawn / each)


class _Renewals(NamedTuple):
    samples: float  # mean over the agents
    bytes: int
    talks: int  # number of exchanges


def _renewals(setting: ResolutionContext, rounds: int) -> _Renewals:
    """Return what later estimates of open numbers will cost an agent, and send over the network."""
    assert setting.network is not None
    times = len(reestimation_rounds(rounds))
    anew = {name: found for name, found in setting.memory.items() if not found.lasting}
    links = setting.network.count_messages(setting.network.diameter)
    drawn = sum(float(np.mean(found.cost.samples)) for found in anew.values())
    talks = times * setting.network.diameter * talked(anew).talks
    return _Renewals(times * drawn, times * links * agreed_bytes(anew), talks)


def _timed_evaluation(run: SingleDriver) -> float:
    begun = time.perf_counter()
    run.measure()
    return time.perf_counter() - begun
