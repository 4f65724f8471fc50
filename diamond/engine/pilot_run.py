"""Numbers that a method learns in its first rounds, as the start of a tuning search."""

import warnings

import numpy as np

from ..hypergradient.diagnostics.lipschitz import SAFETY
from ..interface.round_interface import Algorithm, state_part
from ..metrics.divergence_error import Diverged
from ..network import Network
from ..problem import Problem
from .simulate import simulate

ROUNDS = 25


def learned_numbers(
    problem: Problem, network: Network, algorithm: Algorithm, seed: int
) -> dict[str, float]:
    """Return alpha, beta and `lipschitz` that `algorithm` has learned after 25 rounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            run = simulate(
                problem, network, algorithm, ROUNDS, seed, ROUNDS, progress=False, measure="cheap"
            )
        except Diverged as error:
            run = error.run
    numbers: dict[str, float] = {
        name: float(run.history[name][-1]) for name in ("alpha", "beta") if name in run.history
    }
    curvature = state_part(run.state, "curvature")
    if curvature is not None:
        numbers["lipschitz"] = SAFETY * float(np.max(curvature.largest))
    return {name: value for name, value in numbers.items() if np.isfinite(value) and value > 0}
