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
from ..deferred import Setting, refreshes, resolve, swap
from ..divergence import Diverged
from ..measure import Metrics, observe
from ..network import Network
from ..network.mixer import Mixer, mixer
from ..problem import Objectives, Problem, Rows
from ..record import message_bytes
from ..sampling import Sampling, key
from ._compiled import compiled
from ._round import Progress, play, start
from .simulate import check, simulate

LANES = 288  # runs side by side, at most


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

    `batched` as one program, for which the algorithms must differ in their numbers only: by default
    on an accelerator, if they do. There, `seconds` is a run's share of the time of all. `on_run` is
    told how many runs are done.
    """
    if batched is None:
        batched = jax.default_backend() != "cpu" and _alike([given for given, _ in runs])
    outcomes: list[Outcome] = []
    for algorithm, _ in runs:
        check(problem, network, algorithm, rounds, every, sampling)
    if batched:
        made: dict[int, Outcome] = {}
        for table in _tables([seed for _, seed in runs]):
            found = _batched(problem, network, runs, table, rounds, every, sampling)
            made |= dict(zip(table.ravel().tolist(), found, strict=True))
            if on_run:
                on_run(len(made))
        return [made[i] for i in range(len(runs))]
    for algorithm, seed in runs:
        try:
            run = simulate(problem, network, algorithm, rounds, seed, every, sampling)
            outcomes.append(Outcome(run.history, None))
        except Diverged as error:
            outcomes.append(Outcome(error.run.history, error.round))
        if on_run:
            on_run(len(outcomes))
    return outcomes


def _alike(algorithms: Sequence[Algorithm]) -> bool:
    """Whether they differ in their numbers only, also where each run finds some for itself."""
    names: set[str] = set()
    for algorithm in algorithms:
        swap(algorithm, lambda open: names.add(open.name))
    same = len({jax.tree.structure(algorithm) for algorithm in algorithms}) <= 1
    return same and "terms" not in names  # K is a length in the program


def _tables(seeds: list[int]) -> list[np.ndarray]:
    """The runs as tables of at most LANES: a row has runs of one seed, which draw the same rows.

    What is drawn is fetched once a row, and the products of a row's runs with it become one. Rows
    that are too short repeat their last run.
    """
    each: dict[int, list[int]] = {}
    for i, seed in enumerate(seeds):
        each.setdefault(seed, []).append(i)
    width = min(LANES, max(map(len, each.values()), default=1))
    rows = [of[k : k + width] for of in each.values() for k in range(0, len(of), width)]
    full = np.array([row + [row[-1]] * (width - len(row)) for row in rows], int).reshape(-1, width)
    many = max(1, LANES // width)
    return [full[k : k + many] for k in range(0, len(full), many)]


def _batched(
    problem: Problem,
    network: Network,
    runs: Sequence[tuple[Algorithm, int]],
    table: np.ndarray,
    rounds: int,
    every: int,
    sampling: Sampling,
) -> list[Outcome]:
    lanes = Lanes(problem, network, [runs[i] for i in table.ravel()], table.shape, sampling)
    marks = {0, *range(every, rounds, every), rounds}
    renewals = set(refreshes(rounds)) if lanes.changes else set()
    entries = []
    for until in sorted(marks | renewals):
        lanes.advance(until)
        if until in renewals:
            lanes.renew()
        if until in marks:
            entries.append(lanes.measure())
    return [_outcome(entries, lane, int(failed)) for lane, failed in enumerate(lanes.failed)]


class Lanes:
    """Runs side by side: an axis of their own before that of the agents.

    `shape` is (rows, runs of a row); a row's runs have one seed.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        runs: Sequence[tuple[Algorithm, int]],
        shape: tuple[int, ...],
        sampling: Sampling,
    ):
        self.problem, self.network, self.sampling = problem, network, sampling
        self.shape = shape
        self.given = [algorithm for algorithm, _ in runs]
        self.settings = [Setting(problem, network, given.batch, seed) for given, seed in runs]
        self._number()
        seeds = {seed: (key(seed), problem.start(seed)) for seed in {seed for _, seed in runs}}
        self.keys = _stack([seeds[seed][0] for _, seed in runs])
        points = _stack([seeds[seed][1] for _, seed in runs])
        begin = lambda a, x, y: start(a, x, y, problem.agents)
        _, self.state, self.spent = jax.vmap(begin)(self.algorithms, *points)
        self._charge([found.cost for found in self.resolved])
        self.failed = jnp.full(len(runs), -1, jnp.int32)
        self.objectives = problem.objectives(self.given[0].batch)
        start_point = problem.start(runs[0][1])
        self.message = message_bytes(self.resolved[0].algorithm, self.objectives, *start_point)
        self.mixing, self.t, self.seconds = mixer(network), 0, 0.0
        self.advance(0)  # compiles
        self.seconds = 0.0

    @property
    def changes(self) -> bool:
        """Whether numbers are to be found anew on the way."""
        return self.settings[0].changes

    def advance(self, until: int) -> None:
        """All lanes on to round `until`."""
        begun = time.perf_counter()
        fixed = self.algorithms, self.objectives, self.mixing, self.keys, jnp.int32(self.t)
        now = self.state, self.spent, self.failed
        options = {"sampling": self.sampling, "shape": self.shape}
        after = _advance(*fixed, now, jnp.int32(until), **options)
        self.state, self.spent, self.failed = jax.block_until_ready(after)
        self.seconds, self.t = self.seconds + time.perf_counter() - begun, until

    def renew(self) -> None:
        """Find each lane's numbers anew, where its agents stand."""
        before = [found.cost for found in self.resolved]
        x, y = self.state.x, self.state.y
        of = lambda lane, a: jax.tree.map(lambda a: a[lane], a)
        self.settings = [s.at(of(i, x), of(i, y)) for i, s in enumerate(self.settings)]
        self._number()
        self._charge([tree.sub(f.cost, old) for f, old in zip(self.resolved, before)])

    def measure(self) -> dict[str, Any]:
        """One entry of the history, of all lanes."""
        problem = self.problem
        rows, metrics = problem.stack(problem.measured), tuple(problem.metrics.items())
        place = self.state.x, self.state.y, self.keys
        found = _observe(self.objectives, rows, metrics, *place)
        counts = cost.total(self.spent).mean(1)
        sent = self.t * 2 * len(self.network.edges) * self.message
        return {
            **{name: np.asarray(value) for name, value in found.items()},
            **{name: counts[:, i].astype(float) for i, name in enumerate(Cost._fields)},
            "round": self.t,
            "bytes": np.array([found.bytes for found in self.resolved]) + sent,
            "seconds": self.seconds / len(self.given),
        }

    def _number(self) -> None:
        self.resolved = [resolve(given, s) for given, s in zip(self.given, self.settings)]
        self.algorithms = _stack([found.algorithm for found in self.resolved])

    def _charge(self, costs: list[Cost]) -> None:
        spent = _stack([cost.each(c, self.problem.agents) for c in costs])
        self.spent = jax.vmap(jax.vmap(cost.charge))(self.spent, spent)


