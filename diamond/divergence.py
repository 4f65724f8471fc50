"""A run that is no longer finite: when, where, why, and what to do."""

from collections.abc import Collection
from typing import Any

import jax
import numpy as np

from . import tree
from .algorithm import Algorithm
from .hypergradient.lipschitz import (
    BATCHES,
    SAFETY,
    bounds,
    curvature,
    hardest,
    in_use,
    lipschitz,
)
from .problem import Problem
from .run import Run
from .sampling import key


class Diverged(RuntimeError):
    """Raised by a runtime. `run` holds the last good state and the history until then."""

    def __init__(self, message: str, round: int, quantity: str, run: Run):
        super().__init__(message)
        self.round, self.quantity, self.run = round, quantity, run


def culprit(estimate: Any, state: Any) -> str:
    """The first quantity of a round that is not finite, and an agent that has it."""
    broken = lambda part: ~np.asarray(jax.vmap(tree.finite)(part))
    p, v, *_ = estimate
    named = [("p, the upper direction,", p), ("v, the lower direction,", v)]
    for name, part in [*named, ("x", state.x), ("y", state.y)]:
        if broken(part).any():
            return f"{name} of agent {int(np.argmax(broken(part)))}"
    return "x or y"  # finite here, by a rounding; in the compiled rounds it was not


def explain(
    problem: Problem, algorithm: Algorithm, t: int, seed: int, state: Any, found: Collection[str]
) -> str:
    """The likely cause, from the curvature of the lower level at the start and at `state`.

    `found`: the names of the numbers that the run has found for itself.
    """
    if said := _outrun(problem, algorithm, seed, state, found):
        return said
    algorithm = hardest(algorithm)
    numbers = {name: float(value) for name, value in algorithm.numbers(t).items()}
    largest = lipschitz(problem, *problem.start(seed), algorithm.batch, seed)[0] / SAFETY
    limit = 2 / largest
    said = ", ".join(f"{name} = {value:.3g}" for name, value in numbers.items())
    betas = [(float(algorithm.numbers(s).get("beta", 0.0)), s) for s in (0, t)]
    beta, s = max(betas, key=lambda pair: pair[0])
    if beta > limit and "beta" not in found:
        return (
            f"beta_{s} = {beta:.3g} exceeds 2/L_g = {limit:.3g} (L_g: mini-batches at the start), "
            f"so the lower level cannot be stable; divide beta by {beta / limit:.0f} or more"
        )
    chain = in_use(algorithm)
    if chain is not None and chain < largest / 2:
        return (
            f"lipschitz = {chain:.3g} lies below half of L_g = {largest:.3g}, so the chain of "
            f"eq. (5) grows; give at least {SAFETY * largest:.3g}, or None to have it estimated"
        )
    return (
        f"beta stays below 2/L_g = {limit:.3g}, so alpha is the likely cause ({said}); "
        f"try alpha ten times smaller"
    )


def _outrun(
    problem: Problem, algorithm: Algorithm, seed: int, state: Any, found: Collection[str]
) -> str | None:
    """Whether the lower level bends more now than an L that was found before allows."""
    chain = bounds(algorithm)
    if chain is None or "lipschitz" not in found:
        return None
    rows, numbers = problem.objectives(algorithm.batch), np.arange(problem.agents)
    bends = np.asarray(curvature(rows, state.x, state.y, key(seed), numbers, BATCHES))
    off = np.nan_to_num(bends / chain, nan=np.inf)  # nan: too large for its precision
    if off.max() <= 1:
        return None
    i = int(np.argmax(off))
    by = f"by {bends[i]:.3g}" if np.isfinite(bends[i]) else "without bound"
    return (
        f"g_yy of agent {i} bends {by} there, more than the lipschitz = "
        f"{np.broadcast_to(chain, bends.shape)[i]:.3g} found before: x has moved too fast for what "
        f"was found; use on_divergence='shrink', or give an alpha a quarter as large"
    )
