"""The compiled parts of a round: one program up to an exchange, one from there on.

Whatever they have in common with other agents of the process, they are compiled once: a plan says
which program it is, and everything else is an argument.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import cost, tree
from ..core.cost import Cost
from ..core.sampling import Sample, Sampling, draw
from ..problem import Objectives
from ..rounds.algorithm import Estimate, Message, State

Silent = tuple[tuple[int, int | None], ...]  # stages that tell nothing, and which of the round


class Thought(NamedTuple):
    """What an agent has computed for an exchange, before it has heard anything."""

    state: State  # after the stages that tell nothing
    spent: jax.Array
    estimate: Estimate
    cost: Cost
    told: Message | None  # what it is to tell, where that had to wait for the estimate


class Before(NamedTuple):
    """Which program leads up to an exchange."""

    algorithm: Any  # structures of trees
    objectives: Any
    sampling: Sampling
    silent: Silent
    stage: int | None  # None: there is no exchange any more
    number: int | None = None
    tells: bool = False  # whether the message had to wait for the estimate


class After(NamedTuple):
    """Which program makes an exchange's end of what was heard."""

    algorithm: Any
    message: Any
    stage: int
    here: int  # the agent's own place among those heard
    then: tuple[int, int] | None = None  # whose message is known then: its stage, and rounds later


@lru_cache(maxsize=256)
def before(plan: Before) -> Callable[..., Any]:
    """(numbers, rows, key, agent, state, spent, t) -> `Thought`, or (state, spent) at the end."""

    def think(
        numbers: Any, rows: Any, key: jax.Array, agent: Any, state: State, spent: Any, t: Any
    ) -> Any:
        algorithm = jax.tree.unflatten(plan.algorithm, numbers)
        own: Objectives = jax.tree.unflatten(plan.objectives, rows).of(0)

        def sample(stage: int, number: int | None) -> Sample:
            counts = own.train.count, own.valid.count
            drawn = algorithm.stages[stage].links, algorithm.batch, plan.sampling, number
            return draw(key, t, agent, counts, *drawn)

        for number, turn in plan.silent:
            stage = algorithm.stages[number]
            estimate, costs = stage.estimate(own, state, t, sample(number, turn))
            nothing = stage.outgoing(state, estimate, t)
            state = stage.update(state, estimate, nothing, nothing, t)
            spent = cost.charge(spent, costs)
        if plan.stage is None:
            return state, spent
        stage = algorithm.stages[plan.stage]
        estimate, costs = stage.estimate(own, state, t, sample(plan.stage, plan.number))
        told = stage.outgoing(state, estimate, t) if plan.tells else None
        return Thought(state, spent, estimate, costs, told)

    return jax.jit(think)


@lru_cache(maxsize=256)
def after(plan: After) -> Callable[..., Any]:
    """(numbers, thought, parts, weights, t) -> state, spent, whether it is sound, message, spread.

    The message is the next one, where it is known by now; the barrier lets it have the bits that it
    would have on its own. The spread is how far each one heard is from the agent's own message.
    """

    def step(numbers: Any, thought: Thought, parts: Any, weights: jax.Array, t: Any) -> Any:
        algorithm = jax.tree.unflatten(plan.algorithm, numbers)
        said = [jax.tree.unflatten(plan.message, part) for part in parts]
        heard = said[plan.here], mix(said, weights, plan.here)
        state, spent, sound = updated(algorithm, thought, heard, t, plan.stage)
        told = None
        if plan.then is not None:
            stage, later = plan.then
            state = jax.lax.optimization_barrier(state)
            told = algorithm.stages[stage].outgoing(state, None, t + later)
        return state, spent, sound, told, spread(said, plan.here)

    return jax.jit(step)


@lru_cache(maxsize=256)
def outgoing(algorithm_structure: Any, number: int) -> Callable[..., Message]:
    """(numbers, state, t) -> the message of a stage that needs no estimate."""

    def tell(numbers: Any, state: State, t: Any) -> Message:
        algorithm = jax.tree.unflatten(algorithm_structure, numbers)
        return algorithm.stages[number].outgoing(state, None, t)

    return jax.jit(tell)


def mix(messages: Any, weights: jax.Array, here: int) -> Message:
    """sum_j M_ij (message_j - message_i) in the order of j."""

    def change(*parts: jax.Array) -> jax.Array:
        total, mine = jnp.zeros_like(parts[0]), parts[here]
        for j, (weight, part) in enumerate(zip(weights.astype(total.dtype), parts)):
            total = total if j == here else total + weight * (part - mine)
        return total

    return jax.tree.map(change, *messages)


def spread(messages: Any, here: int) -> jax.Array:
    """||message_j - message_i|| for each j."""
    mine = messages[here]
    far = [tree.norm(tree.sub(one, mine)).astype(jnp.float32) for one in messages]
    return jnp.stack(far)


def updated(algorithm: Any, thought: Thought, heard: Any, t: Any, stage: int) -> Any:
    """The state and the counter after an exchange, and whether x and y are finite."""
    state = algorithm.stages[stage].update(thought.state, thought.estimate, *heard, t)
    return state, cost.charge(thought.spent, thought.cost), tree.finite((state.x, state.y))


alone = jax.jit(mix, static_argnums=2)
update = jax.jit(updated, static_argnums=4)
