"""Search: the best method for a problem and network among all that can be composed.

Candidates are directions x estimator x moves x plan (`diamond.method`) and every published method
that fits, each with the numbers it chooses and with others around them (`settings`). Successive
halving (Jamieson and Talwalkar, 2016): all get a ninth of the cost of a run, the better third of
them a third, the better third of those a whole one. Runs are as long as their cost is equal: what
DIAMOND's kind spends on it is the user's rounds. The winner, and the best published method, are
then run from seeds that the search has not seen.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import catalogue
from ..core.suggestions import did_you_mean
from ..experiment.options import as_written
from ..measure.divergence import Diverged
from ..network import Network
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from ..runtimes.simulate import simulate
from .settings import Tunable, factors, tunable
from .statistics import median
from .suites import TUNING

SHARES = (1 / 9, 1 / 3, 1.0)  # of a run's cost, rung by rung
KEPT = 1 / 3  # of the candidates, from one rung to the next
EVALUATIONS, LATE = 20, 5  # of a run; the last ones, over which the loss is averaged
FEW = 10  # rounds by which the cost of one is found
COSTS = {"calls": ("gradients", "hvps", "jvps"), "samples": ("samples",), "bytes": ("bytes",)}
ESTIMATORS = ("plain", "average", "momentum", "recursive")
PLANS = ("xyz", "y z x")
MOVES = {"symmetric": ("gossip", "gt", "ed", "extra")}
ONE_WAY = ("push", "push_gt")


@dataclass(frozen=True)
class Candidate:
    """A method with some numbers."""

    label: str
    published: bool
    table: dict[str, Any]  # as a file says it
    algorithm: Algorithm
    rounds: int  # of a run at full cost


@dataclass(frozen=True)
class Evidence:
    """What came of runs on fresh seeds: the late upper loss of each."""

    candidate: Candidate
    losses: list[float]

    @property
    def loss(self) -> float:
        """The median; infinite where half of the runs diverged."""
        return median(self.losses)


@dataclass(frozen=True)
class Found:
    """The best composed method and the best published one, by the search; and on fresh seeds."""

    winner: Evidence
    published: Evidence
    tried: int  # candidates at first


def compositions(level: str, network: str) -> Iterator[dict[str, Any]]:
    """The parts of every method for this lower level and kind of network."""
    moves = MOVES.get(network, ONE_WAY)
    directions = {"none": ("gradient",), "common": ("carried", "penalty")}.get(
        level, ("implicit", "carried", "penalty")
    )
    lower = {"common": moves}.get(level, ("local",))
    plans = PLANS[:1] if level == "none" else PLANS
    for d, e, x, y, plan in itertools.product(directions, ESTIMATORS, moves, lower, plans):
        yield {"directions": d, "estimator": e, "x": x, "y": y, "plan": plan, "solves": level}


def search(
    problem: Problem,
    network: Network,
    rounds: int,
    batch: int,
    budget: int,
    seeds: int = 5,
    cost: str = "calls",
    on_run: Callable[[str], None] = lambda label: None,
) -> Found:
    """The best method at equal `cost`, for about `budget` runs of full length in all.

    `cost`: calls (gradients and products, each of one row), samples or bytes.
    """
    if cost not in COSTS:
        raise ValueError(f"no cost {cost!r}; {did_you_mean(cost, COSTS)}")
    if budget < 3:
        raise ValueError(f"budget = {budget}: a search needs at least 3 runs")
    unit = _unit(problem, network, batch, cost) * rounds
    found = list(_candidates(problem, network, batch, unit, cost, 3 * budget))
    tried = len(found)
    for rung, share in enumerate(SHARES):
        losses = {}
        for one in found:
            on_run(one.label)
            losses[one.label] = late(problem, network, one, share, TUNING + rung)
        found.sort(key=lambda one: losses[one.label])
        last = rung == len(SHARES) - 1
        kept = found if last else found[: max(1, math.ceil(KEPT * len(found)))]
        for published in (True, False):  # the best of either kind goes on
            of = [one for one in found if one.published == published]
            kept += of[:1] if of and not any(one in of for one in kept) else []
        found = kept
    best = {p: next((o for o in found if o.published == p), None) for p in (True, False)}
    fresh: dict[bool, Evidence] = {}
    for published, chosen in best.items():
        if chosen is None:
            raise ValueError(
                f"budget = {budget} is too small for both a composed and a published method; "
                f"pass at least {2 * budget}"
            )
        on_run(chosen.label)
        ends = [late(problem, network, chosen, 1.0, seed) for seed in range(seeds)]
        fresh[published] = Evidence(chosen, ends)
    return Found(fresh[False], fresh[True], tried)


def late(problem: Problem, network: Network, one: Candidate, share: float, seed: int) -> float:
    """The upper loss late in a run at this share of its cost; infinite if it diverges."""
    rounds = max(1, round(share * one.rounds))
    every = max(1, rounds // EVALUATIONS)
    with warnings.catch_warnings():  # what comes of a trial is its loss
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            run = simulate(
                problem, network, one.algorithm, rounds, seed, every, on_divergence="stop"
            )
        except Diverged:
            return math.inf
    loss = float(np.mean(run.history["upper_loss"][-LATE:]))
    return loss if math.isfinite(loss) else math.inf


def _candidates(
    problem: Problem, network: Network, batch: int, unit: float, cost: str, count: int
) -> Iterator[Candidate]:
    """`count` of them: every method once with the numbers it finds, then with others, in turn."""
    level = problem.lower_level
    known: list[tuple[str, dict[str, Any]]] = [
        (name, {}) for name in catalogue.solving(level, network.kind)
    ]
    known += [(catalogue.COMPOSED, parts) for parts in compositions(level, network.kind)]
    order = np.random.default_rng(TUNING).permutation(len(known))
    ready: dict[int, tuple[Tunable, float] | None] = {}
    made = 0
    for turn, drawn in enumerate(factors(max(2, count))):
        for i in order:
            name, parts = known[i]
            if i not in ready:
                ready[i] = _ready(name, parts, problem, network, batch, cost)
            if (own := ready[i]) is None:
                continue
            tuned, each = own
            algorithm, _ = tuned.at(drawn)
            label = " ".join([name if not parts else "+".join(parts.values()), f"#{turn}"])
            rounds = max(10, round(unit / each))
            table = {"name": name, **_spelled(tuned, drawn)}
            yield Candidate(label, not parts, table, algorithm, rounds)
            made += 1
            if made == count:
                return


def _spelled(own: Tunable, drawn: dict[str, float]) -> dict[str, Any]:
    """The arguments of a method, as a file says them."""
    return {name: as_written(value) for name, value in (own.fixed | own.given(drawn)).items()}


def _ready(
    name: str, parts: dict[str, Any], problem: Problem, network: Network, batch: int, cost: str
) -> tuple[Tunable, float] | None:
    """A method to be tuned, and what a round of it costs; None where its parts do not fit."""
    try:
        own = tunable(name, problem, network, batch, TUNING, **parts)
        return own, _each(problem, network, own.at(factors(1)[0])[0], cost)
    except (ValueError, Diverged):
        return None


def _unit(problem: Problem, network: Network, batch: int, cost: str) -> float:
    """What a round of DIAMOND's kind costs here, on which all runs are as long as they are."""
    name = {"common": "diamond_common"}.get(problem.lower_level, "diamond")
    if name not in catalogue.solving(problem.lower_level, network.kind):
        name = catalogue.solving(problem.lower_level, network.kind)[0]
    own = tunable(name, problem, network, batch, TUNING)
    return _each(problem, network, own.at(factors(1)[0])[0], cost)


def _each(problem: Problem, network: Network, algorithm: Algorithm, cost: str) -> float:
    """What a round costs, on the average over a few."""
    history = simulate(problem, network, algorithm, FEW, TUNING, FEW).history
    spent = sum(history[name][-1] - history[name][0] for name in COSTS[cost])
    return max(float(spent), 1.0) / FEW


def said(found: Sequence[Evidence]) -> list[dict[str, Any]]:
    """The evidence as rows of a table."""
    return [
        {
            "method": one.candidate.label.split(" #")[0],
            "upper_loss": one.loss,
            "of": [float(f"{loss:.6g}") for loss in one.losses],
            "rounds": one.candidate.rounds,
        }
        for one in found
    ]
