"""Plan of a private method on a problem: what is released, how often, and with how much noise."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from ...core.exclusions import check_combination
from ...privacy.accountant import Mechanism, Release, calibrate_multiplier, rounds_within
from ...privacy.private_runs import PrivacyRefusal
from ...problem import Problem
from ...schedules.learned import learned_names


@dataclass(frozen=True)
class PrivacyBudget:
    """Budget of one row of a site, and how it is spent."""

    epsilon: float
    delta: float
    rounds: int | None  # that the noise is calibrated for
    noise_multiplier: float | None  # None: calibrated
    clipping: str  # "row", "whole", or "auto": by row if possible


class PrivacyPlan(NamedTuple):
    """Mechanism of every agent of a problem, and the rounds within the budget."""

    by_row: bool
    released: str
    mechanisms: list[Mechanism]  # of each agent
    limits: list[int]  # rounds within the budget of each agent
    noise: float  # norm of the noise in the direction of x of the noisiest agent / clip


def plan_privacy(method: Any, problem: Problem) -> PrivacyPlan:
    """Choose how directions are clipped, and calibrate the noise of every agent."""
    if problem.lower_level == "none" and method.y is not None:
        method = method.without_lower_level()
    estimator = method.estimator
    budget: PrivacyBudget = estimator.budget
    name, used = type(method).__name__, {"privacy": True, "streams": problem.streams}
    check_combination(used, name, error=PrivacyRefusal)
    by_row = _is_by_row(method, budget.clipping)
    shared = "".join(name for name, v in method.variables.items() if v.communication.vectors)
    released = "".join(method.variables) if by_row else shared
    learned = learned_names(method)
    place = f"{name}, whose {', '.join(sorted(learned))} would be learned,"
    used = {"learned steps": learned, "released y and z": by_row or shared != "x"}
    check_combination(used, place, error=PrivacyRefusal)
    mechanisms, limits = [], []
    for releases in _releases(method, problem, by_row, shared):
        multiplier = budget.noise_multiplier
        if multiplier is None:
            assert budget.rounds is not None
            multiplier = calibrate_multiplier(budget.epsilon, budget.delta, budget.rounds, releases)
        mechanism = Mechanism(multiplier, releases)
        limit = budget.rounds
        if budget.noise_multiplier is not None:
            affordable = rounds_within(mechanism, budget.epsilon, budget.delta)
            limit = affordable if limit is None else min(limit, affordable)
        assert limit is not None
        mechanisms.append(mechanism)
        limits.append(limit)
    multipliers = [mechanism.multiplier for mechanism in mechanisms]
    noise = max(m * s for m, s in zip(multipliers, _noise_norms(method, problem, by_row, released)))
    return PrivacyPlan(by_row, released, mechanisms, limits, noise)


def _noise_norms(method: Any, problem: Problem, by_row: bool, released: str) -> list[float]:
    """Return the norm of the noise in each agent's direction of x for multiplier 1, over clip."""
    size = sum(leaf.size for leaf in jax.tree.leaves(problem.start(0)[0]))
    together = next(set(s.names) & set(released) for s in method.stages if s.moves_x)
    fewest = np.minimum(problem.counts("train"), problem.counts("valid"))
    rows = fewest if method.estimator.full else np.minimum(method.batch, fewest)
    spread = 1 / rows if by_row else np.full(problem.agents, 2.0)
    norms: list[float] = (spread * math.sqrt(len(together) * size)).tolist()
    return norms


def _is_by_row(method: Any, clipping: str) -> bool:
    can_split = bool(method.directions.splits_levels)
    if clipping == "row" and not can_split:
        raise PrivacyRefusal(
            f"{type(method.directions).__name__.lower()} directions are no average over rows: use "
            f"clipping='whole', or a method whose z is a variable, such as diamond.soba()"
        )
    return can_split and clipping != "whole"


def _releases(
    method: Any, problem: Problem, by_row: bool, shared: str
) -> list[tuple[Release, ...]]:
    """Return the releases per round of each agent, by part of its rows."""
    stages = [(stage.names, stage.repeats) for stage in method.stages]
    if not by_row:
        count = sum(k for names, k in stages if set(names) & set(shared))
        return [(Release(1.0, count),)] * problem.agents
    all_stages = sum(k for _, k in stages)
    upper = sum(k for n, k in stages if set(n) & set(method.directions.upper_variables))
    per_round = {"valid": upper} if problem.lower is None else {"train": all_stages, "valid": upper}
    batch = math.inf if method.estimator.full else method.batch
    counts = {part: problem.counts(part) for part in per_round}
    return [
        tuple(
            Release(min(1.0, batch / int(counts[part][agent])), per_round[part])
            for part in per_round
        )
        for agent in range(problem.agents)
    ]
