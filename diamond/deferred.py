"""Numbers left to the runtime, which alone knows the problem.

An algorithm is a pytree of numbers. One that its user did not give stands there as a `Deferred`,
and whoever runs the algorithm puts the number in its place, once, before the first round.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from . import tree
from .cost import Cost
from .problem import Problem


@dataclass(frozen=True)
class Deferred:
    """A number to be computed from (problem, batch, seed), with what that costs each agent."""

    name: str
    compute: Callable[[Problem, int, int], tuple[Any, Cost]]


def resolve(
    algorithm: Any, problem: Problem, batch: int, seed: int
) -> tuple[Any, dict[str, float], Cost]:
    """The algorithm with numbers throughout, those found by name, and what finding them cost."""
    leaves, structure = jax.tree.flatten(algorithm)
    found: dict[str, Any] = {}
    spent = Cost()
    for leaf in leaves:
        if isinstance(leaf, Deferred) and leaf.name not in found:
            found[leaf.name], cost = leaf.compute(problem, batch, seed)
            spent = tree.add(spent, cost)
    numbers = [found[leaf.name] if isinstance(leaf, Deferred) else leaf for leaf in leaves]
    resolved = jax.tree.unflatten(structure, [jnp.asarray(number) for number in numbers])
    return resolved, {name: float(value) for name, value in found.items()}, spent
