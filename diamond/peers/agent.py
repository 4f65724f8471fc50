"""One agent's part of a round, without any network: what it tells, thinks and becomes."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import cost, tree
from ..algorithm import Algorithm, Estimate, Message, State
from ..cost import Cost
from ..deferred import Deferred
from ..network import Network
from ..problem import Objectives, Problem
from ..sampling import Sample, Sampling, draw, key
from .frame import Layout, layout


class Progress(NamedTuple):
    """Where an agent stands: everything its rounds to come depend on."""

    t: int  # rounds made
    state: State
    spent: jax.Array  # its counter of oracle calls


class Agent:
    """Agent `number` of the network, with a problem that holds its own rows only.

    It draws what agent `number` of `diamond.simulate` draws and adds up what it hears in the order
    of the agents, itself among them, so its trajectory is the simulated one.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        number: int,
        seed: int = 0,
        sampling: Sampling = "blocks",
    ):
        _check(problem, network, algorithm, number)
        self.problem, self.network, self.number = problem, network, number
        self.seed, self.sampling, self.key = seed, sampling, key(seed)
        self.algorithm: Algorithm = jax.tree.map(jnp.asarray, algorithm)
        self.objectives = problem.objectives(algorithm.batch)
        row = network.weights[[number]]
        self.heard = [int(j) for j in row.indices]
        self.neighbours = [j for j in self.heard if j != number]
        self.weights = jnp.asarray(row.data)
        at = self.begin().state, jnp.int32(0), self.draw(0)
        shapes = jax.eval_shape(_message, self.algorithm, self.objectives, *at)
        self._structure = jax.tree.structure(shapes)
        self.layout: Layout = layout(jax.tree.leaves(shapes))

    @property
    def early(self) -> bool:
        """Whether the message is known before the gradients."""
        return self.algorithm.early

    def begin(self) -> Progress:
        """Before round 0."""
        return Progress(0, self.algorithm.init(*self.problem.start(self.seed)), cost.zeros())

    def think(self, progress: Progress) -> tuple[Estimate, Cost]:
        """All gradient work of the round; takes most of its time and needs no neighbour."""
        sample = self.draw(progress.t)
        found = _estimate(
            self.algorithm, self.objectives, progress.state, jnp.int32(progress.t), sample
        )
        return jax.block_until_ready(found)

    def draw(self, t: int) -> Sample:
        """All that is random in round t."""
        own = self.objectives.of(0)
        rows = own.train.count, own.valid.count
        drawn = self.algorithm.links, self.algorithm.batch, self.sampling
        return _draw(self.key, jnp.int32(t), jnp.int32(self.number), rows, *drawn)

    def tell(self, progress: Progress, estimate: Estimate) -> list[np.ndarray]:
        """The arrays of the message; `estimate` may be None if the message is early."""
        told = _outgoing(self.algorithm, progress.state, estimate, jnp.int32(progress.t))
        return [np.asarray(leaf) for leaf in jax.tree.leaves(told)]

    def step(
        self,
        progress: Progress,
        thought: tuple[Estimate, Cost],
        messages: Mapping[int, Sequence[np.ndarray]],
    ) -> Progress:
        """The round's end, from the messages of all neighbours and its own."""
        estimate, spent = thought
        parts = [jax.tree.unflatten(self._structure, messages[j]) for j in self.heard]
        mixed = parts, self.weights, jnp.int32(progress.t)
        (state, counter), sound = _update(
            self.algorithm, (progress.state, progress.spent), (estimate, spent), *mixed
        )
        if not sound:
            raise FloatingPointError(
                f"agent {self.number} diverged in round {progress.t}: x or y is not finite; "
                f"start again with smaller steps"
            )
        return Progress(progress.t + 1, state, counter)


_draw = jax.jit(draw, static_argnums=(4, 5, 6))


@jax.jit
def _estimate(
    algorithm: Algorithm, problem: Objectives, state: State, t: jax.Array, sample: Sample
) -> tuple[Estimate, Cost]:
    return algorithm.estimate(problem.of(0), state, t, sample)


@jax.jit
def _message(
    algorithm: Algorithm, problem: Objectives, state: State, t: jax.Array, sample: Sample
) -> Message:
    estimate, _ = _estimate(algorithm, problem, state, t, sample)
    return algorithm.outgoing(state, estimate, t)


@jax.jit
def _outgoing(algorithm: Algorithm, state: State, estimate: Estimate, t: jax.Array) -> Message:
    return algorithm.outgoing(state, estimate, t)


@jax.jit
def _update(
    algorithm: Algorithm,
    own: tuple[State, jax.Array],
    thought: tuple[Estimate, Cost],
    messages: Sequence[Message],
    weights: jax.Array,
    t: jax.Array,
) -> tuple[tuple[State, jax.Array], jax.Array]:
    """sum_j M_ij message_j in the order of j, then the algorithm's update; and if all is finite."""

    def mix(*parts: jax.Array) -> jax.Array:
        total = jnp.zeros_like(parts[0])
        for weight, part in zip(weights.astype(total.dtype), parts):
            total = total + weight * part
        return total

    (state, counter), (estimate, spent) = own, thought
    state = algorithm.update(state, estimate, jax.tree.map(mix, *messages), t)
    return (state, cost.charge(counter, spent)), tree.finite((state.x, state.y))


def _check(problem: Problem, network: Network, algorithm: Algorithm, number: int) -> None:
    """Refuse what one agent cannot run."""
    if problem.agents != 1:
        raise ValueError(
            f"the problem holds the rows of {problem.agents} agents; a peer needs one with its own "
            f"rows only: lists of one entry"
        )
    if not 0 <= number < network.agents:
        raise ValueError(f"there is no agent {number}; the network has 0 to {network.agents - 1}")
    if names := sorted(set(open_numbers(algorithm))):
        raise ValueError(
            f"the algorithm leaves {', '.join(names)} to be found by the run, which peers cannot "
            f"do: give numbers for the steps and for lipschitz or period, as `resolved` of a "
            f"simulated run has them"
        )


def open_numbers(node: Any) -> list[str]:
    """The names of all numbers in an algorithm that were left to the run."""
    if isinstance(node, Deferred):
        return [node.name]
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        values = (getattr(node, field.name) for field in dataclasses.fields(node))
        return [name for value in values for name in open_numbers(value)]
    return []
