"""Forecast of what a privacy budget allows: rounds, noise, and how much of a direction is left."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..algorithms.parts.composed import ComposedAlgorithm
from ..algorithms.parts.private_method import private
from ..problem import Problem
from ..schedules.step_schedules import constant


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


def can_be_private(algorithm: Any, problem: Problem, options: Mapping[str, Any]) -> bool:
    """Return whether a composed method with given step sizes can be private on this problem."""
    if not isinstance(algorithm, ComposedAlgorithm):
        return False
    step = constant(1.0)
    y, z = (v and replace(v, step=step) for v in (algorithm.y, algorithm.z))
    try:
        method = private(replace(algorithm, x=replace(algorithm.x, step=step), y=y, z=z), **options)
        method.privacy.plan(method, problem)
    except ValueError:
        return False
    return True


def forecast_privacy(algorithm: Any, problem: Problem, rounds: int) -> list[PrivacyForecast]:
    """Return forecasts of the private method for a quarter of the rounds, all, and four times."""
    estimator = algorithm.privacy
    choices = dict.fromkeys([max(rounds // 4, 1), rounds, 4 * rounds])
    if estimator.budget.noise_multiplier is not None:
        choices = dict.fromkeys([rounds])
    return [_forecast(algorithm, problem, count) for count in choices]


def _forecast(algorithm: Any, problem: Problem, rounds: int) -> PrivacyForecast:
    budget = replace(algorithm.privacy.budget, rounds=rounds)
    method = replace(algorithm, estimator=replace(algorithm.estimator, budget=budget))
    plan = method.estimator.plan(method, problem)
    multiplier = max(mechanism.multiplier for mechanism in plan.mechanisms)
    noise = plan.noise / math.sqrt(problem.agents)
    possible = min(rounds, *plan.limits)
    kind = "row" if plan.by_row else "whole"
    error = noise / math.sqrt(max(possible, 1))
    return PrivacyForecast(kind, budget.epsilon, possible, multiplier, noise, error)
