"""Recommendation of an algorithm for a problem on a network, from short pilots."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import NamedTuple

import numpy as np

from .. import theory
from ..catalogue import describe_method, maker, methods_for, names
from ..core.validation import as_int
from ..engine.simulate import simulate
from ..interface.round_interface import Algorithm
from ..metrics.divergence import Diverged
from ..network import Network
from ..problem import Problem
from ..records.run import Run
from . import standings
from .topologies import topologies

LEARNED = "alpha", "beta", "curvature"
PILOT = 100  # rounds of a pilot, from which costs are extrapolated
# Guaranteed average rate -d log(metric) / d log T: for momentum, plain sampling, full gradients
RATES = dict.fromkeys(("diamond", "m_sgd", "k_free", "diamond_common", "gt_storm"), 2 / 3)
RATES |= dict.fromkeys(("interact", "svr_interact", "sldbo", "gt_sarah"), 1.0)
OWN = 1 / 2  # rate of any other method
PILOTS = 5  # number of the benchmark's best methods to try
ALONE = ("gt_storm", "gt_sgd", "exact_diffusion", "dsgd")  # methods to try without a lower level
UNTRACKED = ("gossip", "push")  # moves of x that are biased if agents differ
ALIKE = 0.1  # heterogeneity below which agents need no tracking


class Prospect(NamedTuple):
    """One algorithm with learned steps: its pilot, and the forecast cost of a target."""

    algorithm: str
    numbers: dict[str, float]  # alpha, beta and the curvature of g_yy at the end of the pilot
    metric: float  # at the end of the pilot: the mean over its last fifth
    rounds: float  # until the target; infinite if the pilot diverged
    samples: float  # per agent
    bytes: float  # over the whole network
    network_seconds: float | None = None  # on the links of the network, if any


class Topology(NamedTuple):
    """Preferred algorithm on other edges between the same agents."""

    name: str
    edges: int
    lam: float
    rounds: float  # to the target
    network_seconds: float


@dataclass(frozen=True)
class Advice:
    """Constants of the problem, a prospect per algorithm, and the preferred algorithm."""

    constants: theory.Constants | None  # None where there is no lower level
    diameter: int
    rounds_to_mix: int
    target: float
    prospects: list[Prospect]
    topologies: list[Topology] = field(default_factory=list)  # the first is the network itself
    suite: str = ""  # suite of the benchmark with such cases

    @property
    def best(self) -> Prospect:
        """Return the prospect of least cost; untracked methods only if agents are alike.

        The cost is in seconds on the links of the network, in samples if it has none.
        """
        alike = self.constants is not None and self.constants.heterogeneity < ALIKE
        return _best(self.prospects, alike)

    @property
    def why(self) -> str:
        """Explain the choice in words."""
        return "; ".join([*self._reasons(), *self._elsewhere()])

    def _elsewhere(self) -> list[str]:
        """Report whether other edges between the same agents would be faster."""
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
    """Return whether the method averages x without tracking; False if it is the user's own."""
    return name in names() and describe_method(name).moves.split(", ")[0].removeprefix("x ") in UNTRACKED


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

    If the pilot does not reach the target, its cost is extrapolated at the rate of the pilot's
    second half, at least the guaranteed average rate: T^(-2/3) with momentum, T^(-1/2) otherwise.
    The result is a forecast for choosing, not a promise. If the network has links, methods are
    ranked by seconds on the links, and the best one is tried on the `diamond.advice.topologies`.

    Args:
        problem: Problem to solve. Constants are those of each agent's own f_i and g_i, also if the
            lower level is common; without a lower level there are none.
        network: Network of the agents.
        batch: Batch size of algorithms given by name.
        target: Metric to reach; by default a tenth of the final metric of the best pilot.
        seed: Seed of the pilots.
        pilot: Rounds of each pilot. Noise is measured at the end of the best one, since there may
            be none at the start.
        algorithms: Names of algorithms, with learned steps, or {"mine": algorithm}; by default the
            best in the benchmark for such problems (`standings`).

    Returns:
        The advice.
    """
    batch, pilot, seed = as_int("batch", batch, 1), as_int("pilot", pilot, 1), as_int("seed", seed)
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
    """List the methods to try for this lower level, number of agents and kind of network."""
    found = [one.method for one in standings.leading(level, agents, kind, PILOTS)]
    return found or [name for name in ALONE if name in methods_for(level, kind)]


def by_name(names: Sequence[str], batch: int) -> dict[str, Algorithm]:
    """Build algorithms of the catalogue with learned steps."""
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
    """Return the mean metric over the last fifth of a pilot; infinite without a pilot."""
    if run is None:
        return math.inf
    rounds, metric = run.history["round"], run.history["metric"]
    found = float(metric[rounds > 0.8 * run.rounds].mean())
    return found if math.isfinite(found) else math.inf


def _rounds_to(target: float, run: Run, rate: float) -> float:
    """Return the rounds until the metric is at most `target`, observed or extrapolated.

    The metric continues like T^-r, with r of the pilot's second half but at least `rate`.
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
    """Forecast the cost of `algorithm` on another network with links."""
    run = _pilot(algorithm, problem, network, pilot, seed)
    return _standing(network, _prospect(name, run, target))


def _standing(network: Network, prospect: Prospect) -> Topology:
    seconds = math.inf if prospect.network_seconds is None else prospect.network_seconds
    return Topology(network.name, len(network.edges), network.lam, prospect.rounds, seconds)
