"""Private methods as the engine and sites see them: keys of noise, limits and the ledger's terms.

A method is private if its estimator has a `secret`. Then `estimator.plan(method, problem)` returns
the mechanism and the rounds within the budget of every agent.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.exclusions import check_combination
from ..core.pytrees import Tree
from ..hardware.processes import raise_in_all_processes
from ..problem import Problem
from ..schedules.deferred import PerAgent
from .accountant import epsilon_after
from .ledger import LedgerTerms

SIMULATED = 0x51A7E  # first word of the keys of noise in a simulation: they are no secret


class PrivacyRefusal(ValueError):
    """Error: a run cannot be private, or would send values of rows without noise."""


def simulated_words(agent: int) -> np.ndarray:
    """Return the key of an agent's noise in a simulation."""
    return np.array([SIMULATED, agent, SIMULATED, ~agent & 0xFFFFFFFF], np.uint32)


def with_secret(algorithm: Any, words: np.ndarray) -> Any:
    """Return the private method with these four words as the key of its noise."""
    secret = np.asarray(words, np.uint32)
    return algorithm.with_estimator(replace(algorithm.privacy, secret=secret))


def with_simulated_secret(algorithm: Any, agent: int) -> Any:
    """Return a private method without a key with that of `agent` in a simulation."""
    estimator = algorithm.privacy
    if estimator is None or estimator.secret is not None:
        return algorithm
    return with_secret(algorithm, simulated_words(agent))


def with_simulated_secrets(algorithm: Any, agents: Sequence[int]) -> Any:
    """Return a private method for these agents of a simulation, with their keys of noise."""
    if algorithm.privacy is None:
        return algorithm
    words = PerAgent(jnp.asarray(np.stack([simulated_words(agent) for agent in agents])))
    return algorithm.with_estimator(replace(algorithm.privacy, secret=words))


def check_private_run(
    algorithm: Any, problem: Problem, rounds: int, rolls_back: bool = False
) -> None:
    """Reject a private run that would overspend, or that could compute a round twice."""
    if algorithm.privacy is None:
        return
    used = {"privacy": True, "on_divergence='shrink'": rolls_back}
    check_combination(used, "this run", error=PrivacyRefusal)
    plan = algorithm.privacy.plan(algorithm, problem)
    check_disjoint_rows(plan, problem)
    limit = min(plan.limits)
    if rounds > limit:
        raise PrivacyRefusal(
            f"{rounds} rounds overspend the privacy budget, which has {limit}: give "
            f"rounds={rounds} to diamond.private, or fewer rounds to the run"
        )


def check_disjoint_rows(plan: Any, problem: Problem) -> None:
    """Reject rows that are used twice where each row is charged for one part only."""
    if not plan.by_row or problem.lower is None:
        return
    train_rows, valid_rows = (problem.rows[part].loaded for part in ("train", "valid"))
    with raise_in_all_processes():
        for agent, rows in train_rows.items():
            train, valid = (
                {row.tobytes() for row in _row_bytes(part)} for part in (rows, valid_rows[agent])
            )
            if shared := len(train & valid):
                owner = f" of agent {agent}" if problem.agents > 1 else ""
                raise PrivacyRefusal(
                    f"{shared} rows{owner} are both training and validation rows: they influence "
                    f"every release twice and are charged once. Remove them from one part, or use "
                    f"clipping='whole'"
                )


def _row_bytes(rows: Tree) -> np.ndarray:
    """Return the bytes of each row."""
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(rows)]
    flat = [leaf.reshape(len(leaf), -1) for leaf in leaves]
    return np.concatenate([leaf.view(np.uint8) for leaf in flat if leaf.size], axis=1)


def without_site_values(algorithm: Any) -> Any:
    """Return a specialized method without the values that differ between sites."""
    estimator = algorithm.privacy
    if estimator is None:
        return algorithm
    return algorithm.with_estimator(replace(estimator, secret=None, multiplier=None, limit=None))


def ledger_terms(algorithm: Any, problem: Problem) -> LedgerTerms | None:
    """Return the terms of the ledger of a site with this problem; None if nothing is private."""
    estimator = algorithm.privacy
    if estimator is None or estimator.budget is None:
        return None
    plan = estimator.plan(algorithm, problem)
    check_disjoint_rows(plan, problem)
    (mechanism,) = plan.mechanisms
    run = hashlib.sha256(np.asarray(estimator.secret, np.uint32).tobytes()).hexdigest()
    return LedgerTerms(estimator.budget.epsilon, estimator.budget.delta, mechanism, run)


def describe_privacy(algorithm: Any, problem: Problem, rounds: int) -> dict[str, Any] | None:
    """Return budget, noise and epsilon after `rounds` rounds of the most revealing agent."""
    estimator = algorithm.privacy
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


def describe_noise(algorithm: Any, problem: Problem) -> str:
    """Say how large the noise of a private method is, and what alpha it allows; else nothing."""
    estimator = algorithm.privacy
    if estimator is None or estimator.budget is None:
        return ""
    budget, plan = estimator.budget, estimator.plan(algorithm, problem)
    multiplier = max(mechanism.multiplier for mechanism in plan.mechanisms)
    return (
        f"privacy: epsilon = {budget.epsilon:g} and delta = {budget.delta:g} for "
        f"{min(plan.limits):,} rounds, with a noise multiplier of {multiplier:.3g} and clipping "
        f"{'by row' if plan.by_row else 'whole'}. {compare_noise(algorithm, problem)}"
    )


def compare_noise(algorithm: Any, problem: Problem) -> str:
    """Compare the noise of a private method with its directions; say what alpha it allows."""
    estimator = algorithm.privacy
    plan, clip = estimator.plan(algorithm, problem), float(estimator.clip.x)
    norm = plan.noise * clip
    comparison = (
        f"The noise in a site's direction of x has norm {norm:.3g}, the direction itself at most "
        f"{clip:g}, the clip"
    )
    if plan.noise <= 1:
        return f"{comparison}; the noise needs no smaller alpha"
    advice = "give smaller steps of x"
    if algorithm.x.optimizer is None:
        alpha = float(algorithm.x.step(0))
        advice = (
            f"alpha = {alpha:.3g} moves x by {alpha * norm:.2g} of noise in a round; give about "
            f"{alpha / plan.noise:.2g}"
        )
    more_rows = ", larger batches" if plan.by_row else ""
    return f"{comparison}: {advice}, fewer rounds{more_rows} or a larger epsilon"
