"""Backend with all agents on one device."""

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from ..core.pytrees import Tree
from ..core.sampling import Sampling
from ..hardware.memory import Budget, Fitted
from ..interface.round_interface import Algorithm
from ..network import Network
from ..network.mixing.lossy_mixer import mixing
from ..problem import Problem
from ..schedules.deferred import Consensus, SingleProcess
from .backend import SingleRun
from .precision import Precision, working
from .round_program import REMEDY, WORK, Progress, begin, run_rounds, together


class OneDevice(SingleRun):
    """Backend with all agents on one device."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        batch: int,
        sampling: Sampling,
        precision: Precision | None = None,
        memory: int | None = None,
    ):
        self.of = problem, network  # keeps both alive as long as the programs
        self.objectives, self.rows = problem.objectives(batch), problem.stack(problem.measured)
        self.working = working(self.objectives, precision)
        self.mixing, self.sampling = mixing(network), sampling
        self.abreast = problem.agents
        self.budget = Budget(list(self.objectives.train.count.devices()), memory)
        self.surveys: dict[Any, Fitted] = {}
        self.rounds = Fitted(run_rounds, together(self.working.train), self.budget, WORK, REMEDY)

    agents: int | None = None  # no padding
    shared: NamedSharding | None = None
    groups: Any = None  # numbers are estimated for all agents at once
    talk: Consensus = SingleProcess()

    def begin(self, algorithm: Algorithm, x: Tree, y: Tree) -> Progress:
        """Return the progress of all agents before round 0."""
        return begin(algorithm, self.objectives, self.mixing, x, y)

    def place(self, progress: Progress) -> Progress:
        """Lay out the progress of all agents for `run_until`."""
        return progress

    def spread(self, tree: Tree) -> Tree:
        """Distribute arrays of all agents over the devices."""
        return tree

    def whole(self, tree: Tree) -> Tree:
        """Gather arrays of all agents into this process."""
        return tree

    def run_until(
        self, algorithm: Algorithm, key: jax.Array, progress: Progress, until: int
    ) -> tuple[Progress, bool]:
        """Run rounds up to `until`, or through the first that leaves x or y not finite."""
        fixed = algorithm, self.working, self.mixing, key, progress
        after, sound = self.rounds(*fixed, np.int32(until), sampling=self.sampling)
        return jax.block_until_ready(after), bool(sound)
