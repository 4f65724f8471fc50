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
from itertools import chain, count, takewhile
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ..core import host_transfer, pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..network import Network
from ..problem import Objectives, Problem


@pytrees.pytree
@dataclass(frozen=True)
class PerAgent:
    """A per-agent number in the algorithm of all agents."""

    values: jax.Array  # (agents,)


def agent_numbers(algorithm: Any, agent: Any) -> Any:
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


Measured = tuple[np.ndarray, Cost]  # (agents, numbers), and the cost of measuring
Measure = Callable[[], Measured]
Rows = Callable[[int], Objectives]  # objectives by batch size


class Consensus(Protocol):
    """Communication of measurements between agents: by name, measured once."""

    def local(self, name: str, measure: Measure) -> Measured:
        """Return each agent's own measurement."""

    def maximum(self, name: str, measure: Measure) -> Measured:
        """Return the maximum of each number over all agents of the network."""


class SingleProcess:
    """Communication within a single process, which has all agents."""

    def local(self, name: str, measure: Measure) -> Measured:
        return measure()

    def maximum(self, name: str, measure: Measure) -> Measured:
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
    past: dict[str, ResolvedValue] = field(
        default_factory=dict
    )  # earlier values, to be estimated again
    moved: tuple[Tree, Tree] | None = None  # x and y of all agents; None: the start
    agent: int | None = None  # owner of the problem's rows; None: all agents
    groups: Sequence[np.ndarray] | None = None  # groups of agents to measure here, in turn
    consensus: Consensus = field(default_factory=SingleProcess)
    round: int = 0  # rounds completed

    @property
    def agents(self) -> int:
        """Number of agents, m."""
        return self.network.agents if self.network else self.problem.agents

    @property
    def numbers(self) -> jax.Array:
        """Numbers of the agents whose rows the problem has."""
        here = np.arange(self.problem.agents) if self.agent is None else [self.agent]
        return host_transfer.to_device(here)

    @property
    def point(self) -> tuple[Tree, Tree]:
        """x and y of all agents, with the agent axis first."""
        if self.moved is not None:
            return self.moved
        x, y = host_transfer.broadcast_to_agents(self.problem.start(self.seed), self.problem.agents)
        return x, y

    def each(self, look: Callable[[Rows, Tree, jax.Array], Any], point: Tree) -> Any:
        """Return look(rows, point, numbers) for the agents to measure here, agents first.

        It is called for one group at a time, or for all: rows(batch) are the objectives, `point`
        the arrays, `numbers` the numbers of these agents.
        """
        if self.groups is None:
            return look(self.problem.objectives, point, self.numbers)
        found = []
        for group in self.groups:
            rows = partial(self.problem.objectives, agents=group)
            there = jax.tree.map(lambda a: a[group], point)
            found.append(jax.tree.map(np.asarray, look(rows, there, jnp.asarray(group))))
        return jax.tree.map(lambda *a: np.concatenate(a), *found)

    def once(self, name: str, compute: Callable[["ResolutionContext"], ResolvedValue]) -> Any:
        """Return the value of `compute`, evaluated and charged on first use."""
        if name not in self.memory:
            self.memory[name] = compute(self)
        return self.memory[name].value

    def at(self, x: Tree, y: Tree, forget: bool = False, round: int = 0) -> "ResolutionContext":
        """Return the context after `round` rounds: numbers that do not last are estimated again.

        `forget` drops earlier values, which come from a run that broke. The costs so far become one
        entry, including those of numbers that are no longer requested, so that no cost is lost.
        """
        paid = ResolvedValue(0, spent(self.memory), *talked(self.memory), lasting=True)
        lasting = {
            n: ResolvedValue(f.value, lasting=True) for n, f in self.memory.items() if f.lasting
        }
        past = {n: ResolvedValue(math.nan if forget else f.value) for n, f in self.memory.items()}
        memory = lasting | {PAID: paid}
        return dataclasses.replace(self, memory=memory, past=past, moved=(x, y), round=round)

    def before(self, name: str, default: Any) -> Any:
        """Return the earlier value for `name`, or `default`."""
        value = self.past.get(name, ResolvedValue(math.nan)).value
        return value if np.isfinite(value).all() else default

    @property
    def changes(self) -> bool:
        """Whether any number is estimated again during the run."""
        return not all(found.lasting for found in self.memory.values())


