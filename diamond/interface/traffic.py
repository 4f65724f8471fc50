"""Messages of a round, and the bytes sent."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from ..core.sampling import draw, key
from ..problem import Objectives
from ..schedules.deferred import select_agent_values
from .round_interface import Algorithm, Message


class Traffic(NamedTuple):
    """Bytes that one agent sends to one neighbour in a round."""

    exchanges: int
    bytes: int
    each: tuple[tuple[int, bool], ...] = ()  # bytes of every exchange; whether it is early
    turns: tuple[int | None, ...] = ()  # number of each in the round; None: a single one


def messages(algorithm: Algorithm, problem: Objectives, x: Any, y: Any) -> list[Message]:
    """Return the message of each stage, as shapes."""
    return jax.eval_shape(_messages, algorithm, problem, x, y)


def traffic(
    algorithm: Algorithm, problem: Objectives, x: Any, y: Any, channels: Sequence[Any] = ()
) -> Traffic:
    """Return the traffic of one round, one link and one direction, encoded by `channels`."""
    told = messages(algorithm, problem, x, y)
    for channel in channels:
        told = [channel.wire(message) for message in told]
    times = [stage.repeats * bool(jax.tree.leaves(m)) for stage, m in zip(algorithm.stages, told)]
    size = lambda m: sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(m))
    each, waits = [], False  # a local step delays the next message
    turns: list[int | None] = []
    first = 0
    for stage, k, m in zip(algorithm.stages, times, told):
        each += [
            (size(m), stage.sends_before_gradient and not (waits and turn == 0))
            for turn in range(k)
        ]
        turns += range(first, first + k)
        waits, first = k == 0, first + stage.repeats
    if first == 1:
        turns = [None] * len(turns)
    total = sum(k * size(m) for k, m in zip(times, told))
    return Traffic(sum(times), total, tuple(each), tuple(turns))


@jax.jit  # never run: caches the shapes, so that another run traces nothing
def _messages(algorithm: Algorithm, problem: Objectives, x: Any, y: Any) -> list[Message]:
    algorithm = select_agent_values(algorithm, 0)
    state, found = algorithm.init(x, y), []
    for stage in algorithm.stages:
        rows = problem.train.stored, problem.valid.stored
        few = jax.tree.map(lambda count: 1, rows)
        sample = draw(key(0), 0, 0, few, stage.hessian_batches, algorithm.batch, "blocks")
        estimate, _ = stage.estimate(problem.for_agent(0), state, 0, sample)
        found.append(stage.outgoing(state, estimate, 0))
    return found
