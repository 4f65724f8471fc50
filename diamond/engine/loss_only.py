"""Many runs of which only the upper loss and the costs are wanted, one after another.

As `many` without what the other measures take, which on small problems is most of a run's time.
Programs are looked at once for all runs of a kind.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..core import cost
from ..core.cost import Cost
from ..core.sampling import Sampling, key
from ..metrics.evaluations import Every, due, following
from ..metrics.link_costs import LinkCosts
from ..metrics.upper_loss import upper_loss
from ..network import Network
from ..numbers.open_numbers import Setting, refreshes
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from ..rounds.traffic import traffic
from .many import Outcome
from .one_device import OneDevice
from .rollback import Rewind
from .round import first_stop
from .simulate import check
from .step_policy import Numbers

_added = jax.jit(cost.add)


class LossOnly:
    """Called as `many`, for runs on one problem and network."""

    def __init__(self) -> None:
        self.places: dict[Any, OneDevice] = {}

    def __call__(
        self,
        problem: Problem,
        network: Network,
        runs: Sequence[tuple[Algorithm, int]],
        rounds: int,
        every: Every,
        sampling: Sampling = "blocks",
    ) -> list[Outcome]:
        """The outcome of each (algorithm, seed): rounds, costs and `upper_loss` of `simulate`."""
        made = []
        for algorithm, seed in runs:
            check(problem, network, algorithm, rounds, every, sampling)
            kind = id(problem), id(network), algorithm.batch, sampling
            if kind not in self.places:
                self.places[kind] = OneDevice(problem, network, algorithm.batch, sampling)
            run = _Run(problem, network, algorithm, seed, self.places[kind])
            made.append(run.play(rounds, every))
        return made


class _Run:
    """A run under way."""

    def __init__(
        self, problem: Problem, network: Network, algorithm: Algorithm, seed: int, place: OneDevice
    ):
        self.problem, self.network, self.seed, self.place = problem, network, seed, place
        given = problem, network, algorithm.batch, seed
        self.numbers = Numbers(algorithm, Setting(*given, groups=place.groups, talk=place.talk))
        start = problem.start(seed)
        self.progress = place.begin(self.numbers.algorithm, *start)
        self.rewind = Rewind(self.progress, [])
        self.guess = self.progress.state.y
        self.traffic = traffic(self.numbers.algorithm, place.objectives, *start, network.channels)
        self.links = LinkCosts(network, self.traffic, seed)
        self.seconds, self.entries = 0.0, list[dict[str, float]]()
        self.compiled: Algorithm | None = None  # that the rounds were compiled for last
        self._charge()

    def play(self, rounds: int, every: Every) -> Outcome:
        """All rounds, or until it diverges."""
        place, numbers = self.place, self.numbers
        lost = self._measure()
        while lost is None and (t := int(self.progress.t)) < rounds:
            later = [r for r in refreshes(rounds) if r > t] if numbers.change else []
            if self.compiled is not numbers.algorithm:  # dropped: the time is the compiler's
                stop = first_stop(t, self.progress.kept)
                place.advance(numbers.algorithm, key(self.seed), self.progress, stop)
                self.compiled = numbers.algorithm
            begun = time.perf_counter()
            until = min([following(every, t, rounds), *later])
            after, sound = place.advance(numbers.algorithm, key(self.seed), self.progress, until)
            self.seconds += time.perf_counter() - begun
            if not sound:
                lost = int(after.t) - 1
                break
            self.progress = after
            if numbers.due(until) and not self._renumber():
                continue  # gone back, with smaller steps
            if due(every, until, rounds):
                lost = self._measure()
        columns = {name: np.array([e[name] for e in self.entries]) for name in self.entries[0]}
        return Outcome(columns, lost)

    def _renumber(self) -> bool:
        """Find numbers anew; False if the run had to go back instead, as a `Simulation` does."""
        self._renew()
        if not self.numbers.risen:
            return True
        self.progress, _ = self.rewind.low(self.numbers, self.progress)
        self._renew(forget=True)
        back = int(self.progress.t)
        self.entries = [entry for entry in self.entries if entry["round"] <= back]
        return False

    def _renew(self, forget: bool = False) -> None:
        state, t = self.progress.state, int(self.progress.t)
        self.numbers.renew(state.x, state.y, forget, t)
        self._charge()
        if self.numbers.lowest:
            self.rewind.lowest = self.progress

    def _charge(self) -> None:
        each = cost.each(self.numbers.resolved.cost, self.problem.agents)
        self.progress = self.progress._replace(spent=_added(self.progress.spent, each))

    def _measure(self) -> int | None:
        """Add an entry to the history; the round, if the loss is not finite there."""
        t, state = int(self.progress.t), self.progress.state
        loss, self.guess = upper_loss(self.place.objectives, state.x, state.y, self.guess)
        spent = cost.total(self.progress.spent).mean(0)
        made = t + self.numbers.lost
        sent = self.numbers.resolved.bytes + self.network.count_messages(made) * self.traffic.bytes
        self.entries.append(
            {
                "round": t,
                "upper_loss": float(loss),
                **{name: float(v) for name, v in zip(Cost._fields, spent)},
                "bytes": sent,
                "seconds": self.seconds,
                **self.links.after(made, self.numbers.resolved, self.seconds),
            }
        )
        return None if math.isfinite(float(loss)) else t
