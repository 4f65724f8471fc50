"""Measurement of the runs of a backend with one compiled program."""

from typing import Any

import jax
import numpy as np

from ..core import pytrees
from ..hardware.memory import Fitted
from ..metrics import measures as programs
from ..metrics.exact_measures import curvature_probes
from ..metrics.measures import Measures, sampled_directions
from ..problem import Problem
from .backend import Backend
from .round_program import Progress

MEASURING = "a measurement on all rows", "fewer rows an agent, or more devices"
GUESS = ".guess"  # name of y*(xbar) in a checkpoint


class Survey:
    """The compiled program that measures all runs of a backend, and its inputs."""

    def __init__(self, problem: Problem, measures: Measures, backend: Backend, seeds: list[int]):
        self.problem, self.measures, self.backend = problem, measures, backend
        metrics = problem.metrics | dict(measures.functions)
        self.metrics = tuple((n, loss) for n, loss in metrics.items() if measures.keeps(n))
        self.probes: Any = None
        if "exact" in measures.programs:
            places = backend.objectives.train.count.shape[0]
            self.probes = backend.stack(
                seeds, lambda seed: curvature_probes(problem, problem.start(seed)[1], seed, places)
            )
        self.guess: Any = None  # initial guess of y*(xbar), if only the upper loss is measured
        often = programs.observe_often if measures.programs == {"loss"} else programs.observe
        program = programs.observe_lanes if backend.lanes else often
        if (known := (program, measures)) not in backend.surveys:  # runs share the program
            fitted = Fitted(program, backend.abreast, backend.budget, *MEASURING)
            backend.surveys[known] = fitted
        self.program: Fitted = backend.surveys[known]

    def begin(self, progress: Progress) -> None:
        """Start to compile the program in the background."""
        if jax.process_count() == 1:  # processes of one job must compile in the same order
            self.program.begin(*self._arguments(progress.state), **self._options)

    def ready(self, progress: Progress) -> None:
        """Wait for the compiler."""
        self.program.ready(*self._arguments(progress.state), **self._options)

    def __call__(self, progress: Progress) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return measures with an axis of runs, and per-agent ones with axes of runs and agents."""
        found, own, guess = self.program(*self._arguments(progress.state), **self._options)
        if "loss" in self.measures.programs:
            self.guess = guess
        own = self.backend.whole(own)
        keep = lambda values: {
            name: np.asarray(value) if self.backend.lanes else np.asarray(value)[None]
            for name, value in values.items()
            if self.measures.keeps(name)
        }
        return keep(found), keep(own)

    def _arguments(self, state: Any) -> tuple[Any, ...]:
        backend = self.backend
        z = getattr(state, "z", None) if self.problem.lower_level == "common" else None
        guess = state.y if self.guess is None else self.guess
        guess = guess if "loss" in self.measures.programs else None
        wanted = "directions" in self.measures.programs
        directions = sampled_directions(state) if wanted else {}
        point = state.x, state.y, z, self.probes, guess, directions
        return backend.objectives, backend.rows, self.metrics, *point

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
        named = pytrees.named(self.backend.whole(self.guess))
        return {f"{GUESS}{name}": leaf for name, leaf in named.items()}

    def restore(self, y: Any, arrays: Any) -> None:
        """Restore from `arrays`; `y` of all agents gives the shapes."""
        names = pytrees.named(y)
        if "loss" in self.measures.programs and all(f"{GUESS}{n}" in arrays for n in names):
            guess = pytrees.like(y, {n: arrays[f"{GUESS}{n}"] for n in names})
            self.guess = self.backend.spread(guess)
