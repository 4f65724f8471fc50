"""Recommendation of an algorithm for a problem on a network, from short pilots."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import NamedTuple

import numpy as np

from .. import theory
from ..catalogue import describe_method, maker, methods_for, names
from ..core.validation import as_int
from ..engine.simulate import simulate
from ..interface.round_interface import Algorithm
from ..metrics.divergence_error import Diverged
from ..network import Network
from ..problem import Problem
from ..records.run import Run
from . import standings
from .network_pilots import (
    NetworkFacts,
    loss_target,
    network_facts,
    network_methods,
    rounds_to_loss,
)
from .topologies import alternative_networks

LEARNED_COLUMNS = "alpha", "beta", "curvature"
PILOT_ROUNDS = 100  # rounds of a pilot, from which costs are extrapolated
# Guaranteed average rate -d log(metric) / d log T: for momentum, plain sampling, full gradients
GUARANTEED_RATES = dict.fromkeys(
    ("diamond", "m_sgd", "k_free", "diamond_common", "gt_storm"), 2 / 3
)
GUARANTEED_RATES |= dict.fromkeys(("interact", "svr_interact", "sldbo", "s3ldbo", "gt_sarah"), 1.0)
DEFAULT_RATE = 1 / 2  # rate of any other method
CREDIBLE_FACTOR = 200  # costs are extrapolated to this multiple of the pilot's rounds
PILOT_COUNT = 5  # number of the benchmark's best methods to try
FROM_FILE = " (this file)"  # ends the name of a method with the options of the user's file
WITHOUT_LOWER_LEVEL = (
    "gt_storm",
    "gt_sgd",
    "exact_diffusion",
    "dsgd",
)  # methods to try without a lower level
UNTRACKED = ("gossip", "push")  # moves of x that are biased if agents differ
MAX_ALIKE_HETEROGENEITY = 0.1  # heterogeneity below which agents need no tracking


class Prospect(NamedTuple):
    """One algorithm with learned steps: its pilot, and the forecast cost of a target."""

    algorithm: str
    numbers: dict[str, float]  # alpha, beta and the curvature of g_yy at the end of the pilot
    metric: float  # at the end of the pilot: the mean over its last fifth
    rounds: float  # until the target; infinite if the pilot diverged or predicts too many
    samples: float  # per agent
    bytes: float  # over the whole network
    network_seconds: float | None = None  # on the links of the network, if any


class TopologyForecast(NamedTuple):
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
    topologies: list[TopologyForecast] = field(
        default_factory=list
    )  # the first is the network itself
    suite: str = ""  # suite of the benchmark with such cases
    network_facts: NetworkFacts | None = None  # if y*(x) is not solved for
    horizon: int = CREDIBLE_FACTOR * PILOT_ROUNDS  # rounds beyond which nothing is predicted

    @property
    def goal(self) -> str:
        """The target in words."""
        article = "a" if self.network_facts is None else "an"
        return f"{article} {self.measure} of {self.target:.2g}"

    @property
    def failures(self) -> list[str]:
        """Say of every method without a predicted cost why it has none."""
        return [
            f"{p.algorithm} does not reach {self.goal} in {self.horizon:,} rounds"
            if math.isfinite(p.metric)
            else f"{p.algorithm} diverged in its pilot"
            for p in self.prospects
            if not math.isfinite(p.rounds)
        ]

    @property
    def measure(self) -> str:
        """Name of the measure that the target is a value of."""
        return "metric" if self.network_facts is None else "upper loss"

    @property
    def best(self) -> Prospect:
        """Return the prospect of least cost; untracked methods only if agents are alike.

        The cost is in seconds on the links of the network, in samples if it has none.
        """
        are_alike = (
            self.constants is not None and self.constants.heterogeneity < MAX_ALIKE_HETEROGENEITY
        )
        return _best_prospect(self.prospects, are_alike)

    @property
    def why(self) -> str:
        """Explain the choice in words."""
        return "; ".join([*self._method_reasons(), *self._topology_reasons()])

    def _topology_reasons(self) -> list[str]:
        """Report whether other edges between the same agents would be faster."""
        if len(self.topologies) < 2:
            return []
        current, fastest, *_ = self.topologies
        if fastest.network_seconds >= current.network_seconds:
            return ["no other topology that was tried is faster"]
        factor = current.network_seconds / fastest.network_seconds
        return [f"{fastest.name} would be {factor:.2g} times as fast as {current.name}"]

    def _method_reasons(self) -> list[str]:
        constants, best = self.constants, self.best.algorithm
        has_links = self.best.network_seconds is not None
        advantage = (
            "takes the fewest seconds on these links" if has_links else "needs the fewest samples"
        )
        reasons = [f"{best} {advantage} to {self.goal}"]
        if not math.isfinite(self.best.rounds):
            reasons = [
                f"no method that could be preferred reaches {self.goal} in {self.horizon:,} "
                f"rounds; the pilot of {best} ended at the lowest {self.measure}"
            ]
        if self.network_facts is not None:
            return [*reasons, *self.network_facts.reasons(best)]
        for standing in standings.load_standings().get(self.suite, []):
            if standing.method == best:
                reasons.append(standings.describe_standing(standing, self.suite))
        untracked = ", ".join(p.algorithm for p in self.prospects if is_untracked(p.algorithm))
        if constants is None:
            warning = f"untracked methods ({untracked}) stop short where agents differ"
            return [*reasons, warning] if untracked else reasons
        if constants.heterogeneity >= MAX_ALIKE_HETEROGENEITY and untracked:
            reasons.append(
                f"agents differ (heterogeneity {constants.heterogeneity:.2g}), so untracked "
                f"methods ({untracked}) would stop short and are not preferred"
            )
        if best == "k_free":
            reasons.append("it draws three mini-batches a round and needs no chain")
        elif constants.condition > 10 and any(p.algorithm == "k_free" for p in self.prospects):
            reasons.append(
                f"the lower level's condition {constants.condition:.0f} makes k_free take small "
                f"steps"
            )
        return reasons


def is_untracked(label: str) -> bool:
    """Return whether the method averages x without tracking; False if it is the user's own."""
    name = label.removesuffix(FROM_FILE)
    return (
        name in names()
        and describe_method(name).moves.split(", ")[0].removeprefix("x ") in UNTRACKED
    )


