"""The loop of every run: run rounds, check, estimate step sizes again, measure."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..auto.loss_monitor import LOST, smaller
from ..core import cost_counter, pytrees
from ..core.sampling import Sampling
from ..interface.round_interface import Algorithm
from ..interface.traffic import traffic
from ..metrics.divergence import Diverged, blame, explain, unsound, whose
from ..metrics.evaluations import Every, due, following
from ..metrics.link_costs import LinkCosts
from ..metrics.measures import Measures
from ..network import Network
from ..problem import Problem
from ..records.run import Run
from ..records.snapshot import Snapshot
from ..schedules.deferred import ResolutionContext
from .backend import Backend
from .divergence_diagnosis import diverged
from .measurement_program import MeasurementProgram
from .recorder import OnEvaluation, Recorder, RunInputs
from .rollback_policy import RollbackPolicy, size
from .round_program import Progress, first_stop
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
        backend: Backend,
        measures: Measures,
        found: dict[str, Any] | None = None,
    ):
        self.problem, self.backend, self.sampling = problem, backend, sampling
        self.seeds = [seed for _, seed in runs]
        place = {"groups": backend.groups, "consensus": backend.consensus}
        self.steps = [
            StepPolicy(
                a,
                ResolutionContext(
                    problem, network, a.batch, seed, memory=dict(found or {}), **place
                ),
            )
            for a, seed in runs
        ]
        starts = {seed: problem.start(seed) for seed in self.seeds}
        self._combine()
        self.progress = backend.start(self.algorithm, [starts[seed] for seed in self.seeds])
        self._charge()
        sent = traffic(
            self.steps[0].algorithm, backend.objectives, *starts[self.seeds[0]], network.channels
        )
        inputs = RunInputs(problem, network, sampling, sent)
        links = {seed: LinkCosts(network, sent, seed) for seed in starts}
        self.recorders = [
            Recorder(inputs, steps, seed, starts[seed], links[seed])
            for steps, seed in zip(self.steps, self.seeds)
        ]
        self.survey = MeasurementProgram(problem, measures, backend, self.seeds)
        self.seconds = self.compile_seconds = 0.0
        self.compiled: Any = None  # algorithms that the rounds were last compiled for

    @property
    def t(self) -> int:
        """Rounds completed."""
        return int(self.progress.t)

    @property
    def share(self) -> float:
        """Seconds of the rounds of one run."""
        return self.seconds / len(self.steps)

    def next_stop(self, rounds: int, every: Every) -> int:
        """Return the next round to stop at: to measure, estimate again, or save a state."""
        return min(following(every, self.t, rounds), *self.steps[0].stops(self.t, rounds), rounds)

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
        self._run_backend(self.progress, first_stop(self.t, self.progress.kept))
        self.compile_seconds += time.perf_counter() - begun
        self.compiled = self.algorithm

    def reestimate(self, forget: bool = False) -> None:
        """Estimate the numbers of every run again at its current point."""
        state = self.progress.state
        x, y = self.backend.whole((state.x, state.y))
        for i, steps in enumerate(self.steps):
            here = jax.tree.map(lambda a: a[i], (x, y)) if self.backend.lanes else (x, y)
            steps.reestimate(here[0], here[1], self.t, forget)
        self._combine()
        self._charge()

    def measure(self) -> None:
        """Add an entry to the history of every run."""
        measured, per_agent = self.survey(self.progress)
        learned = self.backend.learned(self.algorithm, self.progress.state)
        measured |= {name: np.asarray(value).mean(1) for name, value in learned.items()}
        spent = cost_counter.total(self.backend.whole(self.progress.spent))
        spent = spent if self.backend.lanes else spent[None]
        for i, recorder in enumerate(self.recorders):
            if self.is_active(i):
                recorder.compile_seconds = self.compile_seconds / len(self.steps)
                own = {name: value[i] for name, value in per_agent.items()}
                values = {name: value[i] for name, value in measured.items()}
                recorder.add(self.t, values, own, spent[i], self.share)

    def is_active(self, run: int) -> bool:
        """Return whether this run is still measured."""
        return True

    def snapshot(self, run: int) -> Snapshot:
        """Return a snapshot from which the run can resume."""
        arrays = pytrees.named(self.backend.progress_of_run(self.progress, run))
        return self.recorders[run].snapshot(arrays, self.share)

    def _run_backend(self, progress: Progress, until: int) -> tuple[Progress, list[int | None]]:
        return self.backend.run_rounds(self.algorithm, self.seeds, progress, until)

    def _combine(self) -> None:
        self.algorithm = self.backend.combine([steps.algorithm for steps in self.steps])

    def _charge(self) -> None:
        costs = [steps.resolved.cost for steps in self.steps]
        self.progress = self.backend.charge(self.progress, costs, self.problem.agents)


class SingleDriver(Driver):
    """Driver of one run, which rolls back or raises `Diverged` if it breaks or its loss rises."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        seed: int,
        sampling: Sampling,
        backend: Any,
        measures: Measures,
        shrink: bool = False,
        resume: Snapshot | None = None,
    ):
        found = resume.found if resume else None
        runs = [(algorithm, seed)]
        super().__init__(problem, network, runs, sampling, backend, measures, found)
        (self.policy,), (self.recorder,) = self.steps, self.recorders
        self.rollback = RollbackPolicy(self.progress, [], enabled=shrink)
        begun = time.perf_counter()
        self.survey.begin(self.progress)
        self.compile_seconds = time.perf_counter() - begun
        self.compile()
        if resume:
            example = self._whole(self.progress)
            self.progress = backend.place(pytrees.like(example, resume.arrays))
            self.seconds, self.compiled = resume.seconds, None
            self.recorder.restore(resume, example.state)
            self.survey.restore(example.state.y, resume.arrays)
            self.rollback.restore(example, resume.arrays, backend.place)

    def drive(
        self,
        rounds: int,
        every: Every,
        is_reached: Callable[[dict[str, float]], object],
        evaluated: Callable[[], None],
    ) -> None:
        """Run to the last round, or to the first evaluation at which the run ends."""
        while self.t < rounds and not is_reached(self.recorder.entries[-1]):
            if self.step(self.next_stop(rounds, every)) and due(every, self.t, rounds):
                evaluated()
                self.check_measures(last=self.t == rounds)

    def step(self, until: int) -> bool:
        """Advance to `until`; return False if the run rolled back instead."""
        return self.check_finite(*self.run_rounds(until)) and self.check_loss()

    def next_stop(self, rounds: int, every: Every) -> int:
        return min([super().next_stop(rounds, every), *self.rollback.stops(self.t)])

    def evaluate(self, on_evaluation: OnEvaluation | None, rounds: int) -> None:
        """Measure a run of `rounds` rounds."""
        self.measure()
        self.recorder.inspect(self._whole(self.progress).state, rounds)
        if on_evaluation:
            on_evaluation(dict(self.recorder.entries[-1]))

    def check_finite(self, after: Progress, failed: list[int | None]) -> bool:
        """Accept `after` as the progress; return False if the run rolled back instead."""
        lost = failed[0] is not None or (
            self.rollback.is_due(int(after.t))
            and self.rollback.is_lost(after, self.policy.loss_has_decreased)
        )
        if lost:
            t = int(after.t) - 1
            if not self._shrink(after, f"x or y is lost in round {t}"):
                good, _ = self._run_backend(self.progress, t)  # reproduces the same bits
                raise self._diverged(good)
            return False
        self.progress = after
        return True

    def check_loss(self) -> bool:
        """Estimate again and save the state, in the rounds where these are due.

        Return False if the run rolled back instead, because its loss has risen.
        """
        if self.policy.due(self.t):
            self._reestimate()
            if self.policy.loss_increase:
                target = self.rollback.lowest_target()
                message = self.policy.record_increase(self.t, int(target.t))
                self._roll_back(target._replace(spent=self.progress.spent), message)
                return False
        if self.rollback.is_due(self.t):
            self.rollback.keep(self.progress)
        return True

    def check_measures(self, last: bool = False) -> None:
        """If a measure of the last entry is not finite, roll back or raise.

        If x or y are large too, wait for the round in which they overflow, whose message says more,
        unless this is the `last` round.
        """
        entry, per_agent = self.recorder.entries[-1], self.recorder.per_agent[-1]
        if not (wrong := unsound(entry)):
            return
        what = whose(wrong, entry, per_agent)
        cause = blame(wrong, [name for name, _ in self.survey.metrics], self.t)
        if cause is None and self._shrink(self.progress, f"{what} at round {self.t}"):
            return
        good = self._whole(self.progress)
        if cause is None and not last and size(good) > LOST:
            return
        cause = cause or explain(self.policy.setting, self.policy.algorithm, self.t, good.state)
        message = f"diverged by round {self.t}: {what}; {cause}"
        run = replace(self.run(), status="diverged", message=message)
        raise Diverged(message, self.t, what, run)

    def run(self) -> Run:
        """Return the run in its present state."""
        run = self.recorder.run(self._whole(self.progress))
        alone = jax.process_count() == 1  # with several processes, each has a part of the arrays
        return replace(run, snapshot=self.snapshot() if alone else None)

    def snapshot(self, run: int = 0) -> Snapshot:
        arrays = pytrees.named(self._whole(self.progress)) | self.rollback.arrays(self._whole)
        return self.recorder.snapshot(arrays | self.survey.arrays(), self.seconds)

    def _reestimate(self, forget: bool = False) -> None:
        self.reestimate(forget)
        if self.policy.loss_is_lowest:
            self.rollback.lowest = self.progress

    def _diverged(self, good: Progress) -> Diverged:
        """Run the round after `good` again and return its error."""
        after, _ = self._run_backend(good, int(good.t) + 1)
        good, after = self._whole(good), self._whole(after)
        about = self.policy, self.seeds[0], self.sampling, good, after
        return diverged(*about, self.recorder.run(good))

    def _shrink(self, after: Progress, reason: str) -> bool:
        """Roll back a broken run; return False if not allowed, or if that did not help before."""
        factor = smaller(self.policy.scale) if self.rollback.enabled else None
        if factor is None:
            return False
        target = self.rollback.target()
        self.policy.shorten(factor, int(after.t) - int(target.t))
        steps = f"steps {factor:g} times the first (L_g {1 / factor:g} times)"
        message = f"{reason}; back to round {int(target.t)} with {steps}"
        self._roll_back(target._replace(spent=after.spent), message)
        return True

    def _roll_back(self, target: Progress, message: str) -> None:
        """Continue from `target` with numbers that are estimated again."""
        warnings.warn(message, RuntimeWarning, stacklevel=6)
        self.progress = target
        self._reestimate(forget=True)
        self.recorder.roll_back(int(target.t))

    def _whole(self, progress: Progress) -> Progress:
        return self.backend.progress_of_run(progress, 0)
