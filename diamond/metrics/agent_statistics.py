"""Sums and averages over all agents, on one device or several."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from ..core import pytrees
from ..core.pytrees import Tree
from ..hardware.memory import grouped
from ..problem import Objectives
from . import lower_solution


@dataclass(frozen=True)
class OverAgents:
    """Application of functions of one agent to all agents, and their sums.

    Only the first `count` places are agents; the others are copies that fill the devices. On
    several devices, terms are gathered first (`shared`) and then added agent by agent, so that any
    number of devices gives the same bits. `size` agents per device are computed in parallel, all if
    None.
    """

    places: int
    count: int
    shared: NamedSharding | None = None
    size: int | None = None

    def total(self, a: jax.Array) -> jax.Array:
        """Return the sum over the agents."""
        if self.shared is None:
            return a.sum(0)
        rows = jax.lax.with_sharding_constraint(a, self.shared)[: self.count]
        return jax.lax.scan(lambda sum, row: (sum + row, None), jnp.zeros_like(a[0]), rows)[0]

    def average(self, each: Tree) -> Tree:
        """Return the mean over the agents."""
        return jax.tree.map(lambda a: self.total(a) / self.count, each)

    def each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Map a `function` of one agent over all agents."""
        local = grouped(function, self.size)
        if self.shared is None:
            return local
        cut = PartitionSpec(self.shared.mesh.axis_names)
        return jax.shard_map(
            local, mesh=self.shared.mesh, in_specs=cut, out_specs=cut, check_vma=False
        )

    def broadcast(self, value: Tree) -> Tree:
        """Return the same value for every agent."""
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (self.places, *a.shape)), value)

    def spread(self, values: Tree) -> jax.Array:
        """Return the sum of squared distances from the mean."""
        off = jax.tree.map(lambda a, mean: a - mean, values, self.average(values))
        return self.total(jax.vmap(lambda a: pytrees.dot(a, a))(off))

    def pooled(self, problem: Objectives) -> lower_solution.Together:
        """Return the oracle of the common lower level."""

        def mean(function: Callable[..., Tree], *given: Tree) -> Tree:
            each = self.each(lambda own, *given: function(lower_solution.Own(own), *given))
            return self.average(each(problem, *self.broadcast(given)))

        return lower_solution.Together(mean, jnp.sum(problem.train.count))
