"""Forecast of what a privacy budget allows: rounds, noise, and how much of a direction is left."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax

from ..privacy.private_runs import privacy_of
from ..problem import Problem


class PrivacyForecast(NamedTuple):
    """Noise that a number of rounds needs within a budget.

    `noise` is the norm of the noise in the sites' mean direction of x, relative to the clip, which
    no direction exceeds. Over the rounds noise averages out, directions do not: `error` = noise /
    sqrt(rounds) is the relative error of the run's mean direction, at best.
    """

    clipping: str
    epsilon: float
    rounds: int
    noise_multiplier: float
    noise: float
    error: float

    @property
    def verdict(self) -> str:
        """Return the consequence in words."""
        if self.error < 0.1:
            return "little accuracy is lost"
        if self.error < 0.5:
            return "some accuracy is lost"
        return "noise hides most of the directions" if self.error < 2 else "little can be learned"


def forecast_privacy(algorithm: Any, problem: Problem, rounds: int) -> list[PrivacyForecast]:
    """Return forecasts of the private method for a quarter of the rounds, all, and four times."""
    estimator = privacy_of(algorithm)
    choices = dict.fromkeys([max(rounds // 4, 1), rounds, 4 * rounds])
    if estimator.budget.noise_multiplier is not None:
        choices = dict.fromkeys([rounds])
    return [_forecast(algorithm, problem, count) for count in choices]


def _forecast(algorithm: Any, problem: Problem, rounds: int) -> PrivacyForecast:
    budget = replace(privacy_of(algorithm).budget, rounds=rounds)
    method = replace(algorithm, estimator=replace(algorithm.estimator, budget=budget))
    plan = method.estimator.plan(method, problem)
    x, _ = problem.start(0)
    size = sum(leaf.size for leaf in jax.tree.leaves(x))
    together = len(next(set(s.names) & set(plan.released) for s in method.stages if s.moves_x))
    smallest = min(problem.counts(part).min() for part in ("train", "valid"))
    rows = smallest if method.estimator.full else min(method.batch, smallest)
    spread = 1 / rows if plan.by_row else 2.0
    multiplier = max(mechanism.multiplier for mechanism in plan.mechanisms)
    noise = multiplier * spread * math.sqrt(together * size / problem.agents)
    possible = min(rounds, *plan.limits)
    kind = "row" if plan.by_row else "whole"
    error = noise / math.sqrt(max(possible, 1))
    return PrivacyForecast(kind, budget.epsilon, possible, multiplier, noise, error)
