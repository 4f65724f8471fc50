"""What advances the rounds of one run or of many."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
from jax.sharding import NamedSharding

from ..core import cost
from ..core.cost import Cost
from ..core.sampling import key
from ..core.tree import Tree
from ..machine.memory import Budget, Fitted
from ..numbers.open_numbers import Talk
from ..problem import Objectives, Rows
from ..rounds.algorithm import Algorithm
from .round import Progress

Start = tuple[Tree, Tree]  # x and y of one agent before round 0
_added = jax.jit(cost.add)


class Backend(Protocol):
    """Holds the arrays of all agents, and runs the rounds of one run or of several lanes."""

    objectives: Objectives
    rows: Rows  # that metrics are measured on
    agents: int | None  # number of places that are agents, the first ones; None: all
    abreast: int  # agents of a device that are measured side by side
    budget: Budget
    rounds: Fitted
    surveys: dict[Any, Fitted]  # programs that measure
    shared: NamedSharding | None  # on every device
    groups: Any
    talk: Talk

    @property
    def lanes(self) -> bool: ...  # whether arrays have an axis of runs

    def combine(self, algorithms: Sequence[Algorithm]) -> Any:
        """The algorithms of all runs as an argument of `run_rounds`."""

    def stack(self, seeds: Sequence[int], make: Callable[[int], Tree]) -> Tree:
        """What `make` gives for the seed of each run, as an argument of a program."""

    def start(self, algorithm: Any, starts: Sequence[Start]) -> Progress:
        """All agents of all runs before round 0."""

    def run_rounds(
        self, algorithm: Any, seeds: Sequence[int], progress: Progress, until: int
    ) -> tuple[Progress, list[int | None]]:
        """Run rounds up to `until`; of each run the round that left x or y not finite, or None."""

    def charge(self, progress: Progress, costs: Sequence[Cost], agents: int) -> Progress:
        """Add costs of each run to the counters of its agents."""

    def of_run(self, progress: Progress, run: int) -> Progress:
        """The progress of one run, with arrays of this process."""

    def learned(self, algorithm: Any, state: Any) -> dict[str, Any]:
        """Step sizes that the runs have learned, with axes of runs and agents."""

    def whole(self, tree: Tree) -> Tree:
        """Arrays of all agents as arrays of this process."""

    def spread(self, tree: Tree) -> Tree:
        """Arrays of all agents, each agent's part on its device."""


class SingleRun:
    """A backend with one run; a subclass lays out its arrays and advances it."""

    lanes = False

    def combine(self, algorithms: Sequence[Algorithm]) -> Algorithm:
        (algorithm,) = algorithms
        return algorithm

    def stack(self, seeds: Sequence[int], make: Callable[[int], Tree]) -> Tree:
        (seed,) = seeds
        return make(seed)

    def start(self, algorithm: Any, starts: Sequence[Start]) -> Progress:
        ((x, y),) = starts
        return self.place(self.begin(algorithm, x, y))

    def run_rounds(
        self, algorithm: Any, seeds: Sequence[int], progress: Progress, until: int
    ) -> tuple[Progress, list[int | None]]:
        after, finite = self.advance(algorithm, key(seeds[0]), progress, until)
        return after, [None if finite else int(after.t) - 1]

    def charge(self, progress: Progress, costs: Sequence[Cost], agents: int) -> Progress:
        each = self.spread(cost.each(costs[0], agents))
        return progress._replace(spent=_added(progress.spent, each))

    def of_run(self, progress: Progress, run: int) -> Progress:
        return Progress(progress.t, *self.whole(tuple(progress[1:])))

    def learned(self, algorithm: Any, state: Any) -> dict[str, Any]:
        if not hasattr(algorithm, "learned"):
            return {}
        return {n: v[None] for n, v in algorithm.learned(self.whole(state)).items()}

    def begin(self, algorithm: Algorithm, x: Tree, y: Tree) -> Progress:
        """All agents before round 0, as arrays of this process."""
        raise NotImplementedError

    def place(self, progress: Progress) -> Progress:
        """The progress of all agents, laid out on the devices."""
        raise NotImplementedError

    def advance(
        self, algorithm: Algorithm, key: jax.Array, progress: Progress, until: int
    ) -> tuple[Progress, bool]:
        """Run rounds up to `until`, or through the first that leaves x or y not finite."""
        raise NotImplementedError

    def spread(self, tree: Tree) -> Tree:
        """Arrays of all agents, each agent's part on its device."""
        raise NotImplementedError

    def whole(self, tree: Tree) -> Tree:
        """Arrays of all agents as arrays of this process."""
        raise NotImplementedError
