"""Runs side by side as one program, the runs being an axis of their own."""

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..auto import watch
from ..core import cost, tree
from ..core.cost import Cost
from ..core.sampling import Sampling, key
from ..machine.compiler import BRIEF, MEASURES, compiled
from ..machine.memory import Budget, Fitted
from ..metrics.divergence import is_sound
from ..metrics.early_warnings import standstill
from ..metrics.exact import Metrics, looked_at, survey
from ..metrics.link_costs import LinkCosts
from ..network import Network
from ..network.mixing.lossy_mixer import mixing
from ..numbers.open_numbers import Setting, resolve
from ..problem import Objectives, Problem, Rows
from ..rounds.algorithm import Algorithm
from ..rounds.traffic import traffic
from ..runs.inputs import describe
from ..runs.run import Run
from ..runs.snapshot import Snapshot
from .recorder import MEASURING
from .round import REMEDY, WORK, Mixing, Progress, begin, first_stop, play, together

NEEDED = "stationarity", "upper_loss"  # to tell whether x stands still


class BatchedRuns:
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
        memory: int | None = None,
    ):
        self.problem, self.network, self.sampling = problem, network, sampling
        self.shape = shape
        self.given = [algorithm for algorithm, _ in runs]
        self.settings = [Setting(problem, network, given.batch, seed) for given, seed in runs]
        self._number()
        self.seeds = [seed for _, seed in runs]
        self.keys = jnp.stack([key(seed) for seed in self.seeds])
        once = list(dict.fromkeys(self.seeds))
        which = np.array([once.index(seed) for seed in self.seeds])
        starts = [problem.start(seed) for seed in once]
        looks = [looked_at(problem, y, seed, problem.agents) for (_, y), seed in zip(starts, once)]
        self.probes = jax.tree.map(lambda *a: np.stack(a)[which], *looks)
        x, y = jax.tree.map(lambda a: a[which], _stack(starts))
        self.objectives, self.mixing = problem.objectives(self.given[0].batch), mixing(network)
        given = self.algorithms, self.objectives, self.mixing, x, y
        _, self.state, self.spent, self.kept = _start(*given)
        self._charge()
        self.failed = jnp.full(len(runs), -1, jnp.int32)
        self.risen = np.zeros(len(runs), bool)  # lanes that would have gone back: `simulate` does
        told = self.resolved[0].algorithm, self.objectives, *starts[0]
        self.traffic = traffic(*told, network.channels)
        self.link_costs = {seed: LinkCosts(network, self.traffic, seed) for seed in once}
        self.t, self.seconds, self.compile_seconds = 0, 0.0, 0.0
        self.compiled: Any = None  # the algorithms that the rounds were compiled for last
        budget = Budget(list(self.objectives.train.count.devices()), memory)
        size = together(self.objectives.train)
        self.rounds = Fitted(_advance, size, budget, WORK, REMEDY)
        self.observe = Fitted(_observe, problem.agents, budget, *MEASURING)
        self.entries: list[dict[str, Any]] = []  # one an evaluation, of all lanes
        self.own: list[dict[str, np.ndarray]] = []  # the same, what each agent has of its own
        self.rounds.begin(*self._rounds(0), **self._options)
        self.observe.begin(*self._look())

    def ready(self) -> bool:
        """Wait for the compiler; whether the device has room for as much again."""
        begun = time.perf_counter()
        self.rounds.ready(*self._rounds(0), **self._options)
        self.observe.ready(*self._look())
        self.compile_seconds += time.perf_counter() - begun
        left = self.rounds.budget.left(0)
        needed = max(self.rounds.need or 0, self.observe.need or 0)
        return left is None or 2 * needed < left

    def _rounds(self, until: int) -> tuple[Any, ...]:
        fixed = self.algorithms, self.objectives, self.mixing, self.keys, jnp.int32(self.t)
        return *fixed, (self.state, self.spent, self.kept, self.failed), jnp.int32(until)

    @property
    def _options(self) -> dict[str, Any]:
        return {"sampling": self.sampling, "shape": self.shape}

    def _look(self) -> tuple[Any, ...]:
        problem = self.problem
        rows, metrics = problem.stack(problem.measured), tuple(problem.metrics.items())
        z = getattr(self.state, "z", None) if problem.lower_level == "common" else None
        return self.objectives, rows, metrics, self.state.x, self.state.y, z, self.probes

    @property
    def changes(self) -> bool:
        """Whether numbers are to be found anew on the way."""
        return self.settings[0].changes

    def advance(self, until: int) -> None:
        """All lanes on to round `until`."""
        if self.compiled is not self.algorithms:  # dropped: the time is the compiler's
            begun = time.perf_counter()
            stop = first_stop(self.t, self.kept)
            jax.block_until_ready(self.rounds(*self._rounds(stop), **self._options))
            self.compile_seconds += time.perf_counter() - begun
            self.compiled = self.algorithms
        begun = time.perf_counter()
        after = self.rounds(*self._rounds(until), **self._options)
        self.state, self.spent, self.kept, self.failed = jax.block_until_ready(after)
        self.seconds, self.t = self.seconds + time.perf_counter() - begun, until

    def renew(self) -> None:
        """Find each lane's numbers anew, where its agents stand."""
        x, y = self.state.x, self.state.y
        of = lambda lane, a: jax.tree.map(lambda a: a[lane], a)
        self.settings = [
            s.at(of(i, x), of(i, y), round=self.t) for i, s in enumerate(self.settings)
        ]
        self._number()
        self._charge()
        up = [bool(watch.risen(setting.memory)) for setting in self.settings]
        self.risen |= (np.asarray(self.failed) < 0) & up

    def measure(self, last: bool = False) -> None:
        """Add an entry to the histories of all lanes; no more rounds come after the `last`."""
        found, own = self.observe(*self._look())
        counts = cost.total(self.spent).mean(1)
        sent = self.network.count_messages(self.t) * self.traffic.bytes
        lost = (np.asarray(self.failed) < 0) & self._lost(found, last)
        self.failed = jnp.where(lost, self.t, self.failed).astype(jnp.int32)
        self.own.append({name: np.asarray(value) for name, value in own.items()})
        self.entries.append(
            {
                **{name: np.asarray(value) for name, value in found.items()},
                **{name: counts[:, i].astype(float) for i, name in enumerate(Cost._fields)},
                "round": self.t,
                "bytes": np.array([found.bytes for found in self.resolved]) + sent,
                "seconds": self.seconds / len(self.given),
                **self._on_links(),
            }
        )

    def warn_of_standstill(self) -> None:
        """Say of which lanes x is where it began, as a run alone does."""
        first, now = ({k: self.entries[i][k] for k in NEEDED} for i in (0, -1))
        for lane in np.flatnonzero(np.asarray(self.failed) < 0).tolist():
            entry = {"round": self.t, **{k: float(v[lane]) for k, v in now.items()}}
            x = jax.tree.map(lambda a: a[lane], self.state.x)
            start = self.problem.start(self.seeds[lane])[0]
            before, algorithm = float(first["stationarity"][lane]), self.resolved[lane].algorithm
            if said := standstill(start, x, entry, before, algorithm, self.t):
                warnings.warn(f"seed {self.seeds[lane]}: {said}", RuntimeWarning, stacklevel=4)

    def _on_links(self) -> dict[str, np.ndarray]:
        """What each lane would have taken on the network's links."""
        share = self.seconds / len(self.given)
        each = [
            self.link_costs[seed].after(self.t, found, share)
            for seed, found in zip(self.seeds, self.resolved)
        ]
        return {name: np.array([lane[name] for lane in each]) for name in each[0]}

    def _lost(self, found: Mapping[str, Any], last: bool) -> np.ndarray:
        """The lanes that end here for what was measured of them, as `Simulation.judge` has it."""
        sound = lambda names: np.all([is_sound(found, name) for name in names], axis=0)
        names = list(found)
        if last or self.t == 0:
            return ~sound(names)
        small = np.asarray(jax.vmap(tree.norm)((self.state.x, self.state.y))) <= watch.LOST
        return ~sound(names) & (small | sound(set(names) - set(self.problem.metrics)))

    def histories(self) -> list[dict[str, np.ndarray]]:
        """What was measured of each lane, until it failed if it did."""
        failed, lanes = np.asarray(self.failed), len(self.given)
        column = lambda name: np.array([np.broadcast_to(e[name], lanes) for e in self.entries])
        columns = {name: column(name) for name in self.entries[0]}
        kept = (failed < 0) | (columns["round"] <= failed)
        return [{n: c[kept[:, lane], lane] for n, c in columns.items()} for lane in range(lanes)]

    def runs(self) -> list[Run | None]:
        """Each lane as a run of its own; None for one that failed: its last good state is gone."""
        found = zip(np.asarray(self.failed) >= 0, self.histories())
        return [
            None if lost else self._run(lane, history) for lane, (lost, history) in enumerate(found)
        ]

    def _run(self, lane: int, history: dict[str, np.ndarray]) -> Run:
        state = jax.tree.map(lambda a: a[lane], self.state)
        spent, setup = cost.total(self.spent)[lane], self.resolved[lane]
        uses, size = self.network.uses(self.t), self.traffic.bytes
        each = setup.bytes // max(len(uses), 1)
        return Run(
            x=state.x,
            y=state.y,
            history=history,
            per_agent={
                name: np.array([own[name][lane] for own in self.own]) for name in self.own[0]
            },
            state=state,
            rounds=self.t,
            network=self.network,
            costs={name: spent[:, i] for i, name in enumerate(Cost._fields)},
            traffic={edge: count * size + each for edge, count in uses.items()},
            messages=self.network.count_messages(self.t) * self.traffic.exchanges
            + self.network.count_messages(setup.rounds),
            resolved=setup.numbers,
            sampling=self.sampling,
            seed=self.seeds[lane],
            compile_seconds=self.compile_seconds / len(self.given),
            config={"rounds": self.t, "algorithm": self._about(lane)},
            problem=self.problem,
            turns=self.traffic.turns,
            snapshot=self._snapshot(lane, history),
            inputs=describe(self.network, self.given[lane]),
        )

    def _snapshot(self, lane: int, history: dict[str, np.ndarray]) -> Snapshot:
        """The state that `simulate` continues this lane from."""
        of = jax.tree.map(lambda a: a[lane], (self.state, self.spent, self.kept))
        arrays = tree.named(Progress(jnp.int32(self.t), *of))
        entries = [
            {name: values[i].item() for name, values in history.items()}
            for i in range(len(history["round"]))
        ]
        own = [{name: values[lane] for name, values in each.items()} for each in self.own]
        seconds = self.seconds / len(self.given)
        return Snapshot(arrays, dict(self.settings[lane].memory), seconds, entries, own)

    def _about(self, lane: int) -> dict[str, Any]:
        return {"class": type(self.given[lane]).__name__, "batch": self.given[lane].batch}

    def _number(self) -> None:
        self.resolved = [resolve(given, s) for given, s in zip(self.given, self.settings)]
        self.algorithms = _stack([found.algorithm for found in self.resolved])

    def _charge(self) -> None:
        spent = np.stack([cost.each(found.cost, self.problem.agents) for found in self.resolved])
        self.spent = _added(self.spent, spent)


