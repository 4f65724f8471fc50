"""The loop of one run, which rolls back if it diverges."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from ..auto import loss_monitor
from ..auto.rollback_limits import EXPLODED, next_step_scale
from ..core.sampling import Sampling
from ..interface.round_interface import Algorithm
from ..metrics.divergence_error import (
    Diverged,
    cause_of_nonfinite,
    describe_nonfinite,
    nonfinite_measures,
)
from ..metrics.evaluations import Every, is_evaluation
from ..metrics.measures import Measures
from ..network import Network
from ..problem import Problem
from ..records.checkpoint_content import Snapshot
from ..records.run import Run
from .divergence_diagnosis import divergence_error, explain_cause
from .driver import Driver
from .recorder import OnEvaluation
from .rollback_policy import HostRollbackPolicy, RollbackPolicy, largest_norm
from .round_program import Progress, from_named_arrays, named_arrays


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
        estimates = resume.resolved if resume else None
        inputs = problem, network, [(algorithm, seed)], sampling
        super().__init__(*inputs, backend=backend, measures=measures, estimates=estimates)
        (self.policy,), (self.recorder,) = self.steps, self.recorders
        self.begin(self.progress, shrink)
        begun = time.perf_counter()
        self.measurement.start_compiling(self.progress)
        self.compile_seconds = time.perf_counter() - begun
        self.compile()
        if resume:
            example = self._gather(self.progress)
            self.progress = backend.scatter_progress(from_named_arrays(example, resume.arrays))
            self.seconds, self.compiled = resume.seconds, None
            self.recorder.restore(resume, example.state)
            self.measurement.restore(example.state.y, resume.arrays)
            self.rollback.restore(example, resume.arrays, backend.scatter_progress)

    def begin(self, progress: Progress, shrink: bool) -> None:
        """Begin at `progress`, the first state to which the run can roll back."""
        self.progress = progress
        self.rollback: RollbackPolicy = (
            HostRollbackPolicy(
                progress, self.backend, shrink, self.policy.context, make_start=self.make_start
            )
            if self.backend.donates
            else RollbackPolicy(progress, [], enabled=shrink)
        )

    def drive(
        self,
        rounds: int,
        every: Every,
        is_reached: Callable[[dict[str, float]], object],
        evaluated: Callable[[], None],
    ) -> None:
        """Run to the last round, or to the first evaluation at which the run ends."""
        while self.t < rounds and not is_reached(self.recorder.entries[-1]):
            until = self.next_stop(rounds, every)
            if not self.run_checked_rounds(until):
                continue
            has_ended = self.t < until
            if is_evaluation(every, self.t, rounds) or has_ended:
                if not self.recorder.has_measured(self.t):
                    evaluated()
                self.check_measures(last=has_ended or self.t == rounds)
            if has_ended:
                break

    def run_checked_rounds(self, until: int) -> bool:
        """Run rounds up to `until`; return False if the run rolled back instead."""
        return self.check_finite(*self.run_rounds(until)) and self.check_loss()

    def next_stop(self, rounds: int, every: Every) -> int:
        return min([super().next_stop(rounds, every), *self.rollback.stops(self.t)])

    def evaluate(self, on_evaluation: OnEvaluation | None, rounds: int) -> None:
        """Measure a run of `rounds` rounds."""
        self.measure()
        large = self.backend.donates  # then nothing but the best point is copied to the host
        progress = self.progress if large else self._gather(self.progress)
        self.recorder.warn(progress.state, rounds)
        if on_evaluation:
            on_evaluation(dict(self.recorder.entries[-1]))

    def check_finite(self, after: Progress, failed: list[int | None]) -> bool:
        """Accept `after` as the progress; return False if the run rolled back instead."""
        is_due = self.rollback.is_due(int(after.t))
        if failed[0] is not None or (is_due and self.rollback.is_lost(after)):
            t = int(after.t) - 1
            if not self._shrink_steps(after, f"x or y is lost in round {t}"):
                if self.backend.donates:
                    raise self._error_without_last_state(after)
                last_finite, _ = self._run_backend(self.progress, t)  # reproduces the same bits
                raise self._divergence_error(last_finite)
            return False
        self.progress = after
        return True

    def check_loss(self) -> bool:
        """Estimate again and save the state, in the rounds where these are due.

        Return False if the run rolled back instead, because its loss has risen.
        """
        if self.policy.is_due(self.t):
            self._reestimate()
            if self.policy.monitor.increase:
                target = self.rollback.pop_lowest_target()
                memory = self.policy.memory
                message = loss_monitor.record_rollback(memory, self.t, int(target.t))
                self._roll_back(target._replace(spent=self.progress.spent), message)
                return False
        if self.rollback.is_due(self.t):
            self.rollback.save_state(self.progress)
        return True

    def check_measures(self, last: bool = False) -> None:
        """If a measure of the last entry is not finite, roll back or raise.

        If x or y are large too, wait for the round in which they overflow, whose message says more,
        unless this is the `last` round.
        """
        entry, per_agent = self.recorder.entries[-1], self.recorder.per_agent[-1]
        if not (nonfinite := nonfinite_measures(entry)):
            return
        description = describe_nonfinite(nonfinite, entry, per_agent)
        cause = cause_of_nonfinite(
            nonfinite, [name for name, _ in self.measurement.metrics], self.t
        )
        if cause is None and self._shrink_steps(self.progress, f"{description} at round {self.t}"):
            return
        gathered = self._gather(self.progress)
        if cause is None and not last and largest_norm(gathered) > EXPLODED:
            return
        cause = cause or explain_cause(self.policy, self.t, gathered.state)
        message = f"diverged by round {self.t}: {description}; {cause}"
        run = replace(self.run(), status="diverged", message=message)
        raise Diverged(message, self.t, description, run, rounds_made=self.t)

    def run(self) -> Run:
        """Return the run in its present state."""
        run = self.recorder.run(self._gather(self.progress))
        is_single_process = jax.process_count() == 1  # of several, each has a part of the arrays
        return replace(run, snapshot=self.snapshot() if is_single_process else None)

    def snapshot(self, run: int = 0) -> Snapshot:
        arrays = named_arrays(self._gather(self.progress)) | self.rollback.arrays(self._gather)
        return self.recorder.snapshot(arrays | self.measurement.arrays(), self.seconds)

    def _reestimate(self, forget: bool = False) -> None:
        self.reestimate(forget)
        if self.policy.monitor.is_lowest:
            self.rollback.save_lowest(self.progress)

    def _divergence_error(self, last_finite: Progress) -> Diverged:
        """Run the round after `last_finite` again and return its error."""
        after, _ = self._run_backend(last_finite, int(last_finite.t) + 1)
        last_finite, after = self._gather(last_finite), self._gather(after)
        inputs, run = (self.policy, self.seeds[0], self.sampling), self.recorder.run(last_finite)
        return divergence_error(*inputs, last_finite, after=after, run=run)

    def _error_without_last_state(self, after: Progress) -> Diverged:
        """Return the error of a run whose last finite state was overwritten."""
        t, best = int(after.t) - 1, self.recorder.best
        cause = explain_cause(self.policy, t, after.state)
        run = replace(self.recorder.run(self._gather(after)), status="diverged", state=None)
        if best is None:
            place = "x and y of `run` of this error are not finite"
        else:
            place = f"x and y of `run` of this error are those of round {best.round}, its best"
        message = (
            f"diverged in round {t}: x or y is not finite; {cause}. y is large, so that each round "
            f"overwrote the state before and none is left to resume from: {place}; to roll back "
            f"instead, give on_divergence='shrink'"
        )
        return Diverged(message, t, "x or y", replace(run, message=message))

    def _shrink_steps(self, after: Progress, reason: str) -> bool:
        """Roll back a broken run; return False if not allowed, or if that did not help before."""
        factor = next_step_scale(self.policy.monitor.scale) if self.rollback.enabled else None
        if factor is None:
            return False
        target = self.rollback.pop_target()
        # From the next estimation on, steps are `factor` times the first ones.
        loss_monitor.record_shrink(self.policy.memory, factor, int(after.t) - int(target.t))
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

    def _gather(self, progress: Progress) -> Progress:
        return self.backend.progress_of_run(progress, 0)
