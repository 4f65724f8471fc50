"""Deferred numbers, which the engine resolves because it knows problem and network.

A number that the user did not give is a `Deferred` in the algorithm. The engine replaces it before
the first round, and estimates it again a few times during the run. Each agent measures on its own
rows; for numbers that must be common, the network takes the maximum.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ..core import host_transfer, pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..network import Network
from ..network.spanning_tree import exact_mean_obstacle
from ..problem import Objectives, Problem


@pytrees.pytree
class PerAgent:
    """A per-agent number in the algorithm of all agents."""

    values: jax.Array  # (agents,)


def select_agent_values(algorithm: Any, agent: Any) -> Any:
    """Return the algorithm of `agent`, with its own numbers."""
    pick = lambda leaf: leaf.values[agent] if isinstance(leaf, PerAgent) else leaf
    return jax.tree.map(pick, algorithm, is_leaf=lambda leaf: isinstance(leaf, PerAgent))


PAID = "_paid"  # key of the costs of earlier estimates


class ResolvedValue(NamedTuple):
    """A resolved number, and the cost of estimating it."""

    value: Any  # an array with one entry per agent if each has its own
    cost: Cost = Cost()  # per agent, or of one agent if all pay the same
    agreed: int = 0  # numbers that the network had to agree on
    talks: int = 0  # exchanges needed to agree
    lasting: bool = False  # valid for the whole run


Measurement = tuple[np.ndarray, Cost]  # (agents, numbers), and the cost of measuring
MeasureFunction = Callable[[], Measurement]
ObjectivesByBatch = Callable[[int], Objectives]  # objectives by batch size


class Consensus(Protocol):
    """Communication of measurements between agents: by name, measured once."""

    def local(self, name: str, measure: MeasureFunction) -> Measurement:
        """Return each agent's own measurement."""

    def maximum(self, name: str, measure: MeasureFunction) -> Measurement:
        """Return the maximum of each number over all agents of the network."""


class SingleProcess:
    """Communication within a single process, which has all agents."""

    def local(self, name: str, measure: MeasureFunction) -> Measurement:
        return measure()

    def maximum(self, name: str, measure: MeasureFunction) -> Measurement:
        values, cost = measure()
        return np.max(values, axis=0), cost