def _stack(trees: list[Any]) -> Any:
    if len({jax.tree.structure(tree) for tree in trees}) > 1:
        raise ValueError(
            "the runs differ in more than their numbers (K, perhaps, where each finds its own): "
            "give neumann(terms=...) a number, or run them one by one with batched=False"
        )
    return jax.tree.map(lambda *a: jnp.asarray(np.stack(a)), *trees)


@jax.jit
def _start(algorithms: Algorithm, problem: Objectives, mixing: Mixing, x: Any, y: Any) -> Progress:
    one = lambda a, x, y: begin(a, problem, mixing, x, y)
    return jax.vmap(one)(algorithms, x, y)


_added = jax.jit(cost.add)


@compiled("sampling", "shape", "size")
def _advance(
    algorithms: Algorithm,
    problem: Objectives,
    mixing: Mixing,
    keys: jax.Array,
    t: jax.Array,
    lanes: tuple[Any, jax.Array, Any, jax.Array],
    until: jax.Array,
    sampling: Sampling,
    shape: tuple[int, int],
    size: int,
) -> tuple[Any, jax.Array, Any, jax.Array]:
    """Rounds t to `until` of every lane: its state, its counters, what its links keep, the round

    it failed in or -1.
    """
    table = lambda a: a.reshape(*shape, *a.shape[1:])
    seeds = table(keys)[:, 0]
    algorithms, lanes = jax.tree.map(table, (algorithms, lanes))

    def one(algorithm: Algorithm, key: jax.Array, before: Any, t: Any) -> Any:
        progress = Progress(t, *before)
        return play(algorithm, problem, mixing, key, sampling, progress, size=size)[1:]

    row = jax.vmap(one, (0, None, 0, None))  # one seed: all draw the same
    each = jax.vmap(row, (0, 0, 0, None))

    def body(carry: Any) -> Any:
        t, (*before, failed) = carry
        state, spent, kept = each(algorithms, seeds, tuple(before), t)
        sound = jax.vmap(jax.vmap(tree.finite))((state.x, state.y))
        return t + 1, (state, spent, kept, jnp.where((failed < 0) & ~sound, t, failed))

    after = jax.lax.while_loop(lambda carry: carry[0] < until, body, (t, lanes))[1]
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), after)


@compiled("metrics", "size", options=MEASURES, small=2**19, less=BRIEF)
def _observe(
    problem: Objectives,
    rows: Rows,
    metrics: Metrics,
    x: Any,
    y: Any,
    z: Any,
    probes: Any,
    size: int,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """What `diamond.metrics.exact` finds of every lane, and of every agent of it."""
    look = lambda x, y, z, probes: survey(problem, rows, metrics, x, y, z, probes, size=size)
    return jax.vmap(look)(x, y, z, probes)
