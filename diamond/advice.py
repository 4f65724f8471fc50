"""What to expect of a problem on a network, and which algorithm to take."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

from . import theory
from .algorithm import Algorithm
from .divergence import Diverged
from .network import Network
from .problem import Problem
from .run import Run
from .runtimes.simulate import simulate
from .whole import whole

PILOT = 100  # rounds from which costs are extrapolated
# -d log(average metric) / d log T: the guarantees for momentum, plain sampling and full gradients
EXPONENTS = {"diamond": 2 / 3, "m_sgd": 2 / 3, "k_free": 2 / 3, "gt_sgd": 1 / 2, "dsgd": 1 / 2}
ALGORITHMS = tuple(EXPONENTS)
RATES = EXPONENTS | {"interact": 1.0, "svr_interact": 1.0}
OWN = 1 / 2  # that of a method which is none of these
UNTRACKED = ("m_sgd", "dsgd")
ALIKE = 0.1  # heterogeneity below which agents need no tracking


class Prospect(NamedTuple):
    """One algorithm with steps that choose themselves: its pilot, and what a target would take."""

    algorithm: str
    numbers: dict[str, float]  # alpha, beta, K, ... as found
    metric: float  # average over the pilot
    rounds: float  # to the target; infinite if the pilot diverged
    samples: float  # of an agent
    bytes: float  # over the whole network


@dataclass(frozen=True)
class Advice:
    """Constants of the problem, prospects of each algorithm, and the one to prefer."""

    constants: theory.Constants
    diameter: int
    rounds_to_mix: int
    target: float
    prospects: list[Prospect]

    @property
    def best(self) -> Prospect:
        """The one that needs the fewest samples; untracked ones only where agents are alike."""
        alike = self.constants.heterogeneity < ALIKE
        fit = [p for p in self.prospects if alike or p.algorithm not in UNTRACKED]
        return min(fit or self.prospects, key=lambda p: p.samples)

    @property
    def why(self) -> str:
        """The reason, in words."""
        c, best = self.constants, self.best.algorithm
        said = [f"{best} needs the fewest samples to an average metric of {self.target:.2g}"]
        if c.heterogeneity >= ALIKE:
            said.append(
                f"agents differ (heterogeneity {c.heterogeneity:.2g}), so untracked methods "
                f"({', '.join(UNTRACKED)}) would stop short and were left out"
            )
        if best == "k_free":
            said.append("it draws three mini-batches a round and needs no chain")
        elif c.condition > 10:
            said.append(
                f"the lower level's condition {c.condition:.0f} makes k_free take small steps"
            )
        return "; ".join(said)


def advise(
    problem: Problem,
    network: Network,
    batch: int = 64,
    target: float | None = None,
    seed: int = 0,
    pilot: int = PILOT,
    algorithms: Sequence[str] | Mapping[str, Algorithm] = ALGORITHMS,
) -> Advice:
    """Estimate the problem's constants, run a short pilot of each algorithm, and compare.

    Noise is measured where the best pilot ended: at the start, there may be none yet.
    `algorithms` by name, with `batch` and steps that choose themselves, or {"mine": algorithm}. The
    cost of reaching an average metric `target` (by default a tenth of the best pilot's) is
    extrapolated from the pilot at the rate that is guaranteed: T^(-2/3) with momentum, T^(-1/2)
    without, which is also taken for a method of your own. A forecast for choosing, not a promise.
    """
    batch, pilot, seed = whole("batch", batch, 1), whole("pilot", pilot, 1), whole("seed", seed)
    named = algorithms if isinstance(algorithms, Mapping) else by_name(algorithms, batch)
    runs = {label: _pilot(one, problem, network, pilot, seed) for label, one in named.items()}
    reached = {name: _average(run) for name, run in runs.items()}
    lowest = min(reached.values())
    if not math.isfinite(lowest):
        raise ValueError(
            f"every pilot of {pilot} rounds diverged with the steps found for it; is the lower "
            f"level strongly convex in y, and are the losses smooth?"
        )
    aim = lowest / 10 if target is None else target
    ahead = runs[min(reached, key=lambda name: reached[name])]
    assert ahead is not None
    return Advice(
        theory.estimate(problem, network, batch, seed, at=(ahead.x, ahead.y)),
        network.diameter,
        network.rounds_to_mix(),
        aim,
        [_prospect(name, run, reached[name], aim) for name, run in runs.items()],
    )


def by_name(names: Sequence[str], batch: int) -> dict[str, Algorithm]:
    """Algorithms of the package, with steps that choose themselves."""
    module = lambda name: import_module(f".algorithms.{name}", __package__)
    return {name: getattr(module(name), name)(batch=batch) for name in names}


def _pilot(
    algorithm: Algorithm, problem: Problem, network: Network, rounds: int, seed: int
) -> Run | None:
    try:
        return simulate(problem, network, algorithm, rounds, seed, max(1, rounds // 10))
    except Diverged:
        return None


def _average(run: Run | None) -> float:
    if run is None:
        return math.inf
    return float(theory.averages(run.history["round"], run.history["metric"])[-1])


def _prospect(name: str, run: Run | None, average: float, target: float) -> Prospect:
    if run is None:
        return Prospect(name, {}, math.inf, math.inf, math.inf, math.inf)
    rounds = run.rounds * max(average / target, 1.0) ** (1 / RATES.get(name, OWN))
    first, last = ({k: run.history[k][i] for k in ("samples", "bytes")} for i in (0, -1))
    cost = lambda k: first[k] + (last[k] - first[k]) / run.rounds * rounds
    return Prospect(name, run.resolved, average, rounds, cost("samples"), cost("bytes"))
