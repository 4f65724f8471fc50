"""Backend that makes many runs one program, with an axis of runs before that of agents."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..auto import rollback_limits
from ..core import cost_counter, pytrees
from ..core.cost_counter import Cost
from ..core.sampling import Sampling, key
from ..hardware.compiler import compile_program
from ..hardware.device_memory import Budget, MemoryBoundedProgram
from ..interface.round_interface import Algorithm, Method
from ..metrics.divergence_error import nonfinite_measures
from ..metrics.evaluations import Every, is_evaluation
from ..metrics.measures import Measures
from ..network import Network
from ..network.mixing.lossy_mixer import make_mixer
from ..network.mixing.mixing_interface import Mixing
from ..problem import Objectives, Problem
from ..records.run import Run
from .backend import Backend, Start
from .driver import Driver
from .round_program import (
    REMEDY,
    WORK,
    Progress,
    agents_in_parallel,
    initial_progress_with_links,
    run_round,
)

_added = jax.jit(cost_counter.add)


class LaneBackend(Backend):
    """Backend with parallel runs on one device.

    `shape` is (rows, runs per row). The runs of a row have one seed, so that they draw the same
    mini-batches, and their products with these become one.
    """

    lanes = True
    donates = False

    def __init__(
        self,
        problem: Problem,
        network: Network,
        batch: int,
        shape: tuple[int, ...],
        *,
        sampling: Sampling,
        memory: int | None = None,
    ):
        self.objectives, self.mixing = problem.objectives(batch), make_mixer(network)
        self.rows = problem.stack(problem.measured_part)
        self.shape, self.sampling, self.parallel_agents = shape, sampling, problem.agents
        self.keys: tuple[list[int], Any] = ([], None)  # seeds and their keys
        self.failed = jnp.full(int(np.prod(shape)), -1, jnp.int32)
        self.budget = Budget(list(self.objectives.train.count.devices()), memory)
        size = agents_in_parallel(self.objectives.train)
        self.measurement_programs: dict[Any, MemoryBoundedProgram] = {}
        self.rounds = MemoryBoundedProgram(_run_rounds, size, self.budget, WORK, REMEDY)

    def combine(self, algorithms: Sequence[Algorithm]) -> Any:
        return _stack(algorithms)

    def stack(self, seeds: Sequence[int], make: Callable[[int], Any]) -> Any:
        by_seed = {seed: make(seed) for seed in seeds}
        return jax.tree.map(lambda *a: np.stack(a), *(by_seed[seed] for seed in seeds))

    def initial_progress(self, algorithm: Method, starts: Sequence[Start]) -> Progress:
        x, y = _stack(starts)
        progress: Progress = _initial_progress(algorithm, self.objectives, self.mixing, x, y=y)
        return progress._replace(t=jnp.int32(0))

    def arguments(
        self, algorithm: Method, seeds: Sequence[int], progress: Progress, until: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the compiled rounds."""
        if self.keys[0] != seeds:
            self.keys = list(seeds), jnp.stack([key(seed) for seed in seeds])
        inputs = algorithm, self.objectives, self.mixing, self.keys[1], jnp.int32(progress.t)
        options = {"sampling": self.sampling, "shape": self.shape}
        return (*inputs, (*progress[1:], self.failed), jnp.int32(until)), options

    def run_rounds(
        self, algorithm: Method, seeds: Sequence[int], progress: Progress, until: int
    ) -> tuple[Progress, list[int | None]]:
        inputs, options = self.arguments(algorithm, seeds, progress, until)
        after = jax.block_until_ready(self.rounds(*inputs, **options))
        *arrays, self.failed = after
        failed = [None if t < 0 else t for t in np.asarray(self.failed).tolist()]
        return Progress(jnp.int32(until), *arrays), failed

    def charge(self, progress: Progress, costs: Sequence[Cost], agents: int) -> Progress:
        charges = np.stack([cost_counter.agent_counters(spent, agents) for spent in costs])
        return progress._replace(spent=_added(progress.spent, charges))

    def progress_of_run(self, progress: Progress, run: int) -> Progress:
        return Progress(progress.t, *jax.tree.map(lambda a: a[run], tuple(progress[1:])))

    def learned_step_sizes(self, algorithm: Method, state: Any) -> dict[str, Any]:
        return dict(jax.vmap(lambda a, s: a.learned_values(s))(algorithm, state))

    def gather(self, tree: Any) -> Any:
        return tree

    def scatter(self, tree: Any) -> Any:
        return tree


