"""Numbers left to the runtime, which alone knows the problem and the network.

A number that the user did not give stands in the algorithm as a `Deferred`; whoever runs the
algorithm puts the number in its place before the first round, and looks again a few times while
the agents move on.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from . import tree
from .cost import Cost
from .network import Network
from .problem import Problem
from .tree import Tree


class Found(NamedTuple):
    """A number, and what finding it has cost each agent so far."""

    value: Any
    cost: Cost = Cost()
    agreed: int = 0  # how often the network had to agree on it
    lasting: bool = False  # found once for the whole run


@dataclass(frozen=True)
class Setting:
    """What numbers are found from: the problem, the network, and where the agents stand."""

    problem: Problem
    network: Network | None  # None: nothing to agree on
    batch: int
    seed: int
    estimator: Any = None  # of the hypergradient, as the algorithm has it
    memory: dict[str, Found] = field(default_factory=dict)
    past: dict[str, Found] = field(default_factory=dict)  # found before, to be found anew
    moved: tuple[Tree, Tree] | None = None  # x and y of all agents; None: they are at the start

    @property
    def point(self) -> tuple[Tree, Tree]:
        """x and y of all agents, the agent axis first."""
        if self.moved is not None:
            return self.moved
        agents = self.problem.agents
        everywhere = lambda a: jnp.broadcast_to(a, (agents, *a.shape))
        x, y = jax.tree.map(everywhere, self.problem.start(self.seed))
        return x, y

    def once(self, name: str, compute: Callable[["Setting"], Found]) -> Any:
        """The value of `compute`, found and charged the first time it is asked for here."""
        if name not in self.memory:
            found = compute(self)
            before = self.past.get(name, Found(None))
            cost = tree.add(before.cost, found.cost)
            self.memory[name] = found._replace(cost=cost, agreed=before.agreed + found.agreed)
        return self.memory[name].value

    def at(self, x: Tree, y: Tree) -> "Setting":
        """The same, where the agents stand now: all that does not last is found anew."""
        lasting = {name: found for name, found in self.memory.items() if found.lasting}
        return dataclasses.replace(self, memory=lasting, past=dict(self.memory), moved=(x, y))

    @property
    def changes(self) -> bool:
        """Whether anything found is to be found anew while the agents move on."""
        return not all(found.lasting for found in self.memory.values())


@dataclass(frozen=True)
class Deferred:
    """A number to be computed before the run."""

    name: str
    compute: Callable[[Setting], Found]


class Resolved(NamedTuple):
    """An algorithm with numbers throughout, and what finding them has taken so far."""

    algorithm: Any
    numbers: dict[str, float]  # all that were found, by name
    cost: Cost  # of each agent
    rounds: int  # of talking only
    bytes: int  # over all edges, both ways


def resolve(algorithm: Any, setting: Setting) -> Resolved:
    """Every `Deferred` of `algorithm`, in leaves and static fields, replaced by its number.

    The agents agree on a number by max-consensus: each tells its neighbours the largest it knows,
    as many rounds as the network's diameter.
    """
    estimator = getattr(algorithm, "hypergradient", None)
    setting = dataclasses.replace(setting, estimator=estimator)  # its memory stays the same
    filled = fill(algorithm, setting)
    spent = Cost()
    for found in setting.memory.values():
        spent = tree.add(spent, found.cost)
    agreed = sum(found.agreed for found in setting.memory.values())
    rounds = agreed * setting.network.diameter if setting.network and agreed else 0
    links = 2 * len(setting.network.edges) if setting.network else 0
    scalars = ((n, f.value) for n, f in setting.memory.items() if not jnp.ndim(f.value))
    numbers = {name: float(value) for name, value in scalars}
    size = jnp.zeros(()).dtype.itemsize
    return Resolved(
        jax.tree.map(jnp.asarray, filled), numbers, spent, rounds, rounds * links * size
    )


def fill(node: Any, setting: Setting) -> Any:
    """`node` with its `Deferred`s replaced."""
    if isinstance(node, Deferred):
        return setting.once(node.name, node.compute)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = {f.name: getattr(node, f.name) for f in dataclasses.fields(node)}
        return dataclasses.replace(node, **{k: fill(v, setting) for k, v in fields.items()})
    return node
