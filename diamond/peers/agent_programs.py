"""Compiled parts of a round: one program up to an exchange, one after it.

Programs are shared by the agents of a process: a plan identifies a program, and everything else is
an argument.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core import cost_counter, pytrees
from ..core.sampling import Sample, Sampling, draw
from ..hardware.compiler import compile_single_threaded
from ..interface.round_interface import Estimate, Message, State
from ..problem import Objectives
from .output_aliasing import rest

Silent = tuple[tuple[int, int | None], ...]  # silent stages, and their index in the round


class LocalResult(NamedTuple):
    """Result of an agent's computation for an exchange, before it receives messages."""

    state: State  # after the silent stages; None if there are none
    spent: jax.Array  # including the cost of the estimate
    estimate: Estimate
    told: Message | None  # outgoing message, if it depends on the estimate


class ComputeKey(NamedTuple):
    """Key of the program that leads up to an exchange."""

    algorithm: Any  # tree structures
    objectives: Any
    sampling: Sampling
    silent: Silent
    stage: int | None  # None: after the last exchange
    number: int | None = None
    tells: bool = False  # whether the message depends on the estimate


class FinishKey(NamedTuple):
    """Key of the program that finishes an exchange."""

    algorithm: Any
    message: Any
    stage: int
    here: int  # index of the agent among the sources
    then: tuple[int, int] | None = None  # next known message: its stage, and rounds ahead
    clip: float | None = None  # see `clipped`


@lru_cache(maxsize=256)
def before(plan: ComputeKey) -> Callable[..., Any]:
    """Return (numbers, rows, bits, agent, state, spent, t) -> `Thought`, finally (state, spent).

    The bits are those of the run's key.
    """

    def think(
        numbers: Any, rows: Any, bits: jax.Array, agent: Any, state: State, spent: Any, t: Any
    ) -> Any:
        key = jax.random.wrap_key_data(bits, impl="threefry2x32")
        algorithm = jax.tree.unflatten(plan.algorithm, numbers)
        own: Objectives = jax.tree.unflatten(plan.objectives, rows).of(0)

        def sample(stage: int, number: int | None) -> Sample:
            rows = own.train.stored, own.valid.stored
            drawn = algorithm.stages[stage].hessian_batches, algorithm.batch, plan.sampling, number
            return own.at(draw(key, t, agent, rows, *drawn))

        for number, turn in plan.silent:
            stage = algorithm.stages[number]
            estimate, costs = stage.estimate(own, state, t, sample(number, turn))
            nothing = stage.outgoing(state, estimate, t)
            state = stage.update(state, estimate, nothing, nothing, t)
            spent = cost_counter.charge(spent, costs)
        if plan.stage is None:
            return state, spent
        stage = algorithm.stages[plan.stage]
        estimate, costs = stage.estimate(own, state, t, sample(plan.stage, plan.number))
        told = stage.outgoing(state, estimate, t) if plan.tells else None
        spent = cost_counter.charge(spent, costs)
        return LocalResult(state if plan.silent else None, spent, estimate, told)

    return compile_single_threaded(think)


@lru_cache(maxsize=256)
def after(plan: FinishKey) -> Callable[..., Any]:
    """Return (numbers, state, estimate, parts, weights, t) -> state, observations, message.

    The message is the next one, if it is already known; the barrier makes its bits those of a
    separate program. The observations are one array, which `apart` splits. The state omits arrays
    of the old state and of the estimate, the message those of the state.
    """

    def step(
        numbers: Any, old: State, estimate: Any, parts: Any, weights: jax.Array, t: Any
    ) -> Any:
        algorithm = jax.tree.unflatten(plan.algorithm, numbers)
        said = [jax.tree.unflatten(plan.message, part) for part in parts]
        far = [spread([vectors(m[k]) for m in said], plan.here) for k in range(len(said[0]))]
        change = mix(said, weights, plan.here)
        if plan.clip is not None:
            change = clipped(said, weights, plan.here, [one[0] for one in far], plan.clip)
        heard = said[plan.here], change
        state = algorithm.stages[plan.stage].update(old, estimate, *heard, t)
        told, kept = None, rest(state, (old, estimate))
        if plan.then is not None:
            stage, later = plan.then
            kept = jax.lax.optimization_barrier(kept)
            state = kept.whole((old, estimate))
            told = rest(algorithm.stages[stage].outgoing(state, None, t + later), state)
        totals = [jnp.sum(leaf) for leaf in jax.tree.leaves((state.x, state.y))]
        total = jnp.sum(jnp.stack(totals), keepdims=True).astype(jnp.float32)
        seen = jnp.concatenate([total, *(jnp.append(*one) for one in far)])
        return kept, seen, told

    return compile_single_threaded(step)


