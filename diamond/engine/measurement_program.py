"""Measurement of the runs of a backend with one compiled program."""

from typing import Any

import jax
import numpy as np

from ..core import pytrees
from ..hardware.device_memory import MemoryBoundedProgram
from ..interface.round_interface import state_part
from ..metrics import measures as programs
from ..metrics.exact_measures import curvature_probes
from ..metrics.measures import MeasuredState, Measures, sampled_directions
from ..problem import Problem
from .backend import Backend
from .round_program import Progress

MEASURING = "a measurement on all rows", "fewer rows an agent, or more devices"
GUESS = ".guess"  # name of y*(xbar) in a checkpoint


class MeasurementProgram:
    """The compiled program that measures all runs of a backend, and its inputs."""

    def __init__(self, problem: Problem, measures: Measures, backend: Backend, seeds: list[int]):
        self.problem, self.measures, self.backend = problem, measures, backend
        metrics = problem.metrics | dict(measures.functions)
        self.metrics = tuple((n, loss) for n, loss in metrics.items() if measures.is_requested(n))
        self.probes: Any = None
        if "exact" in measures.programs:
            places = backend.objectives.train.count.shape[0]
            self.probes = backend.stack(
                seeds, lambda seed: curvature_probes(problem, problem.start(seed)[1], seed, places)
            )
        self.guess: Any = None  # initial guess of y*(xbar), if only the upper loss is measured
        # Without optimization, a network of convolutions takes seconds for every measure.
        optimizes = measures.programs == {"loss"} or not problem.has_lower_solution
        single_run_program = programs.frequent_measurement if optimizes else programs.measurement
        program = programs.lane_measurement if backend.lanes else single_run_program
        key = program, measures  # runs share the program
        if key not in backend.measurement_programs:
            backend.measurement_programs[key] = MemoryBoundedProgram(
                program, backend.parallel_agents, backend.budget, *MEASURING
            )
        self.program: MemoryBoundedProgram = backend.measurement_programs[key]

    def start_compiling(self, progress: Progress) -> None:
        """Start to compile the program in the background."""
        if jax.process_count() == 1:  # processes of one job must compile in the same order
            self.program.start_compiling(*self._arguments(progress.state), **self._options)

    def wait_for_compiler(self, progress: Progress) -> None:
        """Wait for the compiler."""
        self.program.wait_for_compiler(*self._arguments(progress.state), **self._options)

    def __call__(self, progress: Progress) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return measures with an axis of runs, and per-agent ones with axes of runs and agents."""
        measures, per_agent, guess = self.program(*self._arguments(progress.state), **self._options)
        if "loss" in self.measures.programs:
            self.guess = guess
        per_agent = self.backend.gather(per_agent)
        requested = lambda values: {
            name: np.asarray(value) if self.backend.lanes else np.asarray(value)[None]
            for name, value in values.items()
            if self.measures.is_requested(name)
        }
        return requested(measures), requested(per_agent)

    def _arguments(self, state: Any) -> tuple[Any, ...]:
        backend = self.backend
        z = state_part(state, "z") if self.problem.lower_level == "common" else None
        guess = state.y if self.guess is None else self.guess
        guess = guess if "loss" in self.measures.programs else None
        needs_directions = "directions" in self.measures.programs
        directions = sampled_directions(state) if needs_directions else {}
        measured = MeasuredState(state.x, state.y, z, self.probes, guess, directions)
        return backend.objectives, backend.rows, self.metrics, measured

    @property
    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"programs": self.measures.programs}
        if not self.backend.lanes:
            options |= {"agents": self.backend.agents, "shared": self.backend.shared}
        return options

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that a resumed run needs to measure the same bits."""
        if self.guess is None:
            return {}
        named = pytrees.named_leaves(self.backend.gather(self.guess))
        return {f"{GUESS}{name}": leaf for name, leaf in named.items()}

    def restore(self, y: Any, arrays: Any) -> None:
        """Restore from `arrays`; `y` of all agents gives the shapes."""
        names = pytrees.named_leaves(y)
        if "loss" in self.measures.programs and all(f"{GUESS}{n}" in arrays for n in names):
            guess = pytrees.from_named_leaves(y, {n: arrays[f"{GUESS}{n}"] for n in names})
            self.guess = self.backend.scatter(guess)
