"""What to expect of a problem on a network, and which algorithm to take."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import NamedTuple

import numpy as np

from .. import theory
from ..catalogue import maker, names, row, solving
from ..core.whole_numbers import whole
from ..engine.simulate import simulate
from ..metrics.divergence import Diverged
from ..network import Network
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from ..runs.run import Run
from . import standings
from .topologies import topologies

LEARNED = "alpha", "beta", "curvature"
PILOT = 100  # rounds from which costs are extrapolated
# -d log(metric) / d log T, as guaranteed on average: for momentum, plain sampling, full gradients
RATES = dict.fromkeys(("diamond", "m_sgd", "k_free", "diamond_common", "gt_storm"), 2 / 3)
RATES |= dict.fromkeys(("interact", "svr_interact", "sldbo", "gt_sarah"), 1.0)
OWN = 1 / 2  # that of a method which is none of these
PILOTS = 5  # so many of the first methods in the benchmark are tried
ALONE = ("gt_storm", "gt_sgd", "exact_diffusion", "dsgd")  # where there is no lower level
UNTRACKED = ("gossip", "push")  # moves of x that do not end in the right place if agents differ
ALIKE = 0.1  # heterogeneity below which agents need no tracking


class Prospect(NamedTuple):
    """One algorithm with learned steps: its pilot, and what a target would take."""

    algorithm: str
    numbers: dict[str, float]  # alpha, beta and the curvature of g_yy at the end of the pilot
    metric: float  # at the end of the pilot: the mean over its last fifth
    rounds: float  # until the metric is at the target; infinite if the pilot diverged
    samples: float  # of an agent
    bytes: float  # over the whole network
    network_seconds: float | None = None  # on its links, if it has any


class Topology(NamedTuple):
    """The preferred algorithm on other edges between the same agents."""

    name: str
    edges: int
    lam: float
    rounds: float  # to the target
    network_seconds: float


@dataclass(frozen=True)
class Advice:
    """Constants of the problem, prospects of each algorithm, and the one to prefer."""

    constants: theory.Constants | None  # None where there is no lower level
    diameter: int
    rounds_to_mix: int
    target: float
    prospects: list[Prospect]
    topologies: list[Topology] = field(default_factory=list)  # the first is the network itself
    suite: str = ""  # of the benchmark, with cases of this kind

    @property
    def best(self) -> Prospect:
        """The one of least cost; untracked ones only where agents are alike.

        The cost is in seconds on the links of the network, in samples where it has none.
        """
        alike = self.constants is not None and self.constants.heterogeneity < ALIKE
        return _best(self.prospects, alike)

    @property
    def why(self) -> str:
        """The reason, in words."""
        return "; ".join([*self._reasons(), *self._elsewhere()])

    def _elsewhere(self) -> list[str]:
        """Whether other edges between the same agents would be faster."""
        if len(self.topologies) < 2:
            return []
        here, first, *_ = self.topologies
        if first.network_seconds >= here.network_seconds:
            return ["no other topology that was tried is faster"]
        times = here.network_seconds / first.network_seconds
        return [f"{first.name} would be {times:.2g} times as fast as {here.name}"]

    def _reasons(self) -> list[str]:
        c, best = self.constants, self.best.algorithm
        linked = self.best.network_seconds is not None
        needs = "takes the fewest seconds on these links" if linked else "needs the fewest samples"
        said = [f"{best} {needs} to a metric of {self.target:.2g}"]
        known = {one.method: one for one in standings.standings().get(self.suite, [])}
        if best in known:
            said.append(standings.said(known[best], self.suite))
        out = [p.algorithm for p in self.prospects if untracked(p.algorithm)]
        if c is None:
            short = f"untracked methods ({', '.join(out)}) stop short where agents differ"
            return [*said, short] if out else said
        if c.heterogeneity >= ALIKE and out:
            said.append(
                f"agents differ (heterogeneity {c.heterogeneity:.2g}), so untracked methods "
                f"({', '.join(out)}) would stop short and were left out"
            )
        if best == "k_free":
            said.append("it draws three mini-batches a round and needs no chain")
        elif c.condition > 10 and any(p.algorithm == "k_free" for p in self.prospects):
            said.append(
                f"the lower level's condition {c.condition:.0f} makes k_free take small steps"
            )
        return said


def untracked(name: str) -> bool:
    """Whether it averages x without tracking or correcting; of a method of your own, not known."""
    return name in names() and row(name).moves.split(", ")[0].removeprefix("x ") in UNTRACKED


def _best(prospects: Sequence[Prospect], alike: bool) -> Prospect:
    fit = [p for p in prospects if alike or not untracked(p.algorithm)]
    return min(fit or prospects, key=_cost)


def _cost(prospect: Prospect) -> float:
    seconds = prospect.network_seconds
    return prospect.samples if seconds is None else seconds


def advise(
    problem: Problem,
    network: Network,
    batch: int = 64,
    target: float | None = None,
    seed: int = 0,
    pilot: int = PILOT,
    algorithms: Sequence[str] | Mapping[str, Algorithm] | None = None,
) -> Advice:
    """Estimate the problem's constants, run a short pilot of each algorithm, and compare.

    Noise is measured where the best pilot ended: at the start, there may be none yet.
    `algorithms` by name, with `batch` and learned steps, or {"mine": algorithm};
    None: the first in the benchmark for problems of this kind (`standings`). Constants are those of
    each agent's own f_i and g_i, also where the lower level is common; without one there are none.
    The cost until the metric is at most `target` (by default a tenth of what the best pilot ends
    with) is that of the pilot up to there, if it comes there; else it is extrapolated at the rate
    of the pilot's second half, or at the rate that is guaranteed on average if that is faster:
    T^(-2/3) with momentum, T^(-1/2) without, which is also taken for a method of your own. A
    forecast for choosing, not a promise.

    Where the network has links, methods are ranked by their seconds there, and the best of them is
    tried on the `diamond.advice.topologies` of the same agents.
    """
    batch, pilot, seed = whole("batch", batch, 1), whole("pilot", pilot, 1), whole("seed", seed)
    kind = problem.lower_level, problem.agents, network.kind
    algorithms = tried(*kind) if algorithms is None else algorithms
    named = algorithms if isinstance(algorithms, Mapping) else by_name(algorithms, batch)
    runs = {label: _pilot(one, problem, network, pilot, seed) for label, one in named.items()}
    reached = {name: _end(run) for name, run in runs.items()}
    lowest = min(reached.values())
    if not math.isfinite(lowest):
        raise ValueError(
            f"no pilot of {pilot} rounds ended with a metric: each diverged with the steps found "
            f"for it, or y* was not found; is the lower level strongly convex in y, and are the "
            f"losses smooth?"
        )
    aim = lowest / 10 if target is None else target
    ahead = runs[min(reached, key=lambda name: reached[name])]
    assert ahead is not None
    known = None
    if problem.lower_level != "none" and network.kind == "symmetric":
        known = theory.estimate(problem, network, batch, seed, at=(ahead.x, ahead.y))
    prospects = [_prospect(name, run, aim) for name, run in runs.items()]
    if network.links is not None:
        prospects.sort(key=_cost)
    alike = known is not None and known.heterogeneity < ALIKE
    best = _best(prospects, alike)
    others = [
        _topology(best.algorithm, named[best.algorithm], problem, other, pilot, seed, aim)
        for other in topologies(network).values()
    ]
    here = _standing(network, best)
    others.sort(key=lambda other: other.network_seconds)
    found = [here, *others] if network.links is not None else []
    about = known, network.diameter, network.rounds_to_mix(), aim
    return Advice(*about, prospects, found, standings.suite(*kind))


def tried(level: str, agents: int, kind: str) -> list[str]:
    """The methods to try for this lower level, so many agents, and this kind of network."""
    found = [one.method for one in standings.leading(level, agents, kind, PILOTS)]
    return found or [name for name in ALONE if name in solving(level, kind)]


def by_name(names: Sequence[str], batch: int) -> dict[str, Algorithm]:
    """Algorithms of the catalogue, with learned steps."""
    takes = lambda make: "batch" in signature(make).parameters
    makers = {name: maker(name) for name in names}
    return {name: make(batch=batch) if takes(make) else make() for name, make in makers.items()}


def _pilot(
    algorithm: Algorithm, problem: Problem, network: Network, rounds: int, seed: int
) -> Run | None:
    try:
        return simulate(problem, network, algorithm, rounds, seed, max(1, rounds // 10))
    except Diverged:
        return None


def _end(run: Run | None) -> float:
    """The metric at the end of a pilot: the mean over its last fifth; infinite without one."""
    if run is None:
        return math.inf
    rounds, metric = run.history["round"], run.history["metric"]
    found = float(metric[rounds > 0.8 * run.rounds].mean())
    return found if math.isfinite(found) else math.inf


def _rounds_to(target: float, run: Run, rate: float) -> float:
    """Rounds until the metric is at most `target`: seen in the pilot, or extrapolated from it.

    The metric goes on like T^-r, r being that of the pilot's second half and at least `rate`.
    """
    rounds, metric = run.history["round"], run.history["metric"]
    if (metric <= target).any():
        return float(rounds[np.argmax(metric <= target)])
    late = (rounds >= run.rounds / 2) & (rounds > 0)
    if late.sum() > 1:
        slope = np.polyfit(np.log(rounds[late]), np.log(metric[late]), 1)[0]
        rate = max(rate, -float(slope))
    return run.rounds * max(_end(run) / target, 1.0) ** (1 / rate)


def _prospect(name: str, run: Run | None, target: float) -> Prospect:
    end = _end(run)
    if run is None or not math.isfinite(end):
        return Prospect(name, {}, math.inf, math.inf, math.inf, math.inf)
    rounds = _rounds_to(target, run, RATES.get(name, OWN))
    counted = [k for k in ("samples", "bytes", "network_seconds") if k in run.history]
    first, last = ({k: run.history[k][i] for k in counted} for i in (0, -1))
    cost = lambda k: first[k] + (last[k] - first[k]) / run.rounds * rounds
    seconds = cost("network_seconds") if "network_seconds" in first else None
    costs = cost("samples"), cost("bytes"), seconds
    learned = {k: float(run.history[k][-1]) for k in LEARNED if k in run.history}
    return Prospect(name, learned, end, rounds, *costs)


def _topology(
    name: str,
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    pilot: int,
    seed: int,
    target: float,
) -> Topology:
    """What `algorithm` would take on another network with links."""
    run = _pilot(algorithm, problem, network, pilot, seed)
    return _standing(network, _prospect(name, run, target))


def _standing(network: Network, prospect: Prospect) -> Topology:
    seconds = math.inf if prospect.network_seconds is None else prospect.network_seconds
    return Topology(network.name, len(network.edges), network.lam, prospect.rounds, seconds)
