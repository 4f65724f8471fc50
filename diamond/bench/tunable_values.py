"""Settings to try for a method: numbers around those that it learns on the case.

Setting k multiplies the learned numbers by draw k, the same for every method; the first draw is 1.
So every method gets the same number of trials around numbers learned by one rule.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from .. import catalogue
from ..engine.pilot_run import learned_numbers
from ..hypergradient import neumann
from ..interface.round_interface import Algorithm
from ..network import Network
from ..problem import Problem
from ..schedules.learned import learned_names
from ..tuning.scaled_schedules import SHAPES, WEIGHTS, first_value, make_schedules, scale_schedule

# Each factor is drawn log-uniformly between these multiples of the learned number. alpha reaches
# far in both directions: its first learned value is probed at one point.
FACTOR_RANGES = {
    "alpha": (1 / 64, 256.0),
    "beta": (1 / 4, 4.0),
    "weight": (1 / 8, 8.0),
    "lam": (1 / 4, 4.0),
}
# Arguments that each factor scales. AdaSDBO's steps adapt, so `scale` and `first` are tuned.
FACTOR_OF_ARGUMENT = {
    "alpha": "alpha",
    "scale": "alpha",
    "beta": "beta",
    "first": "beta",
    "lam": "lam",
}
FACTOR_OF_ARGUMENT |= dict.fromkeys(WEIGHTS, "weight")
MAX_VALUES = {"weight": 1.0}
FACTOR_SEED = 20260101  # seed of the factors


def draw_factors(count: int) -> list[dict[str, float]]:
    """Return the first `count` draws; a smaller budget uses a prefix of a larger one.

    The draws are scrambled Halton points, which leave no large gaps even if they are few.
    """
    points = qmc.Halton(len(FACTOR_RANGES), seed=FACTOR_SEED).random(max(0, count - 1))
    ends = np.log(list(FACTOR_RANGES.values())).T
    drawn = np.exp(ends[0] + points * (ends[1] - ends[0]))
    return [
        dict.fromkeys(FACTOR_RANGES, 1.0),
        *(dict(zip(FACTOR_RANGES, map(float, row))) for row in drawn),
    ]


@dataclass(frozen=True)
class Tunable:
    """Method on a case, with tuned or learned numbers."""

    make: Callable[..., Algorithm]
    fixed: dict[str, Any]  # arguments that are not tuned
    base: dict[str, Any]  # numbers or schedules to tune around
    free: dict[str, Any]  # arguments of the method that learns its numbers

    def with_factors(self, factors: dict[str, float]) -> tuple[Algorithm, dict[str, float]]:
        """Return the method with its numbers times `factors`, and these numbers in round 0."""
        max_value = lambda name: MAX_VALUES.get(FACTOR_OF_ARGUMENT[name], math.inf)
        numbers = {
            n: scale_schedule(v, factors[FACTOR_OF_ARGUMENT[n]], max_value(n))
            for n, v in self.base.items()
        }
        return self.make(**self.fixed, **numbers), {n: first_value(v) for n, v in numbers.items()}


def make_tunable(
    name: str, problem: Problem, network: Network, batch: int, *, seed: int
) -> Tunable:
    """Return the method `name` for tuning on this problem and network.

    A method that inverts g_yy by a chain or a warm start is tuned with the chain of eq. (5) and the
    bound that the method learned.
    """
    make = catalogue.maker(name)
    parameters = inspect.signature(make).parameters
    fixed_arguments: dict[str, Any] = {"batch": batch} if "batch" in parameters else {}
    if "order" in parameters:
        fixed_arguments["order"] = "atc"
    learning_arguments = dict(fixed_arguments)
    numbers = learned_numbers(problem, network, make(**fixed_arguments), seed)
    default = parameters["hypergradient"].default if "hypergradient" in parameters else None
    if "lipschitz" in numbers and "lipschitz" in learned_names(default):  # of a chain
        fixed_arguments["hypergradient"] = neumann(lipschitz=numbers["lipschitz"])
    base = make_schedules(
        numbers, [name for name in SHAPES if name in parameters and "alpha" in numbers]
    )
    base |= {n: parameters[n].default for n in ("lam", "scale", "first") if n in parameters}
    return Tunable(make, fixed_arguments, base, learning_arguments)
