"""Private methods as the engine and sites see them: keys of noise, limits and the ledger's terms.

A method is private if its estimator has a `secret`. Then `estimator.plan(method, problem)` returns
the mechanism and the rounds within the budget of every agent.
"""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from ..problem import Problem
from .accountant import epsilon_after
from .ledger import LedgerTerms

SIMULATED = 0x51A7E  # first word of the keys of noise in a simulation: they are no secret


class UnprotectedRelease(ValueError):
    """Error: a private site would send a value of its rows without noise."""


def simulated_words(agent: int) -> np.ndarray:
    """Return the key of an agent's noise in a simulation."""
    return np.array([SIMULATED, agent, SIMULATED, ~agent & 0xFFFFFFFF], np.uint32)


def privacy_of(algorithm: Any) -> Any:
    """Return the private estimator of a method, or None if the method is not private."""
    estimator = getattr(getattr(algorithm, "method", algorithm), "estimator", None)
    return estimator if hasattr(estimator, "secret") else None


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
    limit = min(privacy_of(algorithm).plan(algorithm, problem).limits)
    if rounds > limit:
        raise ValueError(
            f"{rounds} rounds overspend the privacy budget, which has {limit}: give "
            f"rounds={rounds} to diamond.private, or fewer rounds to the run"
        )


def without_site_values(algorithm: Any) -> Any:
    """Return a specialized method without the values that differ between sites."""
    estimator = privacy_of(algorithm)
    if estimator is None:
        return algorithm
    common = replace(estimator, secret=None, multiplier=None, limit=None)
    if hasattr(algorithm, "method"):
        return replace(algorithm, method=replace(algorithm.method, estimator=common))
    return replace(algorithm, estimator=common)


def ledger_terms(algorithm: Any, problem: Problem) -> LedgerTerms | None:
    """Return the terms of the ledger of a site with this problem; None if nothing is private."""
    estimator = privacy_of(algorithm)
    if estimator is None or estimator.budget is None:
        return None
    (mechanism,) = estimator.plan(algorithm, problem).mechanisms
    run = hashlib.sha256(np.asarray(estimator.secret, np.uint32).tobytes()).hexdigest()
    return LedgerTerms(estimator.budget.epsilon, estimator.budget.delta, mechanism, run)


def describe_privacy(algorithm: Any, problem: Problem, rounds: int) -> dict[str, Any] | None:
    """Return budget, noise and epsilon after `rounds` rounds of the most revealing agent."""
    estimator = privacy_of(algorithm)
    if estimator is None or estimator.budget is None:
        return None
    budget, plan = estimator.budget, estimator.plan(algorithm, problem)
    mechanisms = set(plan.mechanisms)
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "spent": max(epsilon_after(m, rounds, budget.delta) for m in mechanisms),
        "rounds": rounds,
        "noise_multiplier": max(m.multiplier for m in mechanisms),
        "clipping": "row" if plan.by_row else "whole",
    }