@dataclass(frozen=True)
class ResolutionContext:
    """Context in which numbers are resolved: problem, network, and the agents' points."""

    problem: Problem
    network: Network | None  # None: nothing to agree on
    batch: int
    seed: int
    memory: dict[str, ResolvedValue] = field(default_factory=dict)
    # Earlier values, to be estimated again.
    past: dict[str, ResolvedValue] = field(default_factory=dict)
    current_point: tuple[Tree, Tree] | None = None  # x and y of all agents; None: the start
    agent: int | None = None  # owner of the problem's rows; None: all agents
    groups: Sequence[np.ndarray] | None = None  # groups of agents to measure here, in turn
    consensus: Consensus = field(default_factory=SingleProcess)
    round: int = 0  # rounds completed
    members: Sequence[int] | None = None  # numbers of the agents; None: 0, 1, ...
    first_round: int = 0  # of these members

    @property
    def agents(self) -> int:
        """Number of agents, m."""
        return self.network.agents if self.network else self.problem.agents

    @property
    def agent_indices(self) -> jax.Array:
        """Indices of the agents whose rows the problem has."""
        everyone = np.arange(self.problem.agents) if self.members is None else self.members
        return host_transfer.to_device(everyone if self.agent is None else [self.agent])

    @property
    def point(self) -> tuple[Tree, Tree]:
        """x and y of all agents, with the agent axis first."""
        if self.current_point is not None:
            return self.current_point
        x, y = host_transfer.broadcast_to_agents(self.problem.start(self.seed), self.problem.agents)
        return x, y

    def map_agents(
        self, measure: Callable[[ObjectivesByBatch, Tree, jax.Array], Any], point: Tree
    ) -> Any:
        """Return measure(rows, point, agents) for the agents to measure here, agents first.

        It is called for one group at a time, or for all: rows(batch) are the objectives, `point`
        the arrays, `agents` the indices of these agents.
        """
        if self.groups is None:
            return measure(self.problem.objectives, point, self.agent_indices)
        results = []
        for group in self.groups:
            rows = partial(self.problem.objectives, agents=group)
            point_of_group = jax.tree.map(lambda a, group=group: a[group], point)
            results.append(
                jax.tree.map(np.asarray, measure(rows, point_of_group, jnp.asarray(group)))
            )
        return jax.tree.map(lambda *a: np.concatenate(a), *results)

    def cached(self, name: str, compute: Callable[["ResolutionContext"], ResolvedValue]) -> Any:
        """Return the value of `compute`, evaluated and charged on first use."""
        if name not in self.memory:
            self.memory[name] = compute(self)
        return self.memory[name].value

    def after_rounds(
        self, x: Tree, y: Tree, forget: bool = False, round: int = 0
    ) -> "ResolutionContext":
        """Return the context after `round` rounds: numbers that do not last are estimated again.

        `forget` drops earlier values, which come from a run that broke. The costs so far become one
        entry, including those of numbers that are no longer requested, so that no cost is lost.
        """
        paid = ResolvedValue(
            0, total_cost(self.memory), *count_exchanges(self.memory), lasting=True
        )
        lasting = {
            name: ResolvedValue(resolved.value, lasting=True)
            for name, resolved in self.memory.items()
            if resolved.lasting
        }
        past = {
            name: ResolvedValue(math.nan if forget else resolved.value)
            for name, resolved in self.memory.items()
        }
        memory = lasting | {PAID: paid}
        return dataclasses.replace(
            self, memory=memory, past=past, current_point=(x, y), round=round
        )

    def earlier_value(self, name: str, default: Any) -> Any:
        """Return the earlier value for `name`, or `default`."""
        value = self.past.get(name, ResolvedValue(math.nan)).value
        return value if np.isfinite(value).all() else default

    @property
    def needs_reestimation(self) -> bool:
        """Whether any number is estimated again during the run."""
        return not all(resolved.lasting for resolved in self.memory.values())


def reestimation_rounds(rounds: int) -> list[int]:
    """Return the rounds up to `rounds` with new estimates: after 1, 50, 100, 200, 300, ..."""
    return [t for t in (1, 50) if t <= rounds] + list(range(100, rounds + 1, 100))


@dataclass(frozen=True)
class Deferred:
    """A number to be computed before the run."""

    name: str
    compute: Callable[[ResolutionContext], ResolvedValue]


agent_count = Deferred("_agents", lambda context: ResolvedValue(context.agents, lasting=True))
first_round = Deferred(
    "_first_round", lambda context: ResolvedValue(np.int32(context.first_round), lasting=True)
)


class ResolvedAlgorithm(NamedTuple):
    """An algorithm with all numbers resolved, and the costs of resolving them."""

    algorithm: Any
    values: dict[str, float]  # all resolved numbers by name; see `values_by_name`
    cost: Cost  # per agent, of the latest estimates: not yet charged
    rounds: int  # of communication only, since the start
    bytes: int  # over all edges, in both directions, since the start


def for_network(algorithm: Any, network: Network | None) -> Any:
    """Return the algorithm for a network on which exact means may be impossible."""
    obstacle = "" if network is None else exact_mean_obstacle(network)
    return algorithm.without_exact_means(obstacle) if obstacle else algorithm


def specialize(algorithm: Any, problem: Problem, network: Network | None = None) -> Any:
    """Specialize the algorithm for `problem`, and for `network` if given."""
    algorithm = for_network(algorithm, network).specialize(problem)
    is_robust = network is not None and network.defense
    return algorithm.with_robust_mixing() if is_robust else algorithm


