"""One round of all agents, and many rounds as one compiled program."""

import math
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ..core import cost_counter, host_transfer, pytrees
from ..core.cost_counter import Cost
from ..core.sampling import EACH, Moment, Sample, Sampling, draw
from ..hardware.compiler import compiled
from ..hardware.memory import even, grouped
from ..interface.round_interface import Algorithm, Estimate, Message, State
from ..interface.traffic import messages
from ..problem import Objectives, Rows
from ..schedules.deferred import agent_numbers

CACHE = 2**18  # bytes of rows to work on at a time
WORK, REMEDY = "a round", "a smaller batch, fewer terms K, or more devices"


class Progress(NamedTuple):
    """State of a run: everything that later rounds depend on."""

    t: jax.Array  # rounds completed
    state: State  # of all agents, with the agent axis first
    spent: jax.Array  # cost counters of the agents
    kept: Any = None  # link states of all agents


class Mixing(Protocol):
    """Communication step of a round: `Mixer` and its relatives."""

    def exchange(self, message: Message, moment: Moment, kept: Any) -> tuple[Message, Any]: ...


def start(algorithm: Algorithm, x: pytrees.Tree, y: pytrees.Tree, agents: int) -> Progress:
    """Return all agents before round 0, at the same point."""
    state = jax.vmap(algorithm.init)(*host_transfer.broadcast_to_agents((x, y), agents))
    return Progress(
        host_transfer.to_device(0, np.int32),
        state,
        host_transfer.to_device(cost_counter.each(Cost(), agents)),
    )


def begin(
    algorithm: Algorithm, problem: Objectives, mixer: Mixing, x: pytrees.Tree, y: pytrees.Tree
) -> Progress:
    """Return all agents before round 0, with the initial link states."""
    agents = problem.train.count.shape[0]
    progress = start(algorithm, x, y, agents)
    if not hasattr(mixer, "start"):
        return progress
    return progress._replace(kept=mixer.start(messages(algorithm, problem, x, y)))


def first_stop(t: int, kept: Any) -> int:
    """Return the round to stop at in the call that compiles a program.

    The result of that call is dropped. Usually this is t, so that no round is run. With link states
    it is t + 1: the first execution of a round that draws for links takes 50 to 80 ms longer on a
    CPU, though JAX compiles nothing then.
    """
    return t if kept is None else t + 1


def samples(
    algorithm: Algorithm,
    problem: Objectives,
    key: jax.Array,
    t: Any,
    sampling: Sampling,
    agents: jax.Array | None = None,
    number: int = 0,
    turn: Any = None,
) -> Any:
    """Draw the samples of every agent for a stage of round t.

    `agents` are the agents' numbers, by default 0, 1, ...
    """
    rows = problem.train.stored, problem.valid.stored
    agents = jnp.arange(problem.train.count.shape[0]) if agents is None else agents
    links = algorithm.stages[number].links
    drawn = partial(draw, links=links, batch=algorithm.batch, sampling=sampling, turn=turn)
    return jax.vmap(drawn, (None, None, 0, 0), EACH)(key, t, agents, rows)


def estimate(
    algorithm: Algorithm,
    problem: Objectives,
    state: State,
    t: Any,
    sample: Sample,
    numbers: jax.Array | None = None,
    size: int | None = None,
    number: int = 0,
) -> tuple[Estimate, Cost]:
    """Compute the gradient estimates of all agents in a stage of round t, `size` in parallel.

    `numbers` are the agents' numbers, by default 0, 1, ...
    """

    def alone(agent: Any, i: Any, state: State, drawn: Sample) -> tuple[Estimate, Cost]:
        own = problem.of(agent)
        drawn = own.at(drawn._replace(bits=sample.bits))
        return agent_numbers(algorithm, i).stages[number].estimate(own, state, t, drawn)

    agents = jnp.arange(problem.train.count.shape[0])
    work = grouped(alone, size or together(problem.train))
    numbers = agents if numbers is None else numbers
    return work(agents, numbers, state, sample._replace(bits=None))


def together(rows: Rows) -> int:
    """Return how many agents compute their gradients in parallel.

    On a CPU, as many as keep their blocks of rows in its caches: the blocks of 1,024 agents at once
    would be reloaded from memory at every product.
    """
    agents = rows.count.shape[0]
    if jax.default_backend() != "cpu":
        return agents
    row = sum(math.prod(a.shape[2:]) * a.dtype.itemsize for a in jax.tree.leaves(rows.data))
    most = max(1, CACHE // (rows.batch * row))
    return agents if agents <= 2 * most else even(agents, most)


def run_round(
    algorithm: Algorithm,
    problem: Objectives,
    mixer: Mixing,
    key: jax.Array,
    sampling: Sampling,
    progress: Progress,
    agents: jax.Array | None = None,
    size: int | None = None,
) -> Progress:
    """Run one round, stage by stage: estimate, send, mix, update."""
    t, stages = progress.t, algorithm.stages
    several = len(stages) > 1 or stages[0].times > 1
    numbers = jnp.arange(problem.train.count.shape[0]) if agents is None else agents

    def exchange(
        number: int, turn: Any, before: tuple[State, jax.Array, Any]
    ) -> tuple[State, jax.Array, Any]:
        state, spent, kept = before
        sample = samples(algorithm, problem, key, t, sampling, agents, number, turn)
        estimates, costs = estimate(algorithm, problem, state, t, sample, agents, size, number)
        tell = lambda i, *each: agent_numbers(algorithm, i).stages[number].outgoing(*each, t)
        told = jax.vmap(tell)(numbers, state, estimates)
        change, kept = mixer.exchange(told, Moment(key, t, turn, number), kept)
        update = lambda i, *each: agent_numbers(algorithm, i).stages[number].update(*each, t)
        state = jax.vmap(update)(numbers, state, estimates, told, change)
        return state, jax.vmap(cost_counter.charge)(spent, costs), kept

    after, first = progress[1:], 0
    for number, stage in enumerate(stages):
        if stage.times == 1:
            after = exchange(number, first if several else None, after)
        else:
            turn = lambda k, after: exchange(number, first + k, after)
            after = jax.lax.fori_loop(0, stage.times, turn, after)
        first += stage.times
    return Progress(t + 1, *after)


@compiled("sampling", "size")
def run_rounds(
    algorithm: Algorithm,
    problem: Objectives,
    mixer: Mixing,
    key: jax.Array,
    progress: Progress,
    until: jax.Array,
    sampling: Sampling,
    size: int | None = None,
) -> tuple[Progress, jax.Array]:
    """Run rounds up to `until`, or through the first that leaves x or y not finite.

    `until` is an argument, so that chunks of any length are the same program and give the same
    bits. Also returns whether all is finite. Only x and y are checked, because they accumulate u, p
    and v.
    """

    def unfinished(carry: Any) -> jax.Array:
        progress, sound = carry
        return (progress.t < until) & sound

    def body(carry: Any) -> Any:
        progress = run_round(algorithm, problem, mixer, key, sampling, carry[0], size=size)
        return progress, pytrees.finite((progress.state.x, progress.state.y))

    return jax.lax.while_loop(unfinished, body, (progress, jnp.bool_(True)))
