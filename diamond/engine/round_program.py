"""One round of all agents, and many rounds as one compiled program."""

import math
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core import cost_counter, host_transfer, pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import AGENT_AXES, ExchangeId, Sample, Sampling, draw
from ..hardware.compiler import compile_program
from ..hardware.device_memory import even_group_size, map_in_groups
from ..interface.round_interface import Algorithm, Estimate, Message, State
from ..interface.traffic import is_mean, message_shapes
from ..network.mixing.mixing_interface import Mixing
from ..problem import Objectives, Rows
from ..schedules.deferred import select_agent_values

CACHE_BYTES = 2**18  # bytes of rows to work on at a time
WORK, REMEDY = "a round", "a smaller batch, fewer terms K, or more devices"


class Progress(NamedTuple):
    """State of a run: everything that later rounds depend on."""

    t: jax.Array  # rounds completed
    state: State  # of all agents, with the agent axis first
    spent: jax.Array  # cost counters of the agents
    link_states: Any = None  # of all agents


_SavedProgress = namedtuple("_SavedProgress", ["t", "state", "spent", "kept"])  # in checkpoints


def named_arrays(progress: Progress) -> dict[str, Any]:
    """Return the arrays of `progress` by their names in a checkpoint."""
    return pytrees.named_leaves(_SavedProgress(*progress))


def from_named_arrays(example: Progress, arrays: Mapping[str, Any]) -> Progress:
    """Return the progress with the shapes of `example` and the arrays of a checkpoint."""
    return Progress(*pytrees.from_named_leaves(_SavedProgress(*example), arrays))


@compile_program()  # one program, in place of one per operation
def _initial_states(algorithm: Algorithm, x: Tree, y: Tree) -> State:
    return jax.vmap(algorithm.init)(x, y)


def initial_progress(algorithm: Algorithm, x: Tree, y: Tree, agents: int) -> Progress:
    """Return all agents before round 0, at the same point."""
    state = _initial_states(algorithm, *host_transfer.broadcast_to_agents((x, y), agents))
    return Progress(
        host_transfer.to_device(0, np.int32),
        state,
        host_transfer.to_device(cost_counter.agent_counters(Cost(), agents)),
    )


def initial_progress_with_links(
    algorithm: Algorithm, problem: Objectives, mixer: Mixing, x: Tree, y: Tree
) -> Progress:
    """Return all agents before round 0, with the initial link states."""
    agents = problem.train.count.shape[0]
    progress = initial_progress(algorithm, x, y, agents)
    if not mixer.has_states:
        return progress
    return progress._replace(link_states=mixer.start(message_shapes(algorithm, problem, x, y)))


def without_shared_buffers(progress: Progress, start: Tree) -> Progress:
    """Copy arrays of `progress` that share memory with each other or with `start`.

    A program cannot overwrite an array that is needed twice.
    """
    seen = {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(start)}

    def copy_if_shared(leaf: jax.Array) -> jax.Array:
        leaf = jnp.copy(leaf) if leaf.unsafe_buffer_pointer() in seen else leaf
        seen.add(leaf.unsafe_buffer_pointer())
        return leaf

    return jax.tree.map(copy_if_shared, progress)


def first_stop(t: int, link_states: Any) -> int:
    """Return the round to stop at in the call that compiles a program.

    The result of that call is dropped. Usually this is t, so that no round is run. With link states
    it is t + 1: the first execution of a round that draws for links takes 50 to 80 ms longer on a
    CPU, though JAX compiles nothing then.
    """
    return t if link_states is None else t + 1


def draw_samples(
    algorithm: Algorithm,
    problem: Objectives,
    key: jax.Array,
    t: Any,
    sampling: Sampling,
    agents: jax.Array | None = None,
    stage_index: int = 0,
    turn: Any = None,
) -> Any:
    """Draw the samples of every agent for a stage of round t.

    `agents` are the agents' numbers, by default 0, 1, ...
    """
    rows = problem.train.stored, problem.valid.stored
    agents = jnp.arange(problem.train.count.shape[0]) if agents is None else agents
    hessian_batches = algorithm.stages[stage_index].hessian_batches
    draw_agent = partial(
        draw, hessian_batches=hessian_batches, batch=algorithm.batch, sampling=sampling, turn=turn
    )
    return jax.vmap(draw_agent, (None, None, 0, 0), AGENT_AXES)(key, t, agents, rows)


