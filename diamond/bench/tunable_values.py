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
from ..tuning.scaled_schedules import SHAPES, WEIGHTS, chosen, first, times

# Each factor is drawn log-uniformly between these multiples of the learned number. alpha reaches
# further up than down.
REACH = {"alpha": (1 / 8, 256.0), "beta": (1 / 4, 4.0), "weight": (1 / 8, 8.0), "lam": (1 / 4, 4.0)}
# Arguments that each factor scales. AdaSDBO's steps adapt, so `scale` and `first` are tuned.
MOVES = {"alpha": "alpha", "scale": "alpha", "beta": "beta", "first": "beta", "lam": "lam"}
MOVES |= dict.fromkeys(WEIGHTS, "weight")
LARGEST = {"weight": 1.0}
DRAWS = 20260101  # seed of the factors


def factors(count: int) -> list[dict[str, float]]:
    """Return the first `count` draws; a smaller budget uses a prefix of a larger one.

    The draws are scrambled Halton points, which leave no large gaps even if they are few.
    """
    points = qmc.Halton(len(REACH), seed=DRAWS).random(max(0, count - 1))
    ends = np.log(list(REACH.values())).T
    drawn = np.exp(ends[0] + points * (ends[1] - ends[0]))
    return [dict.fromkeys(REACH, 1.0), *(dict(zip(REACH, map(float, row))) for row in drawn)]


@dataclass(frozen=True)
class Tunable:
    """Method on a case, with tuned or learned numbers."""

    make: Callable[..., Algorithm]
    fixed: dict[str, Any]  # arguments that are not tuned
    base: dict[str, Any]  # numbers or schedules to tune around
    free: dict[str, Any]  # arguments of the method that learns its numbers

    def at(self, factors: dict[str, float]) -> tuple[Algorithm, dict[str, float]]:
        """Return the method with its numbers times `factors`, and these numbers in round 0."""
        most = lambda name: LARGEST.get(MOVES[name], math.inf)
        given = {n: times(v, factors[MOVES[n]], most(n)) for n, v in self.base.items()}
        return self.make(**self.fixed, **given), {n: first(v) for n, v in given.items()}

    def untuned(self) -> Algorithm:
        """Return the method that learns its numbers."""
        return self.make(**self.free)


def tunable(name: str, problem: Problem, network: Network, batch: int, seed: int) -> Tunable:
    """Return the method `name` for tuning on this problem and network.

    A method that inverts g_yy by a chain or a warm start is tuned with the chain of eq. (5) and the
    bound that the method learned.
    """
    make = catalogue.maker(name)
    taken = inspect.signature(make).parameters
    fixed: dict[str, Any] = {"batch": batch} if "batch" in taken else {}
    if "order" in taken:
        fixed["order"] = "atc"
    free = dict(fixed)
    numbers = learned_numbers(problem, network, make(**fixed), seed)
    if "hypergradient" in taken and "lipschitz" in numbers and _is_chain(taken["hypergradient"]):
        fixed["hypergradient"] = neumann(lipschitz=numbers["lipschitz"])
    base = chosen(numbers, [name for name in SHAPES if name in taken and "alpha" in numbers])
    base |= {n: taken[n].default for n in ("lam", "scale", "first") if n in taken}
    return Tunable(make, fixed, base, free)


def _is_chain(parameter: inspect.Parameter) -> bool:
    """Return whether the default of this parameter leaves the bound of a chain to be learned."""
    return "lipschitz" in learned_names(parameter.default)
