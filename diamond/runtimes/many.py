"""Many runs of one algorithm, with other numbers or seeds, on one problem and network.

On an accelerator they are one program, the runs being an axis of their own: small problems leave
it idle otherwise. On a CPU they run one after another, which is as fast there.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import cost, tree
from ..algorithm import Algorithm
from ..cost import Cost
from ..deferred import resolve
from ..divergence import Diverged
from ..measure import Metrics, observe
from ..network import Network
from ..network.mixer import Mixer, mixer
from ..problem import Objectives, Problem, Rows
from ..record import message_bytes
from ..sampling import Sampling, key
from ._round import Progress, play, start
from .simulate import check, simulate

LANES = 64  # runs side by side: always as many, so that other numbers of runs compile nothing new


class Outcome(NamedTuple):
    """What became of one run."""

    history: dict[str, np.ndarray]  # until it diverged, if it did; as `Run.history`
    diverged: int | None  # the round in which it did


def many(
    problem: Problem,
    network: Network,
    runs: Sequence[tuple[Algorithm, int]],
    rounds: int,
    every: int = 100,
    sampling: Sampling = "blocks",
    batched: bool | None = None,
    on_run: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """The outcome of each (algorithm, seed), in order: that of `simulate`, to rounding.

    The algorithms must differ in their numbers only. `batched` as one program: by default on an
    accelerator. There, `seconds` is a run's share of the time of all. `on_run` is told how many
    runs are done.
    """
    if batched is None:
        batched = jax.default_backend() != "cpu"
    outcomes: list[Outcome] = []
    for algorithm, _ in runs:
        check(problem, network, algorithm, rounds, every, sampling)
    if batched:
        for first in range(0, len(runs), LANES):
            group = list(runs[first : first + LANES])
            group += [group[-1]] * (LANES - len(group))
            found = _batched(problem, network, group, rounds, every, sampling)
            outcomes += found[: len(runs) - first]
            if on_run:
                on_run(len(outcomes))
        return outcomes
    for algorithm, seed in runs:
        try:
            run = simulate(problem, network, algorithm, rounds, seed, every, sampling)
            outcomes.append(Outcome(run.history, None))
        except Diverged as error:
            outcomes.append(Outcome(error.run.history, error.round))
        if on_run:
            on_run(len(outcomes))
    return outcomes


def _batched(
    problem: Problem,
    network: Network,
    runs: Sequence[tuple[Algorithm, int]],
    rounds: int,
    every: int,
    sampling: Sampling,
) -> list[Outcome]:
    resolved = [resolve(algorithm, problem, algorithm.batch, seed) for algorithm, seed in runs]
    stack = lambda trees: jax.tree.map(lambda *a: jnp.stack(a), *trees)
    algorithms = stack([algorithm for algorithm, *_ in resolved])
    seeds = {seed: (key(seed), problem.start(seed)) for _, seed in runs}
    keys = stack([seeds[seed][0] for _, seed in runs])
    points = stack([seeds[seed][1] for _, seed in runs])
    setup = stack([jax.tree.map(jnp.uint32, spent) for *_, spent in resolved])
    begin = jax.vmap(lambda a, x, y: start(a, x, y, problem.agents))(algorithms, *points)
    spent = jax.vmap(jax.vmap(cost.charge, (0, None)))(begin.spent, setup)
    lanes = begin.state, spent, jnp.full(len(runs), -1, jnp.int32)
    objectives, mixing = problem.objectives(runs[0][0].batch), mixer(network)
    rows, metrics = problem.stack(problem.measured), tuple(problem.metrics.items())
    sent = (
        2
        * len(network.edges)
        * message_bytes(resolved[0][0], jax.tree.map(lambda a: a[0], begin.state))
    )

    fixed = algorithms, objectives, mixing, keys
    go = lambda t, lanes, until: jax.block_until_ready(
        _advance(*fixed, jnp.int32(t), lanes, jnp.int32(until), sampling=sampling)
    )
    go(0, lanes, 0)  # compiles
    entries: list[dict[str, np.ndarray]] = []
    seconds, t = 0.0, 0
    for until in [0, *range(every, rounds, every), *([rounds] if rounds else [])]:
        begun = time.perf_counter()
        lanes = go(t, lanes, until)
        seconds, t = seconds + time.perf_counter() - begun, until
        state, spent_now, _ = lanes
        found = _observe(objectives, rows, metrics, state.x, state.y, keys)
        entry = {name: np.asarray(value) for name, value in found.items()}
        counts = cost.total(spent_now).mean(1)
        entry |= {name: counts[:, i].astype(float) for i, name in enumerate(Cost._fields)}
        entry |= {"round": t, "bytes": t * sent, "seconds": seconds / len(runs)}  # type: ignore[dict-item]
        entries.append(entry)
    return [_outcome(entries, lane, int(lanes[2][lane])) for lane in range(len(runs))]


def _outcome(entries: list[dict[str, np.ndarray]], lane: int, failed: int) -> Outcome:
    kept = [e for e in entries if failed < 0 or int(e["round"]) <= failed]
    pick = lambda value: value[lane] if np.ndim(value) else value
    history = {name: np.array([pick(e[name]) for e in kept]) for name in entries[0]}
    return Outcome(history, failed if failed >= 0 else None)


@partial(jax.jit, static_argnames="sampling")
def _advance(
    algorithms: Algorithm,
    problem: Objectives,
    mixing: Mixer,
    keys: jax.Array,
    t: jax.Array,
    lanes: tuple[Any, jax.Array, jax.Array],
    until: jax.Array,
    sampling: Sampling,
) -> tuple[Any, jax.Array, jax.Array]:
    """Rounds t to `until` of every lane: its state, its counters, the round it failed in or -1."""

    def one(algorithm: Algorithm, key: jax.Array, state: Any, spent: jax.Array, t: Any) -> Any:
        return play(algorithm, problem, mixing, key, sampling, Progress(t, state, spent))[1:]

    def body(carry: Any) -> Any:
        t, (state, spent, failed) = carry
        state, spent = jax.vmap(one, (0, 0, 0, 0, None))(algorithms, keys, state, spent, t)
        sound = jax.vmap(tree.finite)((state.x, state.y))
        return t + 1, (state, spent, jnp.where((failed < 0) & ~sound, t, failed))

    return jax.lax.while_loop(lambda carry: carry[0] < until, body, (t, lanes))[1]


@partial(jax.jit, static_argnums=2)
def _observe(
    problem: Objectives, rows: Rows, metrics: Metrics, x: Any, y: Any, keys: jax.Array
) -> dict[str, jax.Array]:
    look = lambda x, y, key: observe(problem, rows, metrics, x, y, key)[0]
    return jax.vmap(look)(x, y, keys)
