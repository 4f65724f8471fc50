"""Compiled parts of a round: one program up to an exchange, one after it.

Programs are shared by the agents of a process: a plan identifies a program, and everything else is
an argument. A program omits arrays that it would only copy; its caller restores them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...core import cost_counter, pytrees
from ...core.pytrees import Tree
from ...core.sampling import Sample, Sampling, draw
from ...hardware.compiler import compile_single_threaded
from ...interface.round_interface import Estimate, Message, State
from ...network.mixing.robust_mixer import RobustReceiver
from ...problem import Objectives

SilentStages = tuple[tuple[int, int | None], ...]  # silent stages, and their index in the round


class LocalResult(NamedTuple):
    """Result of an agent's computation for an exchange, before it receives messages."""

    state: State  # after the silent stages; None if there are none
    spent: jax.Array  # including the cost of the estimate
    estimate: Estimate
    message: Message | None  # outgoing message, if it depends on the estimate


class ComputeKey(NamedTuple):
    """Key of the program that leads up to an exchange."""

    algorithm: Any  # tree structures
    objectives: Any
    sampling: Sampling
    silent: SilentStages
    stage: int | None  # None: after the last exchange
    position: int | None = None
    has_message: bool = False  # the message depends on the estimate


class FinishKey(NamedTuple):
    """Key of the program that finishes an exchange."""

    algorithm: Any
    message: Any
    stage: int
    own_index: int  # index of the agent among the sources
    next_message: tuple[int, int] | None = None  # next known message: its stage, and rounds ahead
    robust: RobustReceiver | None = None
    has_change: bool = False  # the parts are the own message and its change


@lru_cache(maxsize=256)
def compute_program(plan: ComputeKey) -> Callable[..., Any]:
    """Return (numbers, rows, bits, agent, state, spent, t) -> `LocalResult`.

    After the last exchange, the program returns (state, spent). The bits are those of the run's
    key.
    """

    def compute(
        numbers: Any, rows: Any, bits: jax.Array, agent: Any, state: State, spent: Any, t: Any
    ) -> Any:
        key = jax.random.wrap_key_data(bits, impl="threefry2x32")
        algorithm = jax.tree.unflatten(plan.algorithm, numbers)
        objectives: Objectives = jax.tree.unflatten(plan.objectives, rows).for_agent(0)

        def sample(stage: int, position: int | None) -> Sample:
            rows = objectives.train.stored, objectives.valid.stored
            batches, batch = algorithm.stages[stage].hessian_batches, algorithm.batch
            drawn = draw(key, t, agent, rows, batches, batch, plan.sampling, position)
            return objectives.draw_batch(drawn)

        for stage_index, position in plan.silent:
            stage = algorithm.stages[stage_index]
            estimate, costs = stage.estimate(objectives, state, t, sample(stage_index, position))
            nothing = stage.outgoing(state, estimate, t)
            state = stage.update(state, estimate, nothing, nothing, t)
            spent = cost_counter.charge(spent, costs)
        if plan.stage is None:
            return state, spent
        stage = algorithm.stages[plan.stage]
        estimate, costs = stage.estimate(objectives, state, t, sample(plan.stage, plan.position))
        message = stage.outgoing(state, estimate, t) if plan.has_message else None
        spent = cost_counter.charge(spent, costs)
        return LocalResult(state if plan.silent else None, spent, estimate, message)

    empty: Objectives = jax.tree.unflatten(plan.objectives, [None] * plan.objectives.num_leaves)
    return compile_single_threaded(compute, hoists=empty.captured_bytes > 0)


@lru_cache(maxsize=256)
def finish_program(plan: FinishKey) -> Callable[..., Any]:
    """Return (numbers, state, estimate, parts, weights, t) -> state, observations, message.

    The message is the next one, if it is already known; the barrier makes its bits those of a
    separate program. The observations are one array, which `split_observations` splits. The state
    omits arrays of the old state and of the estimate, the message those of the state.
    """

    def finish_exchange(
        numbers: Any, old: State, estimate: Any, parts: Any, weights: jax.Array, t: Any
    ) -> Any:
        algorithm = jax.tree.unflatten(plan.algorithm, numbers)
        messages = [jax.tree.unflatten(plan.message, part) for part in parts]
        distances = [
            distances_to_own([drop_step_scalars(m[k]) for m in messages], plan.own_index)
            for k in range(0 if plan.has_change else 2)  # average and total
        ]
        if plan.has_change:
            change = messages[1]
        elif plan.robust is not None:
            change = plan.robust.change(messages, weights, plan.own_index)
        else:
            change = mix_messages(messages, weights, plan.own_index)
        state = algorithm.stages[plan.stage].update(
            old, estimate, messages[plan.own_index], change, t
        )
        next_message, new_state = None, prune_leaves(state, (old, estimate))
        if plan.next_message is not None:
            stage, rounds_ahead = plan.next_message
            new_state = jax.lax.optimization_barrier(new_state)
            state = new_state.restore((old, estimate))
            message = algorithm.stages[stage].outgoing(state, None, t + rounds_ahead)
            next_message = prune_leaves(message, state)
        totals = [jnp.sum(leaf) for leaf in jax.tree.leaves((state.x, state.y))]
        total = jnp.sum(jnp.stack(totals), keepdims=True).astype(jnp.float32)
        observations = jnp.concatenate([total, *(jnp.append(*part) for part in distances)])
        return new_state, observations, next_message

    return compile_single_threaded(finish_exchange)


