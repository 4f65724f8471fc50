"""The loop of every run: run rounds, check, estimate step sizes again, measure."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from ..core import cost_counter
from ..core.host_transfer import copy_to_host
from ..core.pytrees import Tree
from ..core.sampling import Sampling
from ..interface.round_interface import Algorithm
from ..interface.traffic import count_traffic
from ..metrics.evaluations import Every, next_evaluation
from ..metrics.link_costs import LinkCosts
from ..metrics.measures import Measures
from ..network import Network
from ..problem import Problem
from ..records.checkpoint_content import Snapshot
from ..schedules.deferred import ResolutionContext
from .backend import Backend
from .measurement_program import MeasurementProgram
from .recorder import Recorder, RunInputs
from .round_program import Progress, first_stop, named_arrays
from .step_policy import StepPolicy


class Driver:
    """Runs in progress in one backend, all in the same round.

    Each run has a step-size policy and a recorder. `SingleDriver` and `LaneDriver` define what
    happens to a run that cannot continue.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        runs: Sequence[tuple[Algorithm, int]],
        sampling: Sampling,
        *,
        backend: Backend,
        measures: Measures,
        estimates: dict[str, Any] | None = None,
    ):
        self.problem, self.backend, self.sampling = problem, backend, sampling
        self.seeds = [seed for _, seed in runs]
        shared_context = {"groups": backend.groups, "consensus": backend.consensus}
        if epoch := getattr(backend, "epoch", None):
            shared_context |= {"members": epoch.members, "first_round": epoch.from_round}
        self.steps = []
        for algorithm, seed in runs:
            inputs, memory = (problem, network, algorithm.batch, seed), dict(estimates or {})
            context = ResolutionContext(*inputs, memory=memory, **shared_context)
            self.steps.append(StepPolicy(algorithm, context))
        starts = {seed: problem.start(seed) for seed in self.seeds}
        self._combine()
        self.progress = backend.initial_progress(
            self.algorithm, [starts[seed] for seed in self.seeds]
        )
        self._charge()
        first, (x, y) = self.steps[0].algorithm, starts[self.seeds[0]]
        is_masked = network.mask_limit is not None
        traffic_of_round = count_traffic(
            first, backend.objectives, x, y, network.channels, is_masked
        )
        run_inputs = RunInputs(problem, network, sampling, traffic_of_round)
        links = {seed: LinkCosts(network, traffic_of_round, seed) for seed in starts}
        self.recorders = [
            Recorder(run_inputs, steps, seed, starts[seed], links=links[seed])
            for steps, seed in zip(self.steps, self.seeds)
        ]
        self.measurement = MeasurementProgram(problem, measures, backend, self.seeds)
        self.seconds = self.compile_seconds = 0.0
        self.compiled: Any = None  # algorithms that the rounds were last compiled for

    @property
    def t(self) -> int:
        """Rounds completed."""
        return int(self.progress.t)

    @property
    def seconds_per_run(self) -> float:
        """Seconds of the rounds of one run."""
        return self.seconds / len(self.steps)

    def make_start(self) -> Progress:
        """Make the progress before round 0 again."""
        starts = [self.problem.start(seed) for seed in self.seeds]
        return self.backend.initial_progress(self.algorithm, starts)

    def next_stop(self, rounds: int, every: Every) -> int:
        """Return the next round to stop at: to measure, estimate again, or save a state."""
        return min(
            next_evaluation(every, self.t, rounds), *self.steps[0].stops(self.t, rounds), rounds
        )

    def run_rounds(self, until: int) -> tuple[Progress, list[int | None]]:
        """Run rounds up to `until`; return for each run also the round that broke it, or None."""
        self.compile()
        begun = time.perf_counter()
        after = self._run_backend(self.progress, until)
        self.seconds += time.perf_counter() - begun
        return after

    def compile(self) -> None:
        """Compile the rounds for the present numbers, which may need another program.

        The result is dropped, so that compilation is not part of `seconds`.
        """
        if self.compiled is self.algorithm:
            return
        begun = time.perf_counter()
        if self.backend.donates:
            self.progress, _ = self._run_backend(self.progress, self.t)
        else:
            self._run_backend(self.progress, first_stop(self.t, self.progress.link_states))
        self.compile_seconds += time.perf_counter() - begun
        self.compiled = self.algorithm

    def reestimate(self, forget: bool = False) -> None:
        """Estimate the numbers of every run again at its current point."""
        state = self.progress.state
        x, y = self.backend.gather((state.x, state.y))
        for i, steps in enumerate(self.steps):
            point = jax.tree.map(lambda a, i=i: a[i], (x, y)) if self.backend.lanes else (x, y)
            steps.reestimate(point[0], point[1], self.t, forget)
        self._combine()
        self._charge()

    def measure(self) -> None:
        """Add an entry to the history of every run."""
        measured, per_agent = self.measurement(self.progress)
        step_sizes = self.backend.learned_step_sizes(self.algorithm, self.progress.state)
        measured |= {name: np.asarray(value).mean(1) for name, value in step_sizes.items()}
        spent = cost_counter.total(self.backend.gather(self.progress.spent))
        spent = spent if self.backend.lanes else spent[None]
        for i, recorder in enumerate(self.recorders):
            if self.is_active(i):
                recorder.compile_seconds = self.compile_seconds / len(self.steps)
                agent_values = {name: value[i] for name, value in per_agent.items()}
                values = {name: value[i] for name, value in measured.items()}
                recorder.add(self.t, values, agent_values, spent[i], self.seconds_per_run)
                recorder.update_best(partial(self._point_to_store, i))

    def is_active(self, run: int) -> bool:
        """Return whether this run is still measured."""
        return True

    def snapshot(self, run: int) -> Snapshot:
        """Return a snapshot from which the run can resume."""
        arrays = named_arrays(self.backend.progress_of_run(self.progress, run))
        return self.recorders[run].snapshot(arrays, self.seconds_per_run)

    def _point_to_store(self, run: int) -> tuple[Tree, Tree]:
        """Return x and y of a run, as arrays that later rounds neither overwrite nor share."""
        state, backend = self.progress.state, self.backend
        point: tuple[Tree, Tree] = backend.gather((state.x, state.y))
        if backend.lanes:
            point = jax.tree.map(lambda a: a[run], point)
        return copy_to_host(point) if backend.lanes or backend.donates else point

    def _run_backend(self, progress: Progress, until: int) -> tuple[Progress, list[int | None]]:
        return self.backend.run_rounds(self.algorithm, self.seeds, progress, until)

    def _combine(self) -> None:
        self.algorithm = self.backend.combine([steps.algorithm for steps in self.steps])

    def _charge(self) -> None:
        costs = [steps.resolved.cost for steps in self.steps]
        self.progress = self.backend.charge(self.progress, costs, self.problem.agents)
