"""Backend with all agents on one device."""

import math
from typing import Any, Literal

import jax
import numpy as np

from ..core import host_transfer
from ..core.pytrees import Tree
from ..core.sampling import Sampling
from ..hardware.device_memory import Budget, MemoryBoundedProgram
from ..interface.round_interface import Algorithm
from ..network import Network
from ..network.membership_epochs import Epoch
from ..network.mixing.lossy_mixer import make_mixer
from ..network.mixing.mixing_interface import MemberMixer
from ..problem import Problem
from . import round_program
from .backend import SingleRunBackend
from .precision import Precision, working_objectives
from .round_program import Progress

# Numbers in y from which agents take turns: below, that is slower. Side by side, rounds hold a
# second copy of the state, with the agents' axis elsewhere.
IN_TURN = {"cpu": 1_000_000, "gpu": 300_000_000}


class SingleDevice(SingleRunBackend):
    """Backend with all agents on one device."""

    is_laid_out = True

    def __init__(
        self,
        problem: Problem,
        network: Network,
        batch: int,
        sampling: Sampling,
        precision: Precision | None = None,
        memory: int | Literal["least"] | None = None,
        epoch: Epoch | None = None,
    ):
        self.epoch = epoch  # of a run whose members change
        self.donates = problem.is_large  # rounds overwrite the progress before
        self.inputs = problem, network  # keeps both alive as long as the programs
        self.objectives, self.rows = problem.objectives(batch), problem.stack(problem.measured_part)
        self.working = working_objectives(
            self.objectives, precision, casts_y=not problem.has_lower_solution
        )
        self.mixing: Any = make_mixer(network)
        if epoch is not None:
            members = host_transfer.to_device(epoch.members, np.int32)
            self.mixing = MemberMixer(self.mixing, members)
        self.sampling = sampling
        self.parallel_agents = 1 if problem.is_large else problem.agents
        limit = None if memory == "least" else memory
        self.budget = Budget(list(self.objectives.train.count.devices()), limit)
        self.measurement_programs: dict[Any, MemoryBoundedProgram] = {}
        size = round_program.agents_in_parallel(self.working.train)
        labels = round_program.WORK, round_program.REMEDY
        self.rounds = MemoryBoundedProgram(self._select_program(memory), size, self.budget, *labels)

    def _select_program(self, memory: int | Literal["least"] | None) -> Any:
        """Return the program of the rounds: agents one after another need the least memory."""
        if not self.donates:
            return round_program.run_rounds
        limit = IN_TURN.get(jax.default_backend(), math.inf)
        in_turn = memory == "least" or self.inputs[0].lower_size >= limit
        return round_program.run_rounds_in_place if in_turn else round_program.donating_run_rounds

    def initial_run_progress(self, algorithm: Algorithm, x: Tree, y: Tree) -> Progress:
        progress = round_program.initial_progress_with_links(
            algorithm, self.objectives, self.mixing, x, y
        )
        return round_program.without_shared_buffers(progress, (x, y)) if self.donates else progress

    def scatter_progress(self, progress: Progress) -> Progress:
        return host_transfer.copy_to_device(progress) if self.donates else progress

    def scatter(self, tree: Tree) -> Tree:
        return tree

    def gather(self, tree: Tree) -> Tree:
        return tree

    def run_until(
        self, algorithm: Algorithm, key: jax.Array, progress: Progress, until: int
    ) -> tuple[Progress, bool]:
        inputs = algorithm, self.working, self.mixing, key, progress, np.int32(until)
        after, is_finite = self.rounds(*inputs, **self.program_options(progress))
        return jax.block_until_ready(after), bool(is_finite)

    def program_options(self, progress: Progress) -> dict[str, Any]:
        """Return the static arguments of the rounds."""
        return {"sampling": self.sampling}