def reestimation_rounds(rounds: int) -> list[int]:
    """Return the rounds in which the upper loss is monitored: after 1, 50, 100, 200, ..."""
    return list(takewhile(lambda t: t <= rounds, chain([1], (50 * 2**k for k in count()))))


@dataclass(frozen=True)
class Deferred:
    """A number to be computed before the run."""

    name: str
    compute: Callable[[ResolutionContext], ResolvedValue]


class Resolved(NamedTuple):
    """An algorithm with all numbers resolved, and the costs of resolving them."""

    algorithm: Any
    numbers: dict[str, float]  # all resolved numbers by name; see `by_name`
    cost: Cost  # per agent, of the latest estimates: not yet charged
    rounds: int  # of communication only, since the start
    bytes: int  # over all edges, in both directions, since the start


def specialize(algorithm: Any, problem: Problem) -> Any:
    """Specialize the algorithm for `problem`."""
    return algorithm.specialize(problem) if hasattr(algorithm, "specialize") else algorithm


def resolve(algorithm: Any, setting: ResolutionContext) -> Resolved:
    """Replace every `Deferred` in leaves and static fields of `algorithm` by its number.

    The agents agree on a number by max-consensus: each sends its neighbours the largest known
    value, for as many rounds as the network's diameter.
    """
    algorithm = specialize(algorithm, setting.problem)
    filled = fill(algorithm, setting)
    diameter, sent = 0, 0
    if setting.network and agreed_bytes(setting.memory):
        diameter = setting.network.diameter
        sent = setting.network.count_messages(diameter)
    return Resolved(
        jax.tree.map(_plain, filled),
        by_name(setting.memory),
        spent({name: found for name, found in setting.memory.items() if name != PAID}),
        rounds=talked(setting.memory).talks * diameter,
        bytes=agreed_bytes(setting.memory) * sent,
    )


def _plain(number: Any) -> Any:
    """Return an array as the compiled program has it; host arrays are cheaper to make."""
    if isinstance(number, jax.Array):
        return number
    found = np.asarray(number)
    return found.astype(jax.dtypes.canonicalize_dtype(found.dtype))


def by_name(memory: Mapping[str, ResolvedValue]) -> dict[str, float]:
    """Return every number by name, without internal ones such as "_upper".

    For per-agent numbers, the smallest, and the largest as "most_" plus the name.
    """
    numbers = {}
    for name, found in memory.items():
        if not name.startswith("_"):
            numbers[name] = float(np.min(found.value))
            if np.size(found.value) > 1:
                numbers[f"most_{name}"] = float(np.max(found.value))
    return numbers


def spent(memory: Mapping[str, ResolvedValue]) -> Cost:
    """Return the total cost of the numbers in `memory`."""
    total = Cost()
    for found in memory.values():
        total = pytrees.add(total, found.cost)
    return total


class Talked(NamedTuple):
    """Count of agreed numbers, and of the exchanges for them."""

    agreed: int
    talks: int


def talked(memory: Mapping[str, ResolvedValue]) -> Talked:
    """Count the exchanges that the numbers in `memory` needed."""
    found = memory.values()
    return Talked(sum(one.agreed for one in found), sum(one.talks for one in found))


def agreed_bytes(memory: Mapping[str, ResolvedValue]) -> int:
    """Return the bytes of agreed numbers in `memory`, per round and neighbour."""
    size: int = jax.dtypes.canonicalize_dtype(float).itemsize
    return talked(memory).agreed * size


def fill(node: Any, setting: ResolutionContext) -> Any:
    """Return `node` with its `Deferred`s replaced by their numbers."""

    def number(open: Deferred) -> Any:
        value = setting.once(open.name, open.compute)
        if not np.ndim(value):
            return value
        return PerAgent(host_transfer.to_device(value)) if setting.agent is None else value[0]

    return swap(node, number)


def open_numbers(node: Any) -> list[str]:
    """Return the names of the numbers that `node` leaves to the run."""
    names: list[str] = []

    def first(open: Deferred) -> int:
        names.append(open.name)
        return 0

    swap(node, first)
    return sorted(set(names))


def swap(node: Any, number: Callable[[Deferred], Any]) -> Any:
    """Return `node` with every `Deferred` replaced by the result of `number`."""
    if isinstance(node, Deferred):
        return number(node)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = {f.name: getattr(node, f.name) for f in dataclasses.fields(node)}
        return dataclasses.replace(node, **{k: swap(v, number) for k, v in fields.items()})
    return node