def _best_prospect(prospects: Sequence[Prospect], are_alike: bool) -> Prospect:
    suitable = [p for p in prospects if are_alike or not is_untracked(p.algorithm)]
    return min(suitable or prospects, key=_prospect_cost)


def _prospect_cost(prospect: Prospect) -> tuple[float, float]:
    """Return the cost to the target; among methods that do not reach it, the metric decides."""
    seconds = prospect.network_seconds
    return prospect.samples if seconds is None else seconds, prospect.metric


def advise(
    problem: Problem,
    network: Network,
    batch: int = 64,
    target: float | None = None,
    seed: int = 0,
    pilot: int = PILOT_ROUNDS,
    algorithms: Sequence[str] | Mapping[str, Algorithm] | None = None,
) -> Advice:
    """Estimate the problem's constants, run a short pilot of each algorithm, and compare.

    If the pilot does not reach the target, its cost is extrapolated at the rate of the pilot's
    second half, at least the guaranteed average rate: T^(-2/3) with momentum, T^(-1/2) otherwise.
    Beyond `CREDIBLE_FACTOR` times the pilot's rounds nothing is predicted; the cost is infinite.
    The result is a forecast for choosing, not a promise. If the network has links, methods are
    ranked by seconds on the links, and the best one is tried on the `diamond.advice.topologies`.

    If y is large or the problem is not `convex`, no constants are estimated, first-order methods
    are tried, and their costs are those of reaching an upper loss in the pilot.

    Args:
        problem: Problem to solve. Constants are those of each agent's own f_i and g_i, also if the
            lower level is common; without a lower level there are none.
        network: Network of the agents.
        batch: Batch size of algorithms given by name.
        target: Metric to reach; by default a tenth of the final metric of the best pilot. If y is
            large or the problem not `convex`, an upper loss; by default 95 % of the way to the
            lowest of the pilots.
        seed: Seed of the pilots.
        pilot: Rounds of each pilot. Noise is measured at the end of the best one, since there may
            be none at the start.
        algorithms: Names of algorithms, with learned steps, or {"mine": algorithm}; by default the
            best in the benchmark for such problems (`standings`).
    """
    batch, pilot, seed = as_int("batch", batch, 1), as_int("pilot", pilot, 1), as_int("seed", seed)
    is_network = problem.lower_level != "none" and not problem.has_lower_solution
    if target is not None and not is_network and target <= 0:
        raise ValueError(f"target = {target:g}: a metric is above 0; give a target above 0")
    if algorithms is None:
        algorithms = methods_to_try(problem.lower_level, problem.agents, network.kind, is_network)
    algorithms_by_label = (
        algorithms if isinstance(algorithms, Mapping) else build_algorithms(algorithms, batch)
    )
    runs = {
        label: _run_pilot(algorithm, problem, network, pilot, seed=seed)
        for label, algorithm in algorithms_by_label.items()
    }
    if is_network:
        target_loss = loss_target(runs) if target is None else target
        prospects = [_network_prospect(name, run, target_loss) for name, run in runs.items()]
        facts = network_facts(problem, runs)
        return Advice(
            None,
            network.diameter,
            network.rounds_to_mix(),
            target_loss,
            prospects,
            network_facts=facts,
            horizon=pilot,
        )
    final_metrics = {name: _final_metric(run) for name, run in runs.items()}
    lowest = min(final_metrics.values())
    if not math.isfinite(lowest):
        raise ValueError(
            f"no pilot of {pilot} rounds ended with a metric: each diverged with the steps found "
            f"for it, or y* was not found; is the lower level strongly convex in y, and are the "
            f"losses smooth?"
        )
    target_metric = lowest / 10 if target is None else target
    best_run = runs[min(final_metrics, key=lambda name: final_metrics[name])]
    assert best_run is not None
    constants = None
    if problem.lower_level != "none" and network.kind == "symmetric":
        constants = theory.estimate(problem, network, batch, seed, at=(best_run.x, best_run.y))
    prospects = [_make_prospect(name, run, target_metric) for name, run in runs.items()]
    if network.links is not None:
        prospects.sort(key=_prospect_cost)
    are_alike = constants is not None and constants.heterogeneity < MAX_ALIKE_HETEROGENEITY
    best = _best_prospect(prospects, are_alike)
    alternatives = []
    for other in alternative_networks(network).values():
        run = _run_pilot(algorithms_by_label[best.algorithm], problem, other, pilot, seed=seed)
        prospect = _make_prospect(best.algorithm, run, target_metric)
        alternatives.append(_make_topology(other, prospect))
    alternatives.sort(key=lambda other: other.network_seconds)
    current = _make_topology(network, best)
    return Advice(
        constants,
        network.diameter,
        network.rounds_to_mix(),
        target_metric,
        prospects,
        [current, *alternatives] if network.links is not None else [],
        standings.closest_suite(problem.lower_level, problem.agents, network.kind),
        horizon=CREDIBLE_FACTOR * pilot,
    )