def _stack(trees: list[Any]) -> Any:
    if len({jax.tree.structure(tree) for tree in trees}) > 1:
        raise ValueError(
            "the runs differ in more than their numbers (K, perhaps, where each finds its own): "
            "give neumann(terms=...) a number, or run them one by one with batched=False"
        )
    return jax.tree.map(lambda *a: jnp.stack(a), *trees)


def _outcome(entries: list[dict[str, Any]], lane: int, failed: int) -> Outcome:
    kept = [e for e in entries if failed < 0 or int(e["round"]) <= failed]
    pick = lambda value: value[lane] if np.ndim(value) else value
    history = {name: np.array([pick(e[name]) for e in kept]) for name in entries[0]}
    return Outcome(history, failed if failed >= 0 else None)


@compiled("sampling", "shape")
def _advance(
    algorithms: Algorithm,
    problem: Objectives,
    mixing: Mixer,
    keys: jax.Array,
    t: jax.Array,
    lanes: tuple[Any, jax.Array, jax.Array],
    until: jax.Array,
    sampling: Sampling,
    shape: tuple[int, int],
) -> tuple[Any, jax.Array, jax.Array]:
    """Rounds t to `until` of every lane: its state, its counters, the round it failed in or -1."""
    table = lambda a: a.reshape(*shape, *a.shape[1:])
    seeds = table(keys)[:, 0]
    algorithms, lanes = jax.tree.map(table, (algorithms, lanes))

    def one(algorithm: Algorithm, key: jax.Array, state: Any, spent: jax.Array, t: Any) -> Any:
        return play(algorithm, problem, mixing, key, sampling, Progress(t, state, spent))[1:]

    row = jax.vmap(one, (0, None, 0, 0, None))  # one seed: all draw the same
    each = jax.vmap(row, (0, 0, 0, 0, None))

    def body(carry: Any) -> Any:
        t, (state, spent, failed) = carry
        state, spent = each(algorithms, seeds, state, spent, t)
        sound = jax.vmap(jax.vmap(tree.finite))((state.x, state.y))
        return t + 1, (state, spent, jnp.where((failed < 0) & ~sound, t, failed))

    after = jax.lax.while_loop(lambda carry: carry[0] < until, body, (t, lanes))[1]
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), after)


@partial(jax.jit, static_argnums=2)
def _observe(
    problem: Objectives, rows: Rows, metrics: Metrics, x: Any, y: Any, keys: jax.Array
) -> dict[str, jax.Array]:
    look = lambda x, y, key: observe(problem, rows, metrics, x, y, key)[0]
    return jax.vmap(look)(x, y, keys)