class LaneDriver(Driver):
    """Driver of runs in lanes: a broken run ends, and a run whose loss has risen is marked.

    All lanes are in the same round, so a lane cannot roll back. `rerun` lists the runs to repeat
    alone. Best points are stored on request, since only the histories of most runs are used.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        runs: Sequence[tuple[Algorithm, int]],
        shape: tuple[int, ...],
        *,
        sampling: Sampling,
        measures: Measures,
        memory: int | None = None,
        stores_best: bool = False,
    ):
        self.failed: list[int | None] = [None] * len(runs)  # round in which each run broke
        self.rerun = np.zeros(len(runs), bool)
        backend = LaneBackend(
            problem, network, runs[0][0].batch, shape, sampling=sampling, memory=memory
        )
        super().__init__(problem, network, runs, sampling, backend=backend, measures=measures)
        if not stores_best:
            for recorder in self.recorders:
                recorder.without_best = "only histories are returned"
        inputs, options = backend.arguments(self.algorithm, self.seeds, self.progress, 0)
        backend.rounds.start_compiling(*inputs, **options)
        self.measurement.start_compiling(self.progress)

    def wait_for_compiler(self) -> bool:
        """Wait for the compiler; return whether the device has room for as much again."""
        begun = time.perf_counter()
        rounds, measurement = self.backend.rounds, self.measurement.program
        assert isinstance(self.backend, LaneBackend)
        inputs, options = self.backend.arguments(self.algorithm, self.seeds, self.progress, 0)
        rounds.wait_for_compiler(*inputs, **options)
        self.measurement.wait_for_compiler(self.progress)
        self.compile_seconds += time.perf_counter() - begun
        left = self.backend.budget.left(0)
        return left is None or 2 * max(rounds.memory_need or 0, measurement.memory_need or 0) < left

    def drive(self, rounds: int, every: Every) -> None:
        """Run all rounds of all runs and measure in between."""
        self.measure()
        self._check_measures(last=rounds == 0)
        while self.t < rounds:
            self.progress, failed = self.run_rounds(self.next_stop(rounds, every))
            self.failed = [
                before if before is not None else after
                for before, after in zip(self.failed, failed)
            ]
            if self.steps[0].is_due(self.t):
                self.reestimate()
                has_risen = [bool(steps.monitor.increase) for steps in self.steps]
                self.rerun |= [
                    before is None and risen for before, risen in zip(self.failed, has_risen)
                ]
            if is_evaluation(every, self.t, rounds):
                self.measure()
                self._check_measures(last=self.t == rounds)

    def is_active(self, run: int) -> bool:
        return self.failed[run] is None

    def _check_measures(self, last: bool) -> None:
        """End the runs whose measures are not finite, as a single run raises `Diverged`."""
        metrics = {name for name, _ in self.measurement.metrics}
        entries = [(i, r.entries[-1]) for i, r in enumerate(self.recorders) if self.is_active(i)]
        nonfinite = {i: names for i, entry in entries if (names := nonfinite_measures(entry))}
        if not nonfinite:
            return
        norms = np.asarray(jax.vmap(pytrees.norm)((self.progress.state.x, self.progress.state.y)))
        for i, names in nonfinite.items():
            if last or self.t == 0 or {*names} <= metrics or norms[i] <= rollback_limits.EXPLODED:
                self.failed[i] = self.t

    def histories(self) -> list[dict[str, np.ndarray]]:
        """Return the history of each run, up to the round in which it broke, if any."""
        return [recorder.history for recorder in self.recorders]

    def runs(self) -> list[Run | None]:
        """Return each run; None for a run that broke, whose last finite state is not stored."""
        return [self._run(i) if self.is_active(i) else None for i in range(len(self.steps))]

    def _run(self, i: int) -> Run:
        run = self.recorders[i].run(self.backend.progress_of_run(self.progress, i))
        return replace(run, snapshot=self.snapshot(i))

    def warn_of_standstill(self) -> None:
        """Warn of the runs that have ended where they began."""
        for i, recorder in enumerate(self.recorders):
            if self.is_active(i):
                x = jax.tree.map(lambda a, i=i: a[i], self.progress.state.x)
                recorder.warn_of_standstill(x, f"seed {self.seeds[i]}")


def _stack(trees: Sequence[Any]) -> Any:
    if len({jax.tree.structure(tree) for tree in trees}) > 1:
        raise ValueError(
            "the runs differ in more than their numbers (K, perhaps, where each finds its own): "
            "give neumann(terms=...) a number, or run them one by one with batched=False"
        )
    return jax.tree.map(lambda *a: jnp.asarray(np.stack(a)), *trees)


@jax.jit
def _initial_progress(
    algorithms: Algorithm, problem: Objectives, mixing: Mixing, x: Any, *, y: Any
) -> Progress:
    initial_lane_progress = lambda a, x, y: initial_progress_with_links(a, problem, mixing, x, y)
    return jax.vmap(initial_lane_progress)(algorithms, x, y)


@compile_program("sampling", "shape", "size")
def _run_rounds(
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
    """Run rounds t to `until` of every lane.

    Returns:
        States, counters, link states, and the round in which each lane failed, or -1.
    """
    to_table = lambda a: a.reshape(*shape, *a.shape[1:])
    seeds = to_table(keys)[:, 0]
    algorithms, lanes = jax.tree.map(to_table, (algorithms, lanes))

    def run_lane(algorithm: Algorithm, key: jax.Array, before: Any, t: Any) -> Any:
        progress = Progress(t, *before)
        return run_round(algorithm, problem, mixing, key, sampling, progress, size=size)[1:]

    run_row = jax.vmap(run_lane, (0, None, 0, None))  # one seed: all lanes of the row draw the same
    run_table = jax.vmap(run_row, (0, 0, 0, None))

    def body(carry: Any) -> Any:
        t, (*before, failed) = carry
        state, spent, link_states = run_table(algorithms, seeds, tuple(before), t)
        finite = jax.vmap(jax.vmap(pytrees.finite))((state.x, state.y))
        return t + 1, (state, spent, link_states, jnp.where((failed < 0) & ~finite, t, failed))

    after = jax.lax.while_loop(lambda carry: carry[0] < until, body, (t, lanes))[1]
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), after)