def split_observations(
    observations: np.ndarray, sources: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split observations: sum of all x and y, `distances_to_own` by part, lengths of the parts."""
    rows = observations[1:].reshape(-1, sources + 1)
    return observations[0], rows[:, :-1], rows[:, -1]


@lru_cache(maxsize=256)
def outgoing_program(algorithm_structure: Any, stage: int) -> Callable[..., Message]:
    """Return (numbers, state, t) -> the message of a stage that needs no estimate."""

    def outgoing(numbers: Any, state: State, t: Any) -> Message:
        algorithm = jax.tree.unflatten(algorithm_structure, numbers)
        return algorithm.stages[stage].outgoing(state, None, t)

    return compile_single_threaded(outgoing)


def mix_messages(messages: Any, weights: jax.Array, own_index: int) -> Message:
    """Return sum_j M_ij (message_j - message_i) in the order of j."""

    def change(*parts: jax.Array) -> jax.Array:
        total, own_part = jnp.zeros_like(parts[0]), parts[own_index]
        for j, (weight, part) in enumerate(zip(weights.astype(total.dtype), parts)):
            total = total if j == own_index else total + weight * (part - own_part)
        return total

    return jax.tree.map(change, *messages)


def drop_step_scalars(part: Any) -> Any:
    """Remove the scalars of a learned step from a part, since their sizes are not comparable."""
    return part["method"] if isinstance(part, dict) and "method" in part else part


def distances_to_own(part: Any, own_index: int) -> tuple[jax.Array, jax.Array]:
    """Return ||s_j - s_i|| for each j, and ||s_i||, of one part of a message."""
    own_part = part[own_index]
    distances = [
        jnp.float32(0)
        if j == own_index
        else pytrees.norm(pytrees.sub(other, own_part)).astype(jnp.float32)
        for j, other in enumerate(part)
    ]
    return jnp.stack(distances), pytrees.norm(own_part).astype(jnp.float32)


def _update_state(
    algorithm: Any, state: State, estimate: Estimate, mixed: Any, t: Any, stage: int
) -> tuple[State, jax.Array]:
    """Return the state after an exchange, and whether x and y are finite."""
    state = algorithm.stages[stage].update(state, estimate, *mixed, t)
    return state, pytrees.finite((state.x, state.y))


mix_compiled = jax.jit(mix_messages, static_argnums=2)
update_compiled = jax.jit(_update_state, static_argnums=5)


@pytrees.pytree
@dataclass(frozen=True)
class PrunedTree:
    """Tree without the arrays that its caller has; `places` maps each leaf to one of them."""

    new_leaves: Sequence[Any]  # other leaves
    places: tuple[int | None, ...] = field(metadata={"static": True})
    structure: Any = field(metadata={"static": True})

    def restore(self, inputs: Tree) -> Tree:
        """Rebuild the tree with arrays of `inputs` in their places."""
        new_leaves, input_leaves = iter(self.new_leaves), jax.tree.leaves(inputs)
        leaves = [
            next(new_leaves) if place is None else input_leaves[place] for place in self.places
        ]
        return self.structure.unflatten(leaves)


def prune_leaves(tree: Tree, inputs: Tree) -> PrunedTree:
    """Return `tree` without the leaves that are the same objects as leaves of `inputs`."""
    input_places = {id(leaf): place for place, leaf in enumerate(jax.tree.leaves(inputs))}
    leaves, structure = jax.tree.flatten(tree)
    places = tuple(input_places.get(id(leaf)) for leaf in leaves)
    new_leaves = [leaf for leaf, place in zip(leaves, places) if place is None]
    return PrunedTree(new_leaves, places, structure)
