"""What to expect of a problem on a network, and which algorithm to take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

from . import theory
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
    algorithms: Sequence[str] = ALGORITHMS,
) -> Advice:
    """Estimate the problem's constants, run a short pilot of each algorithm, and compare.

    The cost of reaching an average metric `target` (by default a tenth of the best pilot's) is
    extrapolated from the pilot at the rate that is guaranteed: T^(-2/3) with momentum, T^(-1/2)
    without. A forecast for choosing, not a promise.
    """
    batch, pilot, seed = whole("batch", batch, 1), whole("pilot", pilot, 1), whole("seed", seed)
    runs = {name: _pilot(name, problem, network, batch, pilot, seed) for name in algorithms}
    reached = {name: _average(run) for name, run in runs.items()}
    lowest = min(reached.values())
    if not math.isfinite(lowest):
        raise ValueError(
            f"every pilot of {pilot} rounds diverged with the steps found for it; is the lower "
            f"level strongly convex in y, and are the losses smooth?"
        )
    aim = lowest / 10 if target is None else target
    return Advice(
        theory.estimate(problem, network, batch, seed),
        network.diameter,
        network.rounds_to_mix(),
        aim,
        [_prospect(name, run, reached[name], aim) for name, run in runs.items()],
    )


def _pilot(
    name: str, problem: Problem, network: Network, batch: int, rounds: int, seed: int
) -> Run | None:
    algorithm = getattr(import_module(f".algorithms.{name}", __package__), name)(batch=batch)
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
    rounds = run.rounds * max(average / target, 1.0) ** (1 / EXPONENTS.get(name, 1.0))
    first, last = ({k: run.history[k][i] for k in ("samples", "bytes")} for i in (0, -1))
    cost = lambda k: first[k] + (last[k] - first[k]) / run.rounds * rounds
    return Prospect(name, run.resolved, average, rounds, cost("samples"), cost("bytes"))
