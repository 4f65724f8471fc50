"""What is tried of a method: numbers around those that it chooses for itself on the case.

The k-th setting multiplies them by the k-th draw, the same for every method; the first multiplies
by 1. So every method has as many trials, around numbers that one rule found for it.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from .. import catalogue
from ..auto.around import SHAPES, WEIGHTS, chosen, first, times
from ..hypergradient import neumann
from ..network import Network
from ..numbers.open_numbers import Setting, resolve
from ..problem import Problem
from ..rounds.algorithm import Algorithm

# Each number is drawn between these multiples of what was found, evenly in its logarithm. What is
# found is meant to be safe, so that alpha may be far too small: it reaches further up than down.
REACH = {"alpha": (1 / 8, 256.0), "beta": (1 / 4, 4.0), "weight": (1 / 8, 8.0), "lam": (1 / 4, 4.0)}
# Which of them moves which argument. AdaSDBO's steps adapt: `scale` and `first` are what it has.
MOVES = {"alpha": "alpha", "scale": "alpha", "beta": "beta", "first": "beta", "lam": "lam"}
MOVES |= dict.fromkeys(WEIGHTS, "weight")
LARGEST = {"weight": 1.0}
DRAWS = 20260101  # the seed of the factors


def factors(count: int) -> list[dict[str, float]]:
    """The first `count` draws: of `count` settings, the first k are those of a smaller budget.

    Scrambled points of Halton, which leave no large gaps however few they are.
    """
    points = qmc.Halton(len(REACH), seed=DRAWS).random(max(0, count - 1))
    ends = np.log(list(REACH.values())).T
    drawn = np.exp(ends[0] + points * (ends[1] - ends[0]))
    return [dict.fromkeys(REACH, 1.0), *(dict(zip(REACH, map(float, row))) for row in drawn)]


@dataclass(frozen=True)
class Tunable:
    """A method on a case: with any factors, or as it chooses its own numbers."""

    make: Callable[..., Algorithm]
    fixed: dict[str, Any]  # arguments that are not tuned
    base: dict[str, Any]  # numbers or schedules around which is tried
    free: dict[str, Any]  # arguments of the method that chooses for itself

    def given(self, factors: dict[str, float]) -> dict[str, Any]:
        """Its numbers and schedules times `factors`."""
        most = lambda name: LARGEST.get(MOVES[name], math.inf)
        return {n: times(v, factors[MOVES[n]], most(n)) for n, v in self.base.items()}

    def at(self, factors: dict[str, float]) -> tuple[Algorithm, dict[str, float]]:
        """The method with its numbers times `factors`, and these numbers in round 0."""
        given = self.given(factors)
        return self.make(**self.fixed, **given), {n: first(v) for n, v in given.items()}

    def untuned(self) -> Algorithm:
        """The method that chooses for itself, its inverse of g_yy too where it can."""
        return self.make(**self.free)


def tunable(
    name: str, problem: Problem, network: Network, batch: int, seed: int, **parts: Any
) -> Tunable:
    """The method `name`, or "method" made of `parts`, as it is tuned on this problem and network.

    Where a method may choose its inverse of g_yy, it is the chain of eq. (5), as published; only
    what is not tuned chooses. Its lengths (K of the chain, inner loops, periods) are those that it
    finds for itself.
    """
    make = catalogue.maker(name)
    taken = inspect.signature(make).parameters
    weights = {"momentum": ("eta", "gamma"), "average": ("theta",)}
    numbered = {*taken} - ({*WEIGHTS} - {*weights.get(parts["estimator"], ())} if parts else set())
    fixed: dict[str, Any] = parts | ({"batch": batch} if "batch" in taken else {})
    if "order" in taken:
        fixed["order"] = "atc"
    free = dict(fixed)
    if "hypergradient" in taken and taken["hypergradient"].default is None:
        fixed["hypergradient"] = neumann()
    made = make(**fixed)
    numbers = resolve(made, Setting(problem, network, made.batch, seed)).numbers
    if "hypergradient" in taken and "terms" in numbers:
        largest = numbers.get("most_lipschitz", numbers["lipschitz"])  # one agent has one alone
        fixed["hypergradient"] = neumann(int(numbers["terms"]), largest)
    fixed |= {n: int(numbers[n]) for n in ("inner", "period") if n in taken and n in numbers}
    base = chosen(numbers, [name for name in SHAPES if name in numbered])
    if not parts or parts["directions"] == "penalty":
        base |= {n: taken[n].default for n in ("lam", "scale", "first") if n in taken}
    return Tunable(make, fixed, base, free)
