"""Methods with differential privacy of everything that a site sends."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...auto.adaptive_optimizers import is_learned
from ...core.validation import as_int
from ...privacy.accountant import (
    Mechanism,
    Release,
    calibrate_multiplier,
    padded_size,
    rounds_within,
)
from ...problem import Problem
from ...schedules.deferred import PerAgent
from ...schedules.learned import learned_names
from .communication_rules import Local
from .composed import ComposedAlgorithm
from .estimators import Average, Momentum, Plain
from .private_estimator import PrivacyBudget, PrivateEstimator
from .variables import Point

SIMULATED = 0x51A7E  # first word of the keys of noise in a simulation: they are no secret
CLIPPING = ("auto", "row", "whole")


def private(
    algorithm: ComposedAlgorithm,
    epsilon: float = 8.0,
    delta: float = 1e-5,
    clip: float | Mapping[str, float] = 1.0,
    rounds: int | None = None,
    noise_multiplier: float | None = None,
    clipping: str = "auto",
) -> ComposedAlgorithm:
    """Return the method with differential privacy of everything that a site sends.

    Directions are clipped and Gaussian noise is added before anything is mixed, tracked or
    averaged. One row of one site is protected: all messages of the run together are
    (epsilon, delta)-differentially private. By row, the site of a run may or may not have that
    row; whole, all its rows may be others (`docs/explanation/privacy.md`).

    Args:
        algorithm: a composed method with a given alpha; by row, with all step sizes given.
        epsilon: budget of every site.
        delta: probability with which epsilon may not hold; below 1 / rows of a site.
        clip: largest norm of a direction, by row or whole; a number, or one for each variable as
            in {"x": 1.0, "y": 0.3, "z": 0.1}.
        rounds: rounds for which the noise is calibrated; the method uses no row after them.
        noise_multiplier: noise relative to the sensitivity, instead of `rounds`: then the method
            uses no row once epsilon is spent.
        clipping: "row" clips every row's direction and samples rows independently (no lower level,
            or z is a variable); "whole" clips the direction of the batch; "auto" is by row if the
            method allows it.

    Returns:
        The private method. In `diamond.simulate` its noise is a function of the seed; a site draws
        its noise from a key of its own.

    Raises:
        ValueError: the method cannot be made private.
        ImportError: dp-accounting is not installed.

    Example:
        >>> diamond.private(diamond.dsgd(alpha=0.5), epsilon=4, rounds=200, clip=1.0)
    """
    if not isinstance(algorithm, ComposedAlgorithm):
        raise ValueError(
            f"{type(algorithm).__name__} is not composed of parts, so its messages cannot be made "
            f"private: use a method such as diamond.dsgd(alpha=...) or diamond.compose(...)"
        )
    if isinstance(algorithm.estimator, PrivateEstimator):
        raise ValueError("the method is private already: call diamond.private once")
    if not isinstance(algorithm.estimator, Plain | Average | Momentum):
        raise ValueError(
            f"{type(algorithm.estimator).__name__.lower()} keeps sums of directions in which noise "
            f"adds up without bound: use a method with a plain, average or momentum estimator"
        )
    if "alpha" in learned_names(algorithm.x.step) or is_learned(algorithm.x.optimizer):
        raise ValueError(
            "a learned alpha is computed from unprotected measurements that sites exchange: give "
            "alpha=..., as in diamond.dsgd(alpha=0.1)"
        )
    budget = _check_budget(epsilon, delta, rounds, noise_multiplier, clipping)
    clips = Point(*_clips(clip))
    return replace(algorithm, estimator=PrivateEstimator(algorithm.estimator, clips, budget))


def _check_budget(
    epsilon: float, delta: float, rounds: Any, noise_multiplier: Any, clipping: str
) -> PrivacyBudget:
    if not epsilon > 0:
        raise ValueError(f"epsilon = {epsilon}: a budget is above 0")
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}: a probability between 0 and 1, such as 1e-5")
    if rounds is None and noise_multiplier is None:
        raise ValueError("the noise depends on the number of rounds: give rounds=...")
    if rounds is not None:
        rounds = as_int("rounds", rounds, 1)
    if noise_multiplier is not None and not (
        noise_multiplier > 0 or (noise_multiplier == 0 and math.isinf(epsilon))
    ):
        raise ValueError(f"noise_multiplier = {noise_multiplier}: a finite epsilon needs noise")
    if clipping not in CLIPPING:
        raise ValueError(f"no clipping {clipping!r}; there are 'auto', 'row' and 'whole'")
    return PrivacyBudget(float(epsilon), float(delta), rounds, noise_multiplier, clipping)


def _clips(clip: float | Mapping[str, float]) -> list[float]:
    values = dict(clip) if isinstance(clip, Mapping) else dict.fromkeys("xyz", clip)
    if unknown := [name for name in values if name not in ("x", "y", "z")]:
        raise ValueError(f"clip has {unknown[0]!r}; the variables are x, y and z")
    if "x" not in values:
        raise ValueError("clip lacks x, whose direction is always released")
    if wrong := [c for c in values.values() if not 0 < c < math.inf]:
        raise ValueError(f"clip = {wrong[0]}: the largest norm of a direction is above 0")
    return [float(values.get(name, values["x"])) for name in "xyz"]


def privacy_of(algorithm: Any) -> PrivateEstimator | None:
    """Return the private estimator of a method, or None if the method is not private."""
    estimator = getattr(getattr(algorithm, "method", algorithm), "estimator", None)
    return estimator if isinstance(estimator, PrivateEstimator) else None


def with_secret(algorithm: Any, words: np.ndarray) -> Any:
    """Return the private method with these four words as the key of its noise."""
    estimator = replace(algorithm.estimator, secret=np.asarray(words, np.uint32))
    return replace(algorithm, estimator=estimator)


def with_simulated_secret(algorithm: Any, agent: int) -> Any:
    """Return a private method without a key with that of `agent` in a simulation."""
    estimator = privacy_of(algorithm)
    if estimator is None or estimator.secret is not None:
        return algorithm
    return with_secret(algorithm, simulated_words(agent))


def simulated_words(agent: int) -> np.ndarray:
    """Return the key of an agent's noise in a simulation."""
    return np.array([SIMULATED, agent, SIMULATED, ~agent & 0xFFFFFFFF], np.uint32)