def apart(seen: np.ndarray, heard: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split observations: the sum of all x and y, `spread` of each part, and the parts' lengths."""
    rows = seen[1:].reshape(-1, heard + 1)
    return seen[0], rows[:, :-1], rows[:, -1]


@lru_cache(maxsize=256)
def outgoing(algorithm_structure: Any, number: int) -> Callable[..., Message]:
    """Return (numbers, state, t) -> the message of a stage that needs no estimate."""

    def tell(numbers: Any, state: State, t: Any) -> Message:
        algorithm = jax.tree.unflatten(algorithm_structure, numbers)
        return algorithm.stages[number].outgoing(state, None, t)

    return compile_single_threaded(tell)


def mix(messages: Any, weights: jax.Array, here: int) -> Message:
    """Return sum_j M_ij (message_j - message_i) in the order of j."""

    def change(*parts: jax.Array) -> jax.Array:
        total, mine = jnp.zeros_like(parts[0]), parts[here]
        for j, (weight, part) in enumerate(zip(weights.astype(total.dtype), parts)):
            total = total if j == here else total + weight * (part - mine)
        return total

    return jax.tree.map(change, *messages)


CLIP_WARNING = (
    "clip shortens honest messages too where rows differ between sites: the run can end far from "
    "where it would end without clip, and few lies are stopped (docs/peers.md has figures); leave "
    "out clip, or compare both in a rehearsal first"
)


def clipped(messages: Any, weights: jax.Array, here: int, far: Any, clip: float) -> Message:
    """Mix with every difference shortened to `clip` times the median of their lengths.

        sum_j M_ij min(1, clip med_k d_k / d_j) (s_j - s_i),    d_j = ||s_j - s_i||,

    for each part of the message; of an even number, the median is the smaller of the two.
    """
    parts = []
    for place, lengths in enumerate(far):
        others = [d for j, d in enumerate(lengths) if j != here]
        usual = jnp.sort(jnp.stack(others))[(len(others) - 1) // 2]
        share = jnp.where(lengths > clip * usual, clip * usual / lengths, 1.0)

        def change(*leaves: jax.Array) -> jax.Array:
            total, mine = jnp.zeros_like(leaves[0]), leaves[here]
            for j, (weight, leaf) in enumerate(zip(weights.astype(total.dtype), leaves)):
                if j != here:
                    part = weight * share[j].astype(total.dtype) * (leaf - mine)
                    total = total + jnp.where(share[j] > 0, part, 0)
            return total

        parts.append(jax.tree.map(change, *(one[place] for one in messages)))
    return Message(*parts)


def vectors(part: Any) -> Any:
    """Remove the scalars of a learned step from a part, since their sizes are not comparable."""
    return part["method"] if isinstance(part, dict) and "method" in part else part


def spread(part: Any, here: int) -> tuple[jax.Array, jax.Array]:
    """Return ||s_j - s_i|| for each j, and ||s_i||, of one part of a message."""
    mine = part[here]
    far = [
        pytrees.norm(pytrees.sub(one, mine)).astype(jnp.float32) for one in part if one is not mine
    ]
    far.insert(here, jnp.float32(0))
    return jnp.stack(far), pytrees.norm(mine).astype(jnp.float32)


def updated(
    algorithm: Any, state: State, estimate: Estimate, heard: Any, t: Any, stage: int
) -> tuple[State, jax.Array]:
    """Return the state after an exchange, and whether x and y are finite."""
    state = algorithm.stages[stage].update(state, estimate, *heard, t)
    return state, pytrees.finite((state.x, state.y))


alone = jax.jit(mix, static_argnums=2)
update = jax.jit(updated, static_argnums=5)