def methods_to_try(level: str, agents: int, kind: str, is_network: bool = False) -> list[str]:
    """List the methods to try for this lower level, number of agents and kind of network."""
    if is_network:
        return network_methods(level, kind)
    methods = [
        standing.method for standing in standings.leading_methods(level, agents, kind, PILOT_COUNT)
    ]
    return methods or [name for name in WITHOUT_LOWER_LEVEL if name in methods_for(level, kind)]


def omitted_methods(
    shown: Collection[str], level: str, kind: str, is_network: bool, *, is_selection: bool
) -> dict[str, str]:
    """Return the methods for this lower level that are not among those `shown`, with the reasons.

    `is_selection`: the user named the methods to show.
    """
    suitable = methods_for(level, kind)

    def reason(name: str) -> str:
        if name not in suitable:
            return f"not correct on a {kind} network"
        if is_selection:
            return "not named by --algorithm"
        if is_network:
            return "not among the methods for a lower level that is large or not strongly convex"
        return "not among the best in the benchmark for such problems"

    return {name: reason(name) for name in methods_for(level) if name not in shown}


def build_algorithms(names: Sequence[str], batch: int) -> dict[str, Algorithm]:
    """Build algorithms of the catalogue with learned steps."""
    takes_batch = lambda make: "batch" in signature(make).parameters
    makers = {name: maker(name) for name in names}
    return {
        name: make(batch=batch) if takes_batch(make) else make() for name, make in makers.items()
    }


def _run_pilot(
    algorithm: Algorithm, problem: Problem, network: Network, rounds: int, *, seed: int
) -> Run | None:
    try:
        return simulate(problem, network, algorithm, rounds, seed, max(1, rounds // 10))
    except Diverged:
        return None


def _final_metric(run: Run | None) -> float:
    """Return the mean metric over the last fifth of a pilot; infinite without a pilot."""
    if run is None:
        return math.inf
    rounds, metric = run.history["round"], run.history["metric"]
    mean = float(metric[rounds > 0.8 * run.rounds].mean())
    return mean if math.isfinite(mean) else math.inf


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
    return run.rounds * max(_final_metric(run) / target, 1.0) ** (1 / rate)


def _make_prospect(name: str, run: Run | None, target: float) -> Prospect:
    final_metric = _final_metric(run)
    if run is None or not math.isfinite(final_metric):
        return Prospect(name, {}, math.inf, math.inf, math.inf, math.inf)
    rate = GUARANTEED_RATES.get(name.removesuffix(FROM_FILE), DEFAULT_RATE)
    rounds = _rounds_to(target, run, rate)
    is_credible = rounds <= CREDIBLE_FACTOR * run.rounds
    return _extrapolate_costs(name, run, final_metric, rounds if is_credible else math.inf)


def _network_prospect(name: str, run: Run | None, target: float) -> Prospect:
    if run is None:
        return Prospect(name, {}, math.inf, math.inf, math.inf, math.inf)
    final_loss = float(run.history["upper_loss"][-1])
    return _extrapolate_costs(name, run, final_loss, rounds_to_loss(run, target))


def _extrapolate_costs(name: str, run: Run, final_metric: float, rounds: float) -> Prospect:
    """Return the prospect of a pilot, with the costs of `rounds` rounds."""
    columns = [k for k in ("samples", "bytes", "network_seconds") if k in run.history]
    first, last = ({k: run.history[k][i] for k in columns} for i in (0, -1))
    costs = {k: first[k] + (last[k] - first[k]) / run.rounds * rounds for k in columns}
    learned = {k: float(run.history[k][-1]) for k in LEARNED_COLUMNS if k in run.history}
    return Prospect(name, learned, final_metric, rounds, **costs)


def _make_topology(network: Network, prospect: Prospect) -> TopologyForecast:
    network_seconds = math.inf if prospect.network_seconds is None else prospect.network_seconds
    return TopologyForecast(
        network.name, len(network.edges), network.lam, prospect.rounds, network_seconds
    )
