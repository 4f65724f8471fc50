"""Numbers left to the runtime, which alone knows the problem and the network.

A number that the user did not give stands in the algorithm as a `Deferred`; whoever runs the
algorithm puts the number in its place before the first round, and looks again a few times while
the agents move on. What it is found from, each agent measures on its own rows; of what all must
have in common, the network takes the largest.
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

from ..core import host, tree
from ..core.cost import Cost
from ..core.tree import Tree
from ..network import Network
from ..problem import Objectives, Problem


@tree.pytree
@dataclass(frozen=True)
class Own:
    """A number that each agent has of its own, in the algorithm of all of them."""

    values: jax.Array  # (agents,)


def agent_numbers(algorithm: Any, agent: Any) -> Any:
    """The algorithm as `agent` has it: with its own numbers."""
    pick = lambda leaf: leaf.values[agent] if isinstance(leaf, Own) else leaf
    return jax.tree.map(pick, algorithm, is_leaf=lambda leaf: isinstance(leaf, Own))


PAID = "_paid"  # among what was found: all that finding has cost before the agents moved on


class Found(NamedTuple):
    """A number, and what finding it has cost each agent."""

    value: Any  # an array of one entry an agent, where each has its own
    cost: Cost = Cost()  # of each agent, or of any where all pay the same
    agreed: int = 0  # numbers that the network had to agree on for it
    talks: int = 0  # how often it talked for that
    lasting: bool = False  # found once for the whole run


Measured = tuple[np.ndarray, Cost]  # (agents, numbers), and what measuring them cost
Measure = Callable[[], Measured]
Rows = Callable[[int], Objectives]  # ready for blocks of so many rows


class Talk(Protocol):
    """How what agents measure becomes known: by name, measured once."""

    def alone(self, name: str, measure: Measure) -> Measured:
        """Each agent's own."""

    def largest(self, name: str, measure: Measure) -> Measured:
        """The largest of each number over all agents of the network."""


class AllHere:
    """All agents are in this process: nothing to talk about."""

    def alone(self, name: str, measure: Measure) -> Measured:
        return measure()

    def largest(self, name: str, measure: Measure) -> Measured:
        values, cost = measure()
        return np.max(values, axis=0), cost


@dataclass(frozen=True)
class Setting:
    """What numbers are found from: the problem, the network, and where the agents stand."""

    problem: Problem
    network: Network | None  # None: nothing to agree on
    batch: int
    seed: int
    memory: dict[str, Found] = field(default_factory=dict)
    past: dict[str, Found] = field(default_factory=dict)  # found before, to be found anew
    moved: tuple[Tree, Tree] | None = None  # x and y of all agents; None: they are at the start
    agent: int | None = None  # whose rows the problem has; None: it has those of all agents
    groups: Sequence[np.ndarray] | None = None  # agents to measure here, one group after another
    talk: Talk = field(default_factory=AllHere)
    round: int = 0  # rounds made so far

    @property
    def agents(self) -> int:
        """m."""
        return self.network.agents if self.network else self.problem.agents

    @property
    def numbers(self) -> jax.Array:
        """Of the agents whose rows the problem has."""
        here = np.arange(self.problem.agents) if self.agent is None else [self.agent]
        return host.put(here)

    @property
    def point(self) -> tuple[Tree, Tree]:
        """x and y of all agents, the agent axis first."""
        if self.moved is not None:
            return self.moved
        x, y = host.everywhere(self.problem.start(self.seed), self.problem.agents)
        return x, y

    def each(self, look: Callable[[Rows, Tree, jax.Array], Any], point: Tree) -> Any:
        """What `look(rows, point, numbers)` finds of the agents to measure here, agents first.

        It is asked of a group at a time, side by side, or of all: rows(batch) are the objectives,
        `point` the arrays, `numbers` the numbers of these agents.
        """
        if self.groups is None:
            return look(self.problem.objectives, point, self.numbers)
        found = []
        for group in self.groups:
            rows = partial(self.problem.objectives, agents=group)
            there = jax.tree.map(lambda a: a[group], point)
            found.append(jax.tree.map(np.asarray, look(rows, there, jnp.asarray(group))))
        return jax.tree.map(lambda *a: np.concatenate(a), *found)

    def once(self, name: str, compute: Callable[["Setting"], Found]) -> Any:
        """The value of `compute`, found and charged the first time it is asked for here."""
        if name not in self.memory:
            self.memory[name] = compute(self)
        return self.memory[name].value

    def at(self, x: Tree, y: Tree, forget: bool = False, round: int = 0) -> "Setting":
        """The same, where the agents stand after `round` rounds: what does not last is found anew.

        `forget` what it was before: it was found where the run was already lost. What finding has
        cost so far, of numbers that nobody asks for again as well, is one entry from here on, so
        that no cost is ever taken back.
        """
        paid = Found(0, spent(self.memory), *talked(self.memory), lasting=True)
        lasting = {n: Found(f.value, lasting=True) for n, f in self.memory.items() if f.lasting}
        past = {n: Found(math.nan if forget else f.value) for n, f in self.memory.items()}
        memory = lasting | {PAID: paid}
        return dataclasses.replace(self, memory=memory, past=past, moved=(x, y), round=round)

    def before(self, name: str, default: Any) -> Any:
        """What was found for `name` before, if anything was."""
        value = self.past.get(name, Found(math.nan)).value
        return value if np.isfinite(value).all() else default

    @property
    def changes(self) -> bool:
        """Whether anything found is to be found anew while the agents move on."""
        return not all(found.lasting for found in self.memory.values())


