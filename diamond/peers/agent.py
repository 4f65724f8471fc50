"""One agent's part of a round, without any network: what it tells, thinks and becomes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import cost, tree
from ..algorithm import Algorithm, Estimate, Message, State
from ..cost import Cost
from ..deferred import AllHere, Found, Setting, Talk, refreshes, resolve, swap
from ..network import Network
from ..problem import Objectives, Problem
from ..sampling import Sample, Sampling, draw, key
from .frame import Layout, layout


class Progress(NamedTuple):
    """Where an agent stands: everything its rounds to come depend on."""

    t: int  # rounds made
    state: State
    spent: jax.Array  # its counter of oracle calls
    algorithm: Any  # with the numbers in use
    found: dict[str, Found]  # those of them that were left to the run


class Agent:
    """Agent `number` of the network, with a problem that holds its own rows only.

    It draws what agent `number` of `diamond.simulate` draws and adds up what it hears in the order
    of the agents, itself among them, so its trajectory is the simulated one. Numbers that the
    algorithm leaves open are found from what this agent measures and the largest in the network.
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
        _check(problem, network, number)
        self.problem, self.network, self.number = problem, network, number
        self.seed, self.sampling, self.key = seed, sampling, key(seed)
        self.given, self.outline = algorithm, _outline(algorithm)
        self.objectives = problem.objectives(algorithm.batch)
        row = network.weights[[number]]
        self.heard = [int(j) for j in row.indices]
        self.neighbours = [j for j in self.heard if j != number]
        self.weights = jnp.asarray(row.data)
        first = self.begin()._replace(algorithm=self.outline)
        at = first.state, jnp.int32(0), self.draw(first)
        shapes = jax.eval_shape(_message, self.outline, self.objectives, *at)
        self._structure = jax.tree.structure(shapes)
        self.layout: Layout = layout(jax.tree.leaves(shapes))

    @property
    def early(self) -> bool:
        """Whether the message is known before the gradients."""
        return self.outline.early

    def begin(self) -> Progress:
        """Before round 0, and before anything is found."""
        state = self.outline.init(*self.problem.start(self.seed))
        return Progress(0, state, cost.zeros(), self.given, {})

    def find(self, progress: Progress, talk: Talk) -> Progress:
        """With the numbers that the algorithm leaves open, found where the agent stands."""
        setting = self._setting(progress, talk)
        if progress.t:
            state = jax.tree.map(lambda a: a[None], progress.state)
            setting = setting.at(state.x, state.y)
        resolved = resolve(self.given, setting)
        counter = cost.add(progress.spent, jnp.asarray(cost.each(resolved.cost, 1)[0]))
        return progress._replace(spent=counter, algorithm=resolved.algorithm, found=setting.memory)

    def renews(self, progress: Progress) -> bool:
        """Whether numbers are to be found anew here."""
        lasting = all(found.lasting for found in progress.found.values())
        return not lasting and progress.t in refreshes(progress.t)

    def numbered(self, progress: Progress) -> Progress:
        """With the numbers found before put into the algorithm."""
        resolved = resolve(self.given, self._setting(progress))
        return progress._replace(algorithm=resolved.algorithm)

    def _setting(self, progress: Progress, talk: Talk = AllHere()) -> Setting:
        fixed = self.problem, self.network, self.outline.batch, self.seed
        return Setting(*fixed, memory=dict(progress.found), agent=self.number, talk=talk)

    def think(self, progress: Progress) -> tuple[Estimate, Cost]:
        """All gradient work of the round; takes most of its time and needs no neighbour."""
        at = progress.state, jnp.int32(progress.t), self.draw(progress)
        return jax.block_until_ready(_estimate(progress.algorithm, self.objectives, *at))

    def draw(self, progress: Progress) -> Sample:
        """All that is random in the round."""
        own = self.objectives.of(0)
        rows = own.train.count, own.valid.count
        drawn = progress.algorithm.links, progress.algorithm.batch, self.sampling
        return _draw(self.key, jnp.int32(progress.t), jnp.int32(self.number), rows, *drawn)

    def tell(self, progress: Progress, estimate: Estimate) -> list[np.ndarray]:
        """The arrays of the message; `estimate` may be None if the message is early."""
        told = _outgoing(progress.algorithm, progress.state, estimate, jnp.int32(progress.t))
        return [np.asarray(leaf) for leaf in jax.tree.leaves(told)]

    def unpacked(self, arrays: Sequence[np.ndarray]) -> Message:
        """The message that those arrays are of."""
        return jax.tree.unflatten(self._structure, arrays)

    def step(
        self,
        progress: Progress,
        thought: tuple[Estimate, Cost],
        messages: Mapping[int, Sequence[np.ndarray]],
    ) -> Progress:
        """The round's end, from the messages of all neighbours and its own."""
        estimate, costs = thought
        parts = [self.unpacked(messages[j]) for j in self.heard]
        mixed = parts, self.weights, jnp.int32(progress.t)
        (state, counter), sound = _update(
            progress.algorithm, (progress.state, progress.spent), (estimate, costs), *mixed
        )
        if not sound:
            raise FloatingPointError(
                f"agent {self.number} diverged in round {progress.t}: x or y is not finite; "
                f"start again with smaller steps"
            )
        return progress._replace(t=progress.t + 1, state=state, spent=counter)


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

    (state, counter), (estimate, costs) = own, thought
    state = algorithm.update(state, estimate, jax.tree.map(mix, *messages), t)
    return (state, cost.charge(counter, costs)), tree.finite((state.x, state.y))


def _outline(algorithm: Any) -> Any:
    """The algorithm with 1 for every number left to the run: for shapes, before they are found."""
    return jax.tree.map(jnp.asarray, swap(algorithm, lambda open: 1))


def _check(problem: Problem, network: Network, number: int) -> None:
    """Refuse what one agent cannot run."""
    if problem.agents != 1:
        raise ValueError(
            f"the problem holds the rows of {problem.agents} agents; a peer needs one with its own "
            f"rows only: lists of one entry"
        )
    if not 0 <= number < network.agents:
        raise ValueError(f"there is no agent {number}; the network has 0 to {network.agents - 1}")