class PrivacyPlan(NamedTuple):
    """Mechanism of every agent of a problem, and the rounds within the budget."""

    by_row: bool
    released: str
    mechanisms: list[Mechanism]  # of each agent
    limits: list[int]  # rounds within the budget of each agent


def plan_privacy(method: ComposedAlgorithm, problem: Problem) -> PrivacyPlan:
    """Choose how directions are clipped, and calibrate the noise of every agent.

    `method` has the directions that it has on this problem.
    """
    estimator = method.estimator
    budget: PrivacyBudget = estimator.budget
    if problem.streams:
        raise ValueError(
            "privacy is that of stored rows, and a stream has none: give rows as arrays"
        )
    by_row = _is_by_row(method, budget.clipping)
    shared = "".join(
        name for name, v in method.variables.items() if not isinstance(v.communication, Local)
    )
    released = "".join(method.variables) if by_row else shared
    learned = learned_names(method)
    if learned and (by_row or shared != "x"):
        raise ValueError(
            f"{', '.join(sorted(learned))} would be learned from unprotected rows, and y and z are "
            f"released: give all step sizes, or use clipping='whole' with a personal lower level"
        )
    mechanisms, limits = [], []
    for releases in _releases(method, problem, by_row, shared):
        multiplier = budget.noise_multiplier
        if multiplier is None:
            assert budget.rounds is not None
            multiplier = calibrate_multiplier(
                budget.epsilon, budget.delta, budget.rounds, releases
            )
        mechanism = Mechanism(multiplier, releases)
        limit = budget.rounds
        if budget.noise_multiplier is not None:
            affordable = rounds_within(mechanism, budget.epsilon, budget.delta)
            limit = affordable if limit is None else min(limit, affordable)
        assert limit is not None
        mechanisms.append(mechanism)
        limits.append(limit)
    return PrivacyPlan(by_row, released, mechanisms, limits)


def _is_by_row(method: ComposedAlgorithm, clipping: str) -> bool:
    can_split = bool(method.directions.splits_levels)
    if clipping == "row" and not can_split:
        raise ValueError(
            f"{type(method.directions).__name__.lower()} directions are no average over rows: use "
            f"clipping='whole', or a method whose z is a variable, such as diamond.soba()"
        )
    return can_split and clipping != "whole"


def _releases(
    method: ComposedAlgorithm, problem: Problem, by_row: bool, shared: str
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


def specialize_private(method: ComposedAlgorithm, problem: Problem) -> ComposedAlgorithm:
    """Return the private method with the noise and the sample size for this problem."""
    estimator, plan = method.estimator, plan_privacy(method, problem)
    size = 0
    if plan.by_row and not estimator.full:
        budget = estimator.budget
        per_round = max(r.per_round for m in plan.mechanisms for r in m.releases)
        most_rounds = max(plan.limits) if budget.rounds is None else budget.rounds
        size = padded_size(method.batch, budget.epsilon, budget.delta, per_round * most_rounds)
    multipliers = np.array([m.multiplier for m in plan.mechanisms], np.float32)
    limits, secret = np.array(plan.limits, np.int32), estimator.secret
    if secret is None:
        secret = np.stack([simulated_words(agent) for agent in range(problem.agents)])
        secret = secret[0] if problem.agents == 1 else PerAgent(secret)
    is_alone = problem.agents == 1
    return replace(
        method,
        estimator=replace(
            estimator,
            secret=secret,
            multiplier=multipliers[0] if is_alone else PerAgent(multipliers),
            limit=limits[0] if is_alone else PerAgent(limits),
            by_row=plan.by_row,
            released=plan.released,
            size=size,
        ),
    )


def check_private_run(
    algorithm: Any, problem: Problem, rounds: int, rolls_back: bool = False
) -> None:
    """Reject a private run that would overspend, or that could compute a round twice."""
    if privacy_of(algorithm) is None:
        return
    if rolls_back:
        raise ValueError(
            "on_divergence='shrink' computes rounds again, each of which spends privacy: use "
            "on_divergence='stop'"
        )
    limit = np.min(_limit_values(algorithm.specialize(problem)))
    if rounds > limit:
        raise ValueError(
            f"{rounds} rounds overspend the privacy budget, which has {limit}: give rounds={rounds} "
            f"to diamond.private, or fewer rounds to the run"
        )


def _limit_values(method: Any) -> Any:
    limit = privacy_of(method).limit  # type: ignore[union-attr]
    return limit.values if isinstance(limit, PerAgent) else limit
