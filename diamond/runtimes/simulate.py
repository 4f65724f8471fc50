"""All agents in one process, as one axis of every array, in one compiled program."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .. import cost
from ..algorithm import Algorithm
from ..deferred import resolve
from ..divergence import Diverged, culprit, explain
from ..network import Network
from ..network.mixer import mixer
from ..problem import Problem
from ..record import Record
from ..run import Run
from ..sampling import Sampling, key
from ._round import Progress, advance, estimate, samples, start


def simulate(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    seed: int = 0,
    every: int = 100,
    sampling: Sampling = "blocks",
    on_evaluation: Callable[[dict[str, float]], None] | None = None,
) -> Run:
    """`rounds` rounds of `algorithm`, measured at the start, after every `every`, and at the end.

    The same seed gives the same trajectory, whatever `every` is; all algorithms see the same
    draws. `sampling`: "blocks" takes successive rows (shuffled once), which is fast; "rows" draws
    each row on its own, with replacement. `on_evaluation` is handed each entry of the history as
    it is made. Raises `diamond.Diverged` in the first round that leaves x or y not finite.
    """
    check(problem, network, algorithm, rounds, every, sampling)
    algorithm, resolved, setup = resolve(algorithm, problem, algorithm.batch, seed)
    objectives, mixing = problem.objectives(algorithm.batch), mixer(network)
    progress = start(algorithm, *problem.start(seed), problem.agents)
    spent = jax.vmap(cost.charge, (0, None))(progress.spent, setup)
    progress = progress._replace(spent=spent)

    def go(progress: Progress, until: int) -> tuple[Progress, jax.Array, float]:
        begun = time.perf_counter()
        fixed = algorithm, objectives, mixing, key(seed), progress
        after, sound = jax.block_until_ready(advance(*fixed, jnp.int32(until), sampling=sampling))
        return after, sound, time.perf_counter() - begun

    *_, compiling = go(progress, 0)  # no round at all: the time is the compiler's
    record = Record(problem, network, algorithm, objectives, seed, sampling, resolved, compiling)
    record.add(progress, 0.0, on_evaluation)
    seconds = 0.0
    for until in [*range(every, rounds, every), *([rounds] if rounds else [])]:
        after, sound, took = go(progress, until)
        seconds += took
        if not sound:
            t = int(after.t) - 1
            good, *_ = go(progress, t)  # the same bits again, up to the round before
            raise _diverged(record.run(good), algorithm, objectives, mixing, good, problem)
        progress = after
        record.add(progress, seconds, on_evaluation)
    return record.run(progress)


def check(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    every: int,
    sampling: Sampling,
) -> None:
    """Refuse what does not fit together."""
    if problem.agents != network.agents:
        raise ValueError(
            f"the problem has {problem.agents} agents, the network {network.agents}; make a "
            f"network of {problem.agents}"
        )
    if rounds < 0 or every < 1:
        raise ValueError(f"rounds = {rounds} must be 0 or more, every = {every} at least 1")
    if algorithm.batch < 1:
        raise ValueError(f"batch = {algorithm.batch}: a mini-batch needs at least one row")
    if sampling not in ("blocks", "rows"):
        raise ValueError(f"no sampling {sampling!r}; there are 'blocks' and 'rows'")


def _diverged(
    run: Run, algorithm: Algorithm, objectives: Any, mixing: Any, good: Progress, problem: Problem
) -> Diverged:
    t = run.rounds
    sample = samples(algorithm, objectives, key(run.seed), t, run.sampling)
    directions, _ = jax.jit(estimate)(algorithm, objectives, good.state, t, sample)
    after, _ = advance(
        algorithm, objectives, mixing, key(run.seed), good, good.t + 1, sampling=run.sampling
    )
    quantity = culprit(directions, after.state)
    message = (
        f"diverged in round {t}: {quantity} is not finite; "
        f"{explain(problem, algorithm, t, run.seed)}. The state before that round is kept in "
        f"`run` of this error"
    )
    return Diverged(message, t, quantity, run)
