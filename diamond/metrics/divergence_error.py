"""Divergence of a run: the round, the quantity, the likely cause, and the remedy."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np

from ..core import pytrees
from ..core.cost_counter import Cost
from ..hypergradient.diagnostics.lipschitz import SAFETY, batch_curvatures, given_lipschitz
from ..interface.round_interface import Algorithm
from ..records.run import Run
from ..schedules.deferred import ResolutionContext
from .standard_errors import SUFFIX

SOLVER_ERROR = (
    "solver_error"  # not finite if the lower level has no solution, which has its own warning
)
NEED_SOLUTION = ("stationarity", "lower_error", "metric", "definition1", "upper_loss")


class Diverged(RuntimeError):
    """Error of a run that diverged; `run` has its history, best point and last finite state.

    `rounds_made` counts the round that diverged.

    Examples:
        >>> problem = diamond.gallery.quadratic(agents=4, lower_level="none")
        >>> try:
        ...     diamond.simulate(problem, diamond.network.ring(4), diamond.dsgd(alpha=1e9), 20)
        ... except diamond.Diverged as error:
        ...     print(error.run.status)
        diverged
    """

    def __init__(
        self, message: str, round: int, quantity: str, run: Run, *, rounds_made: int | None = None
    ):
        super().__init__(message)
        self.round, self.quantity, self.run = round, quantity, run
        self.rounds_made = round + 1 if rounds_made is None else rounds_made


def directions(estimate: Any) -> tuple[Any, Any]:
    """Return p and v of a stage's estimate; all of it as p if it does not separate them."""
    first = estimate[0] if isinstance(estimate, tuple) and estimate else estimate
    return getattr(first, "x", estimate), getattr(first, "y", None)


def describe_first_nonfinite(direction_is_lost: np.ndarray, state: Any) -> str:
    """Name the first quantity of a round that is not finite, and an agent that has it.

    `direction_is_lost`: whether p and v of every agent are not finite.
    """
    is_nonfinite = lambda tree: ~np.asarray(jax.vmap(pytrees.finite)(tree))
    quantities = [
        ("p, the upper direction,", direction_is_lost[:, 0]),
        ("v, the lower direction,", direction_is_lost[:, 1]),
    ]
    levels = [(name, getattr(state, name, None)) for name in "xy"]  # y may be absent
    quantities += [(name, is_nonfinite(level)) for name, level in levels if jax.tree.leaves(level)]
    for name, agent_is_nonfinite in quantities:
        if agent_is_nonfinite.any():
            return f"{name} of agent {int(np.argmax(agent_is_nonfinite))}"
    return "x or y"  # finite here through rounding; in the compiled rounds it was not


def nonfinite_measures(entry: Mapping[str, float]) -> list[str]:
    """Return the measures that are not finite, except those that need a missing y*."""
    return [name for name in entry if not is_finite_or_undefined(entry, name)]


def is_finite_or_undefined(entry: Mapping[str, Any], name: str) -> Any:
    """Return whether a measure is finite, or need not be because y* was not found.

    Works elementwise if the entry has an axis of runs.
    """
    if name == SOLVER_ERROR:
        return np.full(np.shape(entry[name]), True)
    finite = np.isfinite(entry[name])
    needs = name.removesuffix(SUFFIX) in NEED_SOLUTION
    return finite | ~np.isfinite(entry[SOLVER_ERROR]) if needs and SOLVER_ERROR in entry else finite


def describe_nonfinite(
    names: Collection[str], entry: Mapping[str, float], per_agent: Mapping[str, Any]
) -> str:
    """Describe the measures that are not finite, and the agents concerned."""
    agent_is_nonfinite = [
        ~np.isfinite(np.asarray(per_agent[name], float)) for name in names if name in per_agent
    ]
    agents = (
        np.flatnonzero(np.any(agent_is_nonfinite, axis=0)).tolist() if agent_is_nonfinite else []
    )
    suffix = f" (agent {', '.join(map(str, agents[:8]))})" if agents else ""
    return ", ".join(f"{name} is {entry[name]}" for name in list(names)[:4]) + suffix


def cause_of_nonfinite(names: Collection[str], metrics: Collection[str], round: int) -> str | None:
    """Return why measures are not finite, if the cause is not a step that is too large."""
    if set(names) <= set(metrics):
        return "the losses are finite there, so look into the metric itself for 0/0 or log(0)"
    if round == 0:
        return (
            "no round has been made, so no step is at fault: look at the rows of these agents, and "
            "at the losses for log(0), 0/0 or a label that is no class"
        )
    return None


def explain_divergence(
    context: ResolutionContext, algorithm: Algorithm, t: int, state: Any, *, noise: str = ""
) -> str:
    """Explain the likely cause from the curvature of the lower level at the start.

    If that is stable, `noise` is the likely cause, where it is larger than directions.
    """
    numbers = {name: float(value) for name, value in algorithm.schedule_values(t).items()}
    is_lower = context.problem.lower is not None
    if not is_lower or not context.problem.has_lower_solution:  # no curvature of a network
        if noise:
            return noise
        remedy = "beta by ten, then alpha" if is_lower else "alpha by ten"
        steps = ", ".join(f"{name} = {value:.3g}" for name, value in numbers.items())
        return f"the steps are too long ({steps or 'learned ones'}): divide {remedy}"
    start = dataclasses.replace(context, current_point=None).point
    (largest,), _ = context.consensus.maximum(
        "start", lambda: (batch_curvatures(context, start), Cost())
    )
    limit = 2 / largest
    description = ", ".join(f"{name} = {value:.3g}" for name, value in numbers.items())
    betas = [(float(algorithm.schedule_values(s).get("beta", 0.0)), s) for s in (0, t)]
    beta, s = max(betas, key=lambda pair: pair[0])
    if beta > limit:
        return (
            f"beta_{s} = {beta:.3g} exceeds 2/L_g = {limit:.3g} (L_g: mini-batches at the start), "
            f"so the lower level cannot be stable; divide beta by {beta / limit:.0f} or more"
        )
    chain = given_lipschitz(algorithm)
    if chain is not None and chain < largest / 2:
        return (
            f"lipschitz = {chain:.3g} lies below half of L_g = {largest:.3g}, so the chain of "
            f"eq. (5) grows; give at least {SAFETY * largest:.3g}, or None to have it estimated"
        )
    if noise:
        return noise
    if "alpha" not in numbers:
        return (
            "the steps were learned, and shortening them did not help: are the losses smooth, and "
            "is the lower level strongly convex in y? Give alpha yourself to continue"
        )
    return (
        f"beta stays below 2/L_g = {limit:.3g}, so alpha is the likely cause ({description}); "
        f"try alpha ten times smaller"
    )
