"""What a run will take, from its first few rounds."""

import sys
import time
import warnings
from typing import NamedTuple

import jax
import numpy as np

from .. import cost
from ..algorithm import Algorithm
from ..deferred import Setting, refreshes, resolve, spoken
from ..network import Network
from ..problem import Problem
from ..record import Record
from ..sampling import Sampling, key
from ._round import Progress, start
from .simulate import check
from .spmd import Devices, placed

ENOUGH = 0.1  # seconds of rounds from which to judge


class Forecast(NamedTuple):
    """Time, memory, samples and traffic of a whole run."""

    compile_seconds: float  # spent already: the run finds its programs compiled
    seconds: float  # of rounds and evaluations
    rounds_per_second: float
    memory: int | None  # bytes, the most in use until now; None where it cannot be told
    samples: float  # rows drawn by an agent
    bytes: int  # over all edges, both ways


def forecast(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    seed: int = 0,
    every: int = 100,
    sampling: Sampling = "blocks",
    devices: Devices | None = None,
) -> Forecast:
    """Compiles the run, makes a few of its rounds and one evaluation, and extrapolates."""
    check(problem, network, algorithm, rounds, every, sampling)
    setting = Setting(problem, network, algorithm.batch, seed)
    resolved = resolve(algorithm, setting)
    algorithm = resolved.algorithm
    place = placed(problem, network, algorithm.batch, sampling, devices)
    begin = place.place(start(algorithm, *problem.start(seed), problem.agents))

    def timed(until: int) -> tuple[Progress, float]:
        begun = time.perf_counter()
        after, _ = place.advance(algorithm, key(seed), begin, until)
        return after, time.perf_counter() - begun

    _, compiling = timed(0)
    made, tried = begin, 0
    took = 0.0
    while took < ENOUGH and tried < rounds:
        tried = min(max(1, 2 * tried), rounds)
        made, took = timed(tried)
    record = Record(problem, network, algorithm, place, seed, sampling, resolved, 0.0)
    measuring = [_timed_look(record, made) for _ in range(2)]
    drawn = cost.total(place.whole(made.spent)).mean(0)[0] / max(tried, 1)
    pace = took / max(tried, 1)
    evaluations = 1 + -(-rounds // every)
    seen = _renewals(setting, rounds)
    return Forecast(
        compile_seconds=compiling + measuring[0] - measuring[1],
        seconds=pace * rounds + measuring[1] * evaluations,
        rounds_per_second=1 / pace if pace else float("inf"),
        memory=peak_memory(),
        samples=float(np.mean(resolved.cost.samples)) + seen.samples + float(drawn) * rounds,
        bytes=resolved.bytes + seen.bytes + 2 * len(network.edges) * record.message * rounds,
    )


class _Renewals(NamedTuple):
    samples: float  # mean over the agents
    bytes: int


def _renewals(setting: Setting, rounds: int) -> _Renewals:
    """What finding numbers anew on the way will cost an agent, and send over the network."""
    assert setting.network is not None
    times = len(refreshes(rounds))
    anew = {name: found for name, found in setting.memory.items() if not found.lasting}
    links = 2 * len(setting.network.edges) * setting.network.diameter
    drawn = sum(float(np.mean(found.cost.samples)) for found in anew.values())
    return _Renewals(times * drawn, times * links * spoken(anew))


def _timed_look(record: Record, progress: object) -> float:
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will say it
        record.add(progress, 0.0)
    return time.perf_counter() - begun


def peak_memory() -> int | None:
    """The most memory in use until now: the device's, or this process's where that is the CPU."""
    stats = jax.devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