def estimate_gradients(
    algorithm: Algorithm,
    problem: Objectives,
    state: State,
    t: Any,
    *,
    sample: Sample | None,
    agent_indices: jax.Array | None = None,
    size: int | None = None,
    stage_index: int = 0,
) -> tuple[Estimate, Cost]:
    """Compute the gradient estimates of all agents in a stage of round t, `size` in parallel.

    `agent_indices` are the agents' numbers, by default 0, 1, ...
    """

    def estimate_one(agent: Any, i: Any, state: State, drawn: Any) -> tuple[Estimate, Cost]:
        objectives = problem.for_agent(agent)
        if sample is not None:
            drawn = objectives.draw_batch(drawn._replace(bits=sample.bits))
        stage = select_agent_values(algorithm, i).stages[stage_index]
        return stage.estimate(objectives, state, t, drawn)

    agents = jnp.arange(problem.train.count.shape[0])
    if algorithm.stages[stage_index].takes_turns:
        size = 1 if jax.default_backend() == "cpu" else size
    estimate_all = map_in_groups(estimate_one, size or agents_in_parallel(problem.train))
    agent_indices = agents if agent_indices is None else agent_indices
    return estimate_all(agents, agent_indices, state, sample and sample._replace(bits=None))


def estimate_in_place(
    algorithm: Algorithm,
    problem: Objectives,
    state: State,
    t: Any,
    *,
    sample: Sample,
    agent_indices: jax.Array,
    stage_index: int,
) -> tuple[State, Estimate, Cost]:
    """Compute the gradient estimates of one agent after another, and move its local variables.

    Also returns the state of all agents with the moved variables; the estimates lack them.
    """

    def estimate_one(state: State, inputs: Any) -> tuple[State, tuple[Estimate, Cost]]:
        position, i, drawn = inputs
        objectives = problem.for_agent(position)
        drawn = objectives.draw_batch(drawn._replace(bits=sample.bits))
        stage = select_agent_values(algorithm, i).stages[stage_index]
        own = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, position, 0, False), state)
        estimate, cost = stage.estimate(objectives, own, t, drawn)
        moved, estimate = stage.move_local_variables(own, estimate, t)
        store = lambda old, all_agents, new: (
            all_agents
            if new is old
            else jax.lax.dynamic_update_index_in_dim(all_agents, new, position, 0)
        )
        return jax.tree.map(store, own, state, moved), (estimate, cost)

    positions = jnp.arange(problem.train.count.shape[0])
    inputs = positions, agent_indices, sample._replace(bits=None)
    state, (estimates, costs) = jax.lax.scan(estimate_one, state, inputs)
    return state, estimates, costs


