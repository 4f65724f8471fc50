"""A run in one process while it is under way: advance, check, renumber, record."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import jax

from ..auto.watch import LOST, smaller
from ..core import cost, tree
from ..core.cost import Cost
from ..core.sampling import Sampling, key
from ..metrics.divergence import Diverged, blame, explain, unsound, whose
from ..metrics.evaluations import Every, following
from ..network import Network
from ..numbers.open_numbers import Setting, refreshes
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from ..runs.inputs import describe
from ..runs.run import Run
from ..runs.snapshot import Snapshot
from . import rollback
from .devices import Devices, placed
from .diagnosis import diverged
from .precision import Precision
from .recorder import Record
from .rollback import Rewind
from .round import Progress, first_stop
from .step_policy import Numbers

_added = jax.jit(cost.add)


class Simulation:
    """A run under way: where it stands, its numbers, its history, and where it could go back to."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        seed: int,
        sampling: Sampling,
        shrinks: bool,
        resume: Snapshot | None,
        devices: Devices | None = None,
        precision: Precision | None = None,
        memory: int | None = None,
        tell: Callable[[str], None] = lambda stage: None,
    ):
        self.problem, self.seed, self.sampling = problem, seed, sampling
        self.shrinks = shrinks  # where it is lost
        given = problem, network, algorithm.batch
        self.place = placed(*given, sampling, devices, precision, memory)
        found = dict(resume.found) if resume else {}
        setting = Setting(
            *given, seed, memory=found, groups=self.place.groups, talk=self.place.talk
        )
        self.numbers = Numbers(algorithm, setting)
        first = self.place.begin(self.numbers.algorithm, *problem.start(seed))
        self.progress = begin = self.place.place(first)
        self.seconds = 0.0
        self.compiled: Algorithm | None = None  # that the rounds were compiled for last
        self._charge(self.numbers.resolved.cost)
        about = problem, network, self.numbers.algorithm, self.place, seed, sampling
        self.record = Record(*about, self.numbers.resolved)
        self.record.inputs = describe(network, algorithm)
        tell("compiling")
        begun = time.perf_counter()
        self.record.begin(self.progress)
        self.record.compile_seconds = time.perf_counter() - begun
        self._compile()
        self.rewind = Rewind(begin, [])
        if resume:
            self.progress = self.place.place(tree.like(first, resume.arrays))
            self.seconds, self.compiled = resume.seconds, None
            self.record.restore(resume, first.state)
            self.rewind = rollback.restored(begin, first, resume.arrays, self.place.place)

    @property
    def t(self) -> int:
        """Rounds made."""
        return int(self.progress.t)

    def run(self) -> Run:
        """The run as it stands."""
        made = self.record.run(self._whole(self.progress))
        alone = jax.process_count() == 1  # of several, each has a part of the arrays
        return replace(made, snapshot=self.snapshot() if alone else None)

    def snapshot(self) -> Snapshot:
        """All that it takes to go on from here."""
        arrays = tree.named(self._whole(self.progress)) | self.rewind.arrays(self._whole)
        return self.record.snapshot(arrays, self.numbers.memory, self.seconds)

    def advance(self, until: int) -> tuple[Progress, bool]:
        """What the rounds up to `until` come to, and whether all of it is finite."""
        self._compile()
        begun = time.perf_counter()
        found = self._rounds(self.progress, until)
        self.seconds += time.perf_counter() - begun
        return found

    def _compile(self) -> None:
        """Compile the rounds for the present numbers, which may need another program.

        The result is dropped: the time is the compiler's and not part of `seconds`.
        """
        if self.compiled is self.numbers.algorithm:
            return
        begun = time.perf_counter()
        self._rounds(self.progress, first_stop(self.t, self.progress.kept))
        self.record.compile_seconds += time.perf_counter() - begun
        self.compiled = self.numbers.algorithm

    def check(self, after: Progress, sound: bool) -> bool:
        """Take `after` as where the run stands; False if it had to go back instead."""
        mark = self.shrinks and self.rewind.marks(int(after.t))
        if not sound or (mark and self.rewind.lost(after, self.numbers.fallen)):
            self._fail(after)
            return False
        self.progress = after
        return True

    def renumber(self) -> bool:
        """Find numbers anew and keep the state to go back to, in the rounds for that.

        False if the run had to go back instead, where the objective has risen.
        """
        if self.numbers.due(self.t):
            self._renumber()
            if self.numbers.risen:
                self._back(*self.rewind.low(self.numbers, self.progress))
                return False
        if self.shrinks and self.rewind.marks(self.t):
            self.rewind.keep(self.progress)
        return True

    def stops(self, rounds: int, every: Every) -> int:
        """The next round to stop at: to measure, to find numbers anew, to keep a state."""
        stops = [following(every, self.t, rounds)]
        if self.numbers.change:
            stops += [t for t in refreshes(rounds) if t > self.t]
        if self.shrinks:
            stops.append(self.t - self.t % rollback.EVERY + rollback.EVERY)
        return min(stops)

    def measure(
        self, on_evaluation: Callable[[dict[str, float]], None] | None, rounds: int
    ) -> None:
        """An entry of the history of a run of `rounds` rounds."""
        self.record.add(self.progress, self.seconds, on_evaluation, rounds)

    def judge(self, last: bool = False) -> None:
        """If what was measured last is not finite, go back or raise: that is no success.

        Where x or y are large as well, the round that loses them will say more; there is one to
        come unless this is the `last`.
        """
        entry, own = self.record.entries[-1], self.record.own[-1]
        wrong = unsound(entry)
        if not wrong:
            return
        said, cause = whose(wrong, entry, own), blame(wrong, self.problem.metrics, self.t)
        if cause is None and self._shrink(self.progress, f"{said} at round {self.t}"):
            return
        good = self._whole(self.progress)
        if cause is None and not last and rollback.size(good) > LOST:
            return
        about = self.numbers.setting, self.numbers.algorithm, self.t, good.state
        cause = cause or explain(*about)
        message = f"diverged by round {self.t}: {said}; {cause}"
        run = replace(self.run(), status="diverged", message=message)
        raise Diverged(message, self.t, said, run)

    def _rounds(self, progress: Progress, until: int) -> tuple[Progress, bool]:
        return self.place.advance(self.numbers.algorithm, key(self.seed), progress, until)

    def _renumber(self, forget: bool = False) -> None:
        """Find numbers anew, where the agents stand."""
        state = self.progress.state
        x, y = self.place.whole((state.x, state.y))
        self.numbers.renew(x, y, forget, self.t)
        self._charge(self.numbers.resolved.cost)
        if self.numbers.lowest:
            self.rewind.lowest = self.progress
        self.record.renumber(self.numbers.algorithm, self.numbers.resolved)

    def _charge(self, spent: Cost) -> None:
        each = self.place.spread(cost.each(spent, self.problem.agents))
        self.progress = self.progress._replace(spent=_added(self.progress.spent, each))

    def _fail(self, after: Progress) -> None:
        """Go back with smaller steps, or raise."""
        t = int(after.t) - 1
        if not self._shrink(after, f"x or y is lost in round {t}"):
            good, _ = self._rounds(self.progress, t)  # the same bits again, up to the round before
            raise self._diverged(good)

    def _diverged(self, good: Progress) -> Diverged:
        """The error of the round after `good`, which is made again."""
        after, _ = self._rounds(good, int(good.t) + 1)
        good, after = self._whole(good), self._whole(after)
        about = self.numbers, self.seed, self.sampling, good, after
        return diverged(*about, self.record.run(good))

    def _shrink(self, after: Progress, said: str) -> bool:
        """Go back from what is lost; False if that is not allowed, or did not help before."""
        factor = smaller(self.numbers.factor) if self.shrinks else None
        if factor is None:
            return False
        back = self.rewind.back()
        self.numbers.shrink(factor, int(after.t) - int(back.t))
        steps = f"steps {factor:g} times the first (L_g {1 / factor:g} times)"
        said = f"{said}; back to round {int(back.t)} with {steps}"
        self._back(back._replace(spent=after.spent), said)
        return True

    def _back(self, to: Progress, said: str) -> None:
        """Go on from there, with numbers found anew."""
        warnings.warn(said, RuntimeWarning, stacklevel=5)
        self.progress = to
        self._renumber(forget=True)
        self.record.rewind(int(to.t))

    def _whole(self, progress: Progress) -> Progress:
        return Progress(progress.t, *self.place.whole(tuple(progress[1:])))
