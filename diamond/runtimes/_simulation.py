"""A run in one process while it is under way."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

import jax
import numpy as np

from ..core import cost, tree
from ..core.cost import Cost
from ..core.sampling import Sampling, key
from ..hypergradient.lipschitz import raised
from ..measure.divergence import Diverged, blame, culprit, directions, explain, unsound, whose
from ..measure.record import Record
from ..network import Network
from ..numbers.open_numbers import Found, Rows, Setting, refreshes, resolve
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from ..runs.run import Run
from ..runs.snapshot import Snapshot
from ._precision import Precision
from ._round import Progress, estimate, samples, start
from .spmd import Devices, placed

REWIND = 100  # a run that may shrink its steps keeps the state of every so many rounds
LARGE, LOST = 1e2, 1e6  # times the start: not to go back to; given up, though finite
RECENT = 2  # of these, beside the start
SHRINKS = 8  # how often, at most
FACTOR = 0.25  # by how much each time
KEPT = ".kept"  # among the arrays of a run, those of states to go back to


def _size(progress: Progress) -> float:
    return float(tree.norm((progress.state.x, progress.state.y)))


_added = jax.jit(cost.add)


class Simulation:
    """A run under way: where it stands, and the numbers it runs with."""

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
        self.problem, self.given, self.seed, self.sampling = problem, algorithm, seed, sampling
        found = dict(resume.found) if resume else {}
        self.shrinks = shrinks
        given = problem, network, algorithm.batch
        self.place = placed(*given, sampling, devices, precision, memory)
        self.setting = Setting(
            *given, seed, memory=found, groups=self.place.groups, talk=self.place.talk
        )
        tell("looking at the problem")
        self._number()
        first = start(self.algorithm, *problem.start(seed), problem.agents)
        self.progress = begin = self.place.place(first)
        self._charge(self.resolved.cost)
        self.seconds = 0.0
        about = problem, network, self.algorithm, self.place, seed, sampling
        self.record = Record(*about, self.resolved)
        tell("compiling")
        begun = time.perf_counter()
        self.record.begin(self.progress)
        self._go(self.progress, 0)  # no round at all: the time is the compiler's
        self.record.compile_seconds = time.perf_counter() - begun
        if resume:
            self.progress = self.place.place(tree.like(first, resume.arrays))
            self.seconds = resume.seconds
            self.record.restore(resume, first.state)
        kept = self._kept(first, resume.arrays) if resume else []
        self.kept = [begin, *kept] if shrinks else []

    def arrays(self) -> dict[str, Any]:
        """Where the run stands and, if it may go back, where to beside the start, by name."""
        found = tree.named(self._whole(self.progress))
        for i, kept in enumerate(self.kept[1:]):
            leaves = tree.named(self._whole(kept)).items()
            found |= {f"{KEPT}[{i}]{name}": leaf for name, leaf in leaves}
        return found

    def _kept(self, first: Progress, arrays: dict[str, Any]) -> list[Progress]:
        """The states to go back to that `arrays` hold."""
        of = lambda i: {name: arrays[f"{KEPT}[{i}]{name}"] for name in tree.named(first)}
        there = takewhile(lambda i: f"{KEPT}[{i}].t" in arrays, count())
        return [self.place.place(tree.like(first, of(i))) for i in there]

    def _whole(self, progress: Progress) -> Progress:
        state, spent = self.place.whole((progress.state, progress.spent))
        return Progress(progress.t, state, spent)

    def run(self) -> Run:
        """The run as it stands."""
        return self.record.run(self._whole(self.progress))

    @property
    def t(self) -> int:
        """Rounds made."""
        return int(self.progress.t)

    def advance(self, until: int) -> bool:
        """Go on to round `until`; False if the run had to go back instead."""
        after, sound, took = self._go(self.progress, until)
        self.seconds += took
        marked = self.shrinks and until % REWIND == 0
        if not sound or (marked and not _size(after) < LOST * (1 + _size(self.kept[0]))):
            self._fail(after)
            return False
        self.progress = after
        if self.setting.changes and until in refreshes(until):
            self._renew()
        if marked:
            self.kept = [self.kept[0], *[*self.kept[1:], self.progress][-RECENT:]]
        return True

    def _go(self, progress: Progress, until: int) -> tuple[Progress, bool, float]:
        begun = time.perf_counter()
        after, sound = self.place.advance(self.algorithm, key(self.seed), progress, until)
        return after, sound, time.perf_counter() - begun

    def _number(self) -> None:
        """Put the numbers found into the algorithm."""
        self.resolved = resolve(self.given, self.setting)
        self.algorithm = self.resolved.algorithm
        factor = self._factor
        if factor < 1:
            self.algorithm = raised(self.algorithm.shrunk(factor), 1 / factor)

    @property
    def _factor(self) -> float:
        """By how much steps are smaller than the first."""
        return self.setting.memory.get("shrunk", Found(1.0)).value

    def _renew(self, forget: bool = False) -> None:
        """Find numbers anew, where the agents stand."""
        state = self.progress.state
        x, y = self.place.whole((state.x, state.y))
        self.setting = self.setting.at(x, y, forget)
        self._number()
        self._charge(self.resolved.cost)
        self.record.renumber(self.algorithm, self.resolved)

    def _charge(self, spent: Cost) -> None:
        each = self.place.spread(cost.each(spent, self.problem.agents))
        self.progress = self.progress._replace(spent=_added(self.progress.spent, each))

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
        if cause is None and self._back(self.progress, f"{said} at round {self.t}"):
            return
        good = self._whole(self.progress)
        if cause is None and not last and _size(good) > LOST:
            return
        cause = cause or explain(self.setting, self.algorithm, self.t, good.state)
        raise Diverged(f"diverged by round {self.t}: {said}; {cause}", self.t, said, self.run())

    def _fail(self, after: Progress) -> None:
        """Go back with smaller steps, or raise."""
        t = int(after.t) - 1
        if not self._back(after, f"x or y is lost in round {t}"):
            good, *_ = self._go(self.progress, t)  # the same bits again, up to the round before
            raise self._diverged(good)

    def _back(self, after: Progress, said: str) -> bool:
        """Go back with smaller steps; False if that is not allowed, or did not help before."""
        memory, factor = self.setting.memory, self._factor * FACTOR if self.shrinks else 0.0
        if factor < FACTOR**SHRINKS:
            return False
        while len(self.kept) > 1 and not _size(self.kept[-1]) < LARGE * (1 + _size(self.kept[0])):
            self.kept.pop()
        back = self.kept.pop() if len(self.kept) > 1 else self.kept[0]
        memory["shrunk"] = Found(factor, lasting=True)
        before = memory.get("lost", Found(0)).value
        memory["lost"] = Found(before + int(after.t) - int(back.t), lasting=True)
        warnings.warn(
            f"{said}; back to round {int(back.t)} with steps {factor:g} times the first (L_g "
            f"{1 / factor:g} times)",
            RuntimeWarning,
            stacklevel=5,
        )
        self.progress = back._replace(spent=after.spent)
        self._renew(forget=True)
        self.record.rewind(int(back.t))
        return True

    def _diverged(self, good: Progress) -> Diverged:
        """Replays the round that failed, to say what broke in it and why."""
        after, *_ = self._go(good, int(good.t) + 1)
        good, after = self._whole(good), self._whole(after)
        t = int(good.t)
        lost, _ = self.setting.talk.alone("lost", lambda: (self._lost(good), Cost()))
        quantity = culprit(lost, after.state)
        cause = explain(self.setting, self.algorithm, t, good.state)
        message = (
            f"diverged in round {t}: {quantity} is not finite; {cause}. The state before that "
            f"round is kept in `run` of this error"
        )
        run = replace(self.record.run(good), status="diverged", message=message)
        return Diverged(message, t, quantity, run)

    def _lost(self, good: Progress) -> np.ndarray:
        """Of each agent to be measured here, whether its p and its v of the next round are lost."""

        def broken(direction: Any, agents: int) -> Any:
            lost = jax.vmap(lambda part: ~tree.finite(part))
            return lost(direction) if jax.tree.leaves(direction) else np.zeros(agents, bool)

        def look(rows: Rows, state: Any, numbers: jax.Array) -> Any:
            objectives, t = rows(self.algorithm.batch), int(good.t)
            drawn = samples(self.algorithm, objectives, key(self.seed), t, self.sampling, numbers)
            about = self.algorithm, objectives, state, t, drawn, numbers
            found, _ = jax.jit(estimate)(*about)
            return [broken(part, len(numbers)) for part in directions(found)]

        return np.stack(self.setting.each(look, good.state), axis=1)
