"""STABLE (Chen et al., AISTATS 2022): momentum on g_xy and g_yy; y moves along dy*/dx too."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number
from ...core.sampling import Sample
from ...interface.round_interface import Message
from ...problem import Objectives
from .._composition import Step, Steps, choose
from ..parts.explicit_matrices import (
    Ingredients,
    MatrixMomentum,
    MatrixState,
    unravel_like,
    with_eigenvalue_floor,
)
from ..parts.provenance import ALIKE, READ, Provenance
from ..parts.single_stage import floor

__all__ = ["stable"]

PROVENANCE = Provenance(
    "STABLE (Chen et al., AISTATS 2022)",
    READ + ", projections from memory; g_xy is not projected",
    ALIKE,
)


@pytrees.pytree
@dataclass(frozen=True)
class Stable(MatrixMomentum):
    about = (
        "matrices; momentum on g_xy, g_yy; x gossip, y local; x y; x; "
        "f, g, all of g_yy and g_xy on a batch at two points"
    )

    def estimate(
        self, problem: Objectives, state: MatrixState, t: Number, sample: Sample
    ) -> tuple[Ingredients, Cost]:
        estimate, cost = super().estimate(problem, state, t, sample)
        f_x, f_y = jax.grad(problem.f, (0, 1))(state.x, state.y, sample.upper)
        g_y = jax.grad(problem.g, 1)(state.x, state.y, sample.lower)
        new = [ravel_pytree(a)[0] for a in (f_x, f_y, g_y)]  # without momentum
        plain = dict(zip(("f_x", "f_y", "g_y"), new))
        return estimate._replace(**plain), cost._replace(gradients=cost.samples)

    def update(
        self, state: MatrixState, estimate: Ingredients, sent: Message, change: Message, t: Number
    ) -> MatrixState:
        x = pytrees.add(sent.average, change.average)
        moved = ravel_pytree(pytrees.sub(x, state.x))[0]
        along = jnp.linalg.solve(
            with_eigenvalue_floor(estimate.g_yy, self.floor), estimate.g_xy.T @ moved
        )
        step = unravel_like(pytrees.axpy(self.beta(t), estimate.g_y, along), state.y)
        return MatrixState(x, pytrees.sub(state.y, step), (state.x, state.y), estimate)


def stable(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> Stable:
    """Step x along f_x - G_xy G_yy^-1 f_y, and y along g_y with a correction for the step of x.

    y_{t+1} = y_t - beta g_y - G_yy^-1 G_xy' (x_{t+1} - x_t). G_xy and G_yy have the momentum of eq.
    (6), with eta for tau of the paper; G_yy has no eigenvalue below mu / 2. For small y.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, eta=eta)
    return Stable(s["alpha"], s["beta"], s["eta"], floor, batch)