def agents_in_parallel(rows: Rows) -> int:
    """Return how many agents compute their gradients in parallel.

    On a CPU, as many as keep their blocks of rows in its caches: the blocks of 1,024 agents at once
    would be reloaded from memory at every product.
    """
    agents = rows.count.shape[0]
    if jax.default_backend() != "cpu":
        return agents
    row_bytes = sum(math.prod(a.shape[2:]) * a.dtype.itemsize for a in jax.tree.leaves(rows.data))
    parallel = max(1, CACHE_BYTES // (rows.batch * row_bytes))
    return agents if agents <= 2 * parallel else even_group_size(agents, parallel)


def run_round(
    algorithm: Algorithm,
    problem: Objectives,
    mixer: Mixing,
    key: jax.Array,
    sampling: Sampling,
    progress: Progress,
    agents: jax.Array | None = None,
    size: int | None = None,
    in_place: bool = False,
) -> Progress:
    """Run one round, stage by stage: estimate, send, mix, update.

    With `in_place` the agents work one after another, and each overwrites its local variables at
    once (`move_local_variables`), so that the directions of one agent exist at a time.
    """
    t, stages = progress.t, algorithm.stages
    has_several_exchanges = len(stages) > 1 or stages[0].repeats > 1
    agent_indices = jnp.arange(problem.train.count.shape[0]) if agents is None else agents
    # Draws belong to an agent, not to its place.
    identities = agents if mixer.identities is None else mixer.identities

    def exchange(
        stage_index: int, exchange_index: Any, before: tuple[State, jax.Array, Any]
    ) -> tuple[State, jax.Array, Any]:
        state, spent, link_states = before
        inputs = algorithm, problem, state, t
        sample: Any = None
        if in_place or not stages[stage_index].ignores_samples:
            sample = draw_samples(
                algorithm, problem, key, t, sampling, identities, stage_index, exchange_index
            )
        if in_place:
            state, estimates, costs = estimate_in_place(
                *inputs, sample=sample, agent_indices=agent_indices, stage_index=stage_index
            )
        else:
            estimates, costs = estimate_gradients(
                *inputs, sample=sample, agent_indices=agents, size=size, stage_index=stage_index
            )
        outgoing = lambda i, *values: (
            select_agent_values(algorithm, i).stages[stage_index].outgoing(*values, t)
        )
        sent = jax.vmap(outgoing)(agent_indices, state, estimates)
        if is_mean(sent):
            change = Message(mean=mixer.mean(sent.mean))
        else:
            exchange_id = ExchangeId(key, t, exchange_index, stage_index)
            change, link_states = mixer.exchange(sent, exchange_id, link_states)
        update = lambda i, *values: (
            select_agent_values(algorithm, i).stages[stage_index].update(*values, t)
        )
        state = jax.vmap(update)(agent_indices, state, estimates, sent, change)
        return state, jax.vmap(cost_counter.charge)(spent, costs), link_states

    after, first = progress[1:], 0
    for stage_index, stage in enumerate(stages):
        if stage.repeats == 1:
            after = exchange(stage_index, first if has_several_exchanges else None, after)
        else:
            repeat = lambda k, after, first=first, stage_index=stage_index: exchange(
                stage_index, first + k, after
            )
            after = jax.lax.fori_loop(0, stage.repeats, repeat, after)
        first += stage.repeats
    if (skips := mixer.skips) is not None:
        is_skipped = skips[t % len(skips)]  # what an agent has that skips the round stays as it was
        keep = lambda old, new: jnp.where(is_skipped.reshape(-1, *[1] * (new.ndim - 1)), old, new)
        after = jax.tree.map(keep, progress[1:], after)
    return Progress(t + 1, *after)


def run_rounds_until(
    algorithm: Algorithm,
    problem: Objectives,
    mixer: Mixing,
    key: jax.Array,
    progress: Progress,
    until: jax.Array,
    sampling: Sampling,
    size: int | None = None,
    constrain: Callable[[Progress], Progress] = lambda progress: progress,
    in_place: bool = False,
) -> tuple[Progress, jax.Array]:
    """Run rounds up to `until`, to the end of the algorithm, or until x or y is not finite.

    `until` is an argument, so that chunks of any length are the same program and give the same
    bits. Also returns whether all is finite. Only x and y are checked, because they accumulate u, p
    and v. `constrain` lays out the progress after every round.
    """

    def unfinished(carry: Any) -> jax.Array:
        progress, is_finite = carry
        has_rounds = progress.t < until
        return has_rounds & is_finite & ~jnp.bool_(algorithm.is_finished(progress.state))

    def body(carry: Any) -> Any:
        progress = run_round(
            algorithm, problem, mixer, key, sampling, carry[0], size=size, in_place=in_place
        )
        progress = constrain(progress)
        return progress, pytrees.finite((progress.state.x, progress.state.y))

    return jax.lax.while_loop(unfinished, body, (progress, jnp.bool_(True)))


run_rounds = compile_program("sampling", "size")(run_rounds_until)
# Overwrites the arrays of the progress before, for a large y.
donating_run_rounds = compile_program("sampling", "size", donated=("progress",))(run_rounds_until)

# The same, one agent after another, whatever the size.
run_rounds_in_place = compile_program("sampling", "size", donated=("progress",))(
    partial(run_rounds_until, in_place=True)
)
