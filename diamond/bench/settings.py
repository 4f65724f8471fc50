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

from .. import catalogue
from ..auto import step_sizes
from ..hypergradient import neumann
from ..network import Network
from ..numbers import schedule
from ..numbers.open_numbers import Setting, resolve
from ..problem import Problem
from ..rounds.algorithm import Algorithm

# Each number is drawn between 1 / reach and reach times what was found, evenly in its logarithm.
REACH = {"alpha": 16.0, "beta": 4.0, "weight": 8.0, "lam": 4.0}
# Which of them moves which argument. AdaSDBO's steps adapt: `scale` and `first` are what it has.
MOVES = {"alpha": "alpha", "scale": "alpha", "beta": "beta", "first": "beta", "lam": "lam"}
MOVES |= {"eta": "weight", "gamma": "weight", "theta": "weight"}
WEIGHTS = tuple(name for name, kind in MOVES.items() if kind == "weight")
LARGEST = {"weight": 1.0}
DRAWS = 20260101  # the seed of the factors


def factors(count: int) -> list[dict[str, float]]:
    """The first `count` draws: of `count` settings, the first k are those of a smaller budget."""
    found = [dict.fromkeys(REACH, 1.0)]
    random = np.random.default_rng(DRAWS)
    while len(found) < count:
        found.append({n: math.exp(random.uniform(-1, 1) * math.log(r)) for n, r in REACH.items()})
    return found[:count]


@dataclass(frozen=True)
class Tunable:
    """A method on a case: with any factors, or as it chooses its own numbers."""

    make: Callable[..., Algorithm]
    fixed: dict[str, Any]  # arguments that are not tuned
    base: dict[str, Any]  # numbers or schedules around which is tried

    def given(self, factors: dict[str, float]) -> dict[str, Any]:
        """Its numbers and schedules times `factors`."""
        most = lambda name: LARGEST.get(MOVES[name], math.inf)
        return {n: _times(v, factors[MOVES[n]], most(n)) for n, v in self.base.items()}

    def at(self, factors: dict[str, float]) -> tuple[Algorithm, dict[str, float]]:
        """The method with its numbers times `factors`, and these numbers in round 0."""
        given = self.given(factors)
        return self.make(**self.fixed, **given), {n: _first(v) for n, v in given.items()}

    def untuned(self) -> Algorithm:
        """The method that chooses its own numbers."""
        return self.make(**self.fixed)


def tunable(
    name: str, problem: Problem, network: Network, batch: int, seed: int, **parts: Any
) -> Tunable:
    """The method `name`, or "method" made of `parts`, as it is tuned on this problem and network.

    Its lengths (K of the chain, inner loops, periods) are those that it finds for itself.
    """
    make = catalogue.maker(name)
    taken = inspect.signature(make).parameters
    weights = {"momentum": ("eta", "gamma"), "average": ("theta",)}
    numbered = {*taken} - ({*WEIGHTS} - {*weights.get(parts["estimator"], ())} if parts else set())
    fixed: dict[str, Any] = parts | ({"batch": batch} if "batch" in taken else {})
    if "order" in taken:
        fixed["order"] = "atc"
    made = make(**fixed)
    numbers = resolve(made, Setting(problem, network, made.batch, seed)).numbers
    if "hypergradient" in taken and "terms" in numbers:
        fixed["hypergradient"] = neumann(int(numbers["terms"]), numbers["most_lipschitz"])
    fixed |= {n: int(numbers[n]) for n in ("inner", "period") if n in taken and n in numbers}
    shapes: dict[str, Any] = {
        "alpha": schedule.ramp(step_sizes.SLOWING, step_sizes.WARM),
        "beta": step_sizes.SLOWING,
        "eta": step_sizes.FADING,
        "gamma": step_sizes.FADING,
        "theta": step_sizes.SLOWING,
    }
    found = {n: numbers.get("eta" if MOVES[n] == "weight" else n) for n in shapes if n in numbered}
    base = {n: _times(shapes[n], first) for n, first in found.items() if first is not None}
    if not parts or parts["directions"] == "penalty":
        base |= {n: taken[n].default for n in ("lam", "scale", "first") if n in taken}
    return Tunable(make, fixed, base)


def _times(given: Any, factor: float, most: float = math.inf) -> Any:
    """A number or a schedule times `factor`; its first value at most `most`."""
    if most < math.inf:
        factor = min(factor, most / _first(given))
    if isinstance(given, schedule.Ramp):
        return schedule.ramp(_times(given.of, factor), given.rounds)
    return given * factor if isinstance(given, int | float) else schedule.scaled(factor, given)


def _first(given: Any) -> float:
    """A number in round 0, or what it would be there without its ramp."""
    return float(schedule.schedule(given.of if isinstance(given, schedule.Ramp) else given)(0))
