"""Interface of the backends that run the rounds of one run or of several."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import NamedSharding

from ..core import cost_counter, host_transfer
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import key
from ..hardware.device_memory import Budget, MemoryBoundedProgram
from ..interface.round_interface import Algorithm, Method
from ..problem import Objectives, Rows
from ..schedules.deferred import Consensus, SingleProcess
from .round_program import Progress

Start = tuple[Tree, Tree]  # x and y of one agent before round 0
_added = jax.jit(cost_counter.add)


class Backend(Protocol):
    """Backend that holds the arrays of all agents and advances one run or several lanes."""

    objectives: Objectives
    rows: Rows  # rows that metrics are measured on
    parallel_agents: int  # agents of a device that are measured in parallel
    budget: Budget
    rounds: MemoryBoundedProgram
    measurement_programs: dict[Any, MemoryBoundedProgram]  # compiled programs that measure
    donates: bool  # whether rounds overwrite the progress before them
    agents: int | None = None  # number of agents, which come before padding; None: no padding
    shared: NamedSharding | None = None  # sharding that replicates on every device
    groups: Any = None  # agents whose numbers are estimated together; None: all of them
    consensus: Consensus = SingleProcess()
    lanes: bool = False  # whether arrays have an axis of runs

    def combine(self, algorithms: Sequence[Algorithm]) -> Any:
        """Combine the algorithms of all runs into an argument of `run_rounds`."""

    def stack(self, seeds: Sequence[int], make: Callable[[int], Tree]) -> Tree:
        """Stack make(seed) over the runs, as an argument of a program."""

    def initial_progress(self, algorithm: Method, starts: Sequence[Start]) -> Progress:
        """Return the progress of all agents of all runs before round 0."""

    def run_rounds(
        self, algorithm: Method, seeds: Sequence[int], progress: Progress, until: int
    ) -> tuple[Progress, list[int | None]]:
        """Run rounds up to `until`; return for each run the round that broke it, or None."""

    def charge(self, progress: Progress, costs: Sequence[Cost], agents: int) -> Progress:
        """Add the costs of each run to the counters of its agents."""

    def progress_of_run(self, progress: Progress, run: int) -> Progress:
        """Return the progress of one run as arrays of this process."""

    def learned_step_sizes(self, algorithm: Method, state: Any) -> dict[str, Any]:
        """Return the step sizes that the runs have learned, with axes of runs and agents."""

    def gather(self, tree: Tree) -> Tree:
        """Gather arrays of all agents into this process."""

    def scatter(self, tree: Tree) -> Tree:
        """Distribute arrays of all agents over the devices."""


class SingleRunBackend(Backend):
    """Backend with one run; a subclass lays out its arrays and advances it."""

    is_laid_out = False  # whether `initial_run_progress` lays out its arrays on the devices

    def combine(self, algorithms: Sequence[Algorithm]) -> Algorithm:
        (algorithm,) = algorithms
        return algorithm

    def stack(self, seeds: Sequence[int], make: Callable[[int], Tree]) -> Tree:
        (seed,) = seeds
        return make(seed)

    def initial_progress(self, algorithm: Method, starts: Sequence[Start]) -> Progress:
        ((x, y),) = starts
        progress = self.initial_run_progress(algorithm, x, y)
        return progress if self.is_laid_out else self.scatter_progress(progress)

    def run_rounds(
        self, algorithm: Method, seeds: Sequence[int], progress: Progress, until: int
    ) -> tuple[Progress, list[int | None]]:
        after, finite = self.run_until(algorithm, key(seeds[0]), progress, until)
        return after, [None if finite else int(after.t) - 1]

    def charge(self, progress: Progress, costs: Sequence[Cost], agents: int) -> Progress:
        if not any(np.any(number) for number in costs[0]):
            return progress
        counters = self.scatter(cost_counter.agent_counters(costs[0], agents))
        return progress._replace(spent=_added(progress.spent, counters))

    def progress_of_run(self, progress: Progress, run: int) -> Progress:
        return Progress(progress.t, *self.gather(tuple(progress[1:])))

    def learned_step_sizes(self, algorithm: Method, state: Any) -> dict[str, Any]:
        columns = host_transfer.to_host(self.gather(algorithm.learned_values(state)))
        return {name: values[None] for name, values in columns.items()}

    @abstractmethod
    def initial_run_progress(self, algorithm: Algorithm, x: Tree, y: Tree) -> Progress:
        """Return the progress of all agents before round 0, as arrays of this process."""

    @abstractmethod
    def scatter_progress(self, progress: Progress) -> Progress:
        """Lay out the progress of all agents on the devices."""

    @abstractmethod
    def run_until(
        self, algorithm: Algorithm, key: jax.Array, progress: Progress, until: int
    ) -> tuple[Progress, bool]:
        """Run rounds up to `until`, or through the first that leaves x or y not finite."""