def refreshes(rounds: int) -> list[int]:
    """When a run of `rounds` looks at the upper loss: after rounds 1, 50, 100, 200, ..."""
    return list(takewhile(lambda t: t <= rounds, chain([1], (50 * 2**k for k in count()))))


@dataclass(frozen=True)
class Deferred:
    """A number to be computed before the run."""

    name: str
    compute: Callable[[Setting], Found]


class Resolved(NamedTuple):
    """An algorithm with numbers throughout, and what finding them has taken so far."""

    algorithm: Any
    numbers: dict[str, float]  # all that were found, by name; `by_name`
    cost: Cost  # of each agent, for what was found since the agents moved on: yet to be charged
    rounds: int  # of talking only, since the start
    bytes: int  # over all edges, both ways, since the start


def suited(algorithm: Any, problem: Problem) -> Any:
    """The algorithm as it is for `problem`."""
    return algorithm.suited(problem) if hasattr(algorithm, "suited") else algorithm


def resolve(algorithm: Any, setting: Setting) -> Resolved:
    """Every `Deferred` of `algorithm`, in leaves and static fields, replaced by its number.

    The agents agree on a number by max-consensus: each tells its neighbours the largest it knows,
    as many rounds as the network's diameter.
    """
    algorithm = suited(algorithm, setting.problem)
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
    """An array, as the compiled program has it; those of the host cost less to make."""
    if isinstance(number, jax.Array):
        return number
    found = np.asarray(number)
    return found.astype(jax.dtypes.canonicalize_dtype(found.dtype))


def by_name(memory: Mapping[str, Found]) -> dict[str, float]:
    """Every number by its name, "_upper" and the like apart, which others are made of.

    Of a number that each agent has of its own, the smallest, and the largest as "most_" and the
    name.
    """
    numbers = {}
    for name, found in memory.items():
        if not name.startswith("_"):
            numbers[name] = float(np.min(found.value))
            if np.size(found.value) > 1:
                numbers[f"most_{name}"] = float(np.max(found.value))
    return numbers


def spent(memory: Mapping[str, Found]) -> Cost:
    """What all numbers in `memory` have cost."""
    total = Cost()
    for found in memory.values():
        total = tree.add(total, found.cost)
    return total


class Talked(NamedTuple):
    """Numbers agreed on, and talks that took."""

    agreed: int
    talks: int


def talked(memory: Mapping[str, Found]) -> Talked:
    """What was talked about to find all numbers in `memory`."""
    found = memory.values()
    return Talked(sum(one.agreed for one in found), sum(one.talks for one in found))


def agreed_bytes(memory: Mapping[str, Found]) -> int:
    """Bytes of the numbers in `memory` that were agreed on: of one round, to one neighbour."""
    size: int = jax.dtypes.canonicalize_dtype(float).itemsize
    return talked(memory).agreed * size


def fill(node: Any, setting: Setting) -> Any:
    """`node` with its `Deferred`s replaced by their numbers."""

    def number(open: Deferred) -> Any:
        value = setting.once(open.name, open.compute)
        if not np.ndim(value):
            return value
        return Own(host.put(value)) if setting.agent is None else value[0]

    return swap(node, number)


def open_numbers(node: Any) -> list[str]:
    """The names of the numbers that `node` leaves to the run."""
    names: list[str] = []

    def first(open: Deferred) -> int:
        names.append(open.name)
        return 0

    swap(node, first)
    return sorted(set(names))


def swap(node: Any, number: Callable[[Deferred], Any]) -> Any:
    """`node` with its `Deferred`s replaced by what `number` makes of them."""
    if isinstance(node, Deferred):
        return number(node)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = {f.name: getattr(node, f.name) for f in dataclasses.fields(node)}
        return dataclasses.replace(node, **{k: swap(v, number) for k, v in fields.items()})
    return node