def resolve(algorithm: Any, context: ResolutionContext) -> ResolvedAlgorithm:
    """Replace every `Deferred` in leaves and static fields of `algorithm` by its number.

    The agents agree on a number by max-consensus: each sends its neighbours the largest known
    value, for as many rounds as the network's diameter.
    """
    algorithm = specialize(algorithm, context.problem, context.network)
    resolved = with_numbers(algorithm, context)
    for check in algorithm.checks:
        context.cached(check.name, check.compute)
    diameter, messages = 0, 0
    if context.network and agreed_bytes(context.memory):
        diameter = context.network.diameter
        messages = context.network.count_messages(diameter)
    return ResolvedAlgorithm(
        resolved,
        values_by_name(context.memory),
        total_cost({name: resolved for name, resolved in context.memory.items() if name != PAID}),
        rounds=count_exchanges(context.memory).talks * diameter,
        bytes=agreed_bytes(context.memory) * messages,
    )


def _as_array(number: Any) -> Any:
    """Return an array as the compiled program has it; host arrays are cheaper to make."""
    if isinstance(number, jax.Array):
        return number
    array = np.asarray(number)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))


def values_by_name(memory: Mapping[str, ResolvedValue]) -> dict[str, float]:
    """Return every number by name, without internal ones such as "_upper".

    For per-agent numbers, the smallest, and the largest as "most_" plus the name.
    """
    values = {}
    for name, resolved in memory.items():
        if not name.startswith("_"):
            values[name] = float(np.min(resolved.value))
            if np.size(resolved.value) > 1:
                values[f"most_{name}"] = float(np.max(resolved.value))
    return values


def total_cost(memory: Mapping[str, ResolvedValue]) -> Cost:
    """Return the total cost of the numbers in `memory`."""
    total = Cost()
    for resolved in memory.values():
        total = pytrees.add(total, resolved.cost)
    return total


class ExchangeCount(NamedTuple):
    """Count of agreed numbers, and of the exchanges for them."""

    agreed: int
    talks: int


def count_exchanges(memory: Mapping[str, ResolvedValue]) -> ExchangeCount:
    """Count the exchanges that the numbers in `memory` needed."""
    resolved = memory.values()
    return ExchangeCount(
        sum(value.agreed for value in resolved), sum(value.talks for value in resolved)
    )


def agreed_bytes(memory: Mapping[str, ResolvedValue]) -> int:
    """Return the bytes of agreed numbers in `memory`, per round and neighbour."""
    size: int = jax.dtypes.canonicalize_dtype(float).itemsize
    return count_exchanges(memory).agreed * size


def fill_deferred(node: Any, context: ResolutionContext) -> Any:
    """Return `node` with its `Deferred`s replaced by their numbers."""

    def value_of(deferred: Deferred) -> Any:
        value = context.cached(deferred.name, deferred.compute)
        if not np.ndim(value):
            return value
        return PerAgent(host_transfer.to_device(value)) if context.agent is None else value[0]

    return replace_deferred(node, value_of)


def with_numbers(node: Any, context: ResolutionContext) -> Any:
    """Return `node` with its `Deferred`s replaced, and all its numbers as arrays."""
    return jax.tree.map(_as_array, fill_deferred(node, context))


def deferred_names(algorithm: Any) -> list[str]:
    """Return the names of the numbers that `algorithm` leaves to the run, and of its checks."""
    names = [check.name for check in algorithm.checks]

    def record_name(deferred: Deferred) -> int:
        names.append(deferred.name)
        return 0

    replace_deferred(algorithm, record_name)
    return sorted(set(names))


def replace_deferred(node: Any, value_of: Callable[[Deferred], Any]) -> Any:
    """Return `node` with every `Deferred` replaced by its result of `value_of`."""
    return pytrees.replace_instances(node, Deferred, value_of)
