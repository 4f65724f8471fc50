"""Sums and averages over all agents, on one device or several."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from ..core import pytrees
from ..core.pytrees import Tree
from ..hardware.device_memory import map_in_groups
from ..problem import Objectives
from . import lower_solution


@dataclass(frozen=True)
class AgentStatistics:
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

    def average(self, agent_values: Tree) -> Tree:
        """Return the mean over the agents."""
        return jax.tree.map(lambda a: self.total(a) / self.count, agent_values)

    def map_agents(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Map a `function` of one agent over all agents."""
        map_local = map_in_groups(function, self.size)
        if self.shared is None:
            return map_local
        spec = PartitionSpec(self.shared.mesh.axis_names)
        return jax.shard_map(
            map_local, mesh=self.shared.mesh, in_specs=spec, out_specs=spec, check_vma=False
        )

    def broadcast(self, value: Tree) -> Tree:
        """Return the same value for every agent."""
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (self.places, *a.shape)), value)

    def squared_deviation(self, values: Tree) -> jax.Array:
        """Return the sum of squared distances from the mean."""
        deviations = jax.tree.map(lambda a, mean: a - mean, values, self.average(values))
        return self.total(jax.vmap(lambda a: pytrees.dot(a, a))(deviations))

    def common_consensus(self, problem: Objectives, y: Tree, z: Tree) -> dict[str, jax.Array]:
        """Return `y_consensus` and `z_consensus`, which only a common lower level has."""
        values = {"y_consensus": y, "z_consensus": z} if problem.lower_level == "common" else {}
        return {n: self.squared_deviation(v) for n, v in values.items() if v is not None}

    def pooled_oracle(self, problem: Objectives) -> lower_solution.MeanOracle:
        """Return the oracle of the common lower level."""

        def mean(function: Callable[..., Tree], *arguments: Tree) -> Tree:
            map_agents = self.map_agents(
                lambda objectives, *arguments: function(
                    lower_solution.AgentOracle(objectives), *arguments
                )
            )
            return self.average(map_agents(problem, *self.broadcast(arguments)))

        return lower_solution.MeanOracle(mean, jnp.sum(problem.train.count))
