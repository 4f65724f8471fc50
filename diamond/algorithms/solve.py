"""The method behind `diamond.solve`: quasi-Newton steps, or step sizes learned during the run."""

from typing import Literal

from ..core.validation import as_int
from ._composition import choose
from .parts import Variable
from .parts.communication import local, tracking
from .parts.directions import carried
from .parts.gradient_estimators import Average
from .parts.provenance import EXACT, Provenance
from .parts.solver import Solver, as_tolerance

__all__ = ["solve"]

PROVENANCE = Provenance(
    "The method behind `diamond.solve`",
    "of this project, described in docs/explanation/quasi_newton.md and step_sizes.md",
    EXACT,
)


def solve(
    batch: int = 64,
    steps: Literal["auto", "learned"] = "auto",
    accuracy: float | Literal["rough", "normal", "exact"] = "normal",
) -> Solver:
    """Take quasi-Newton steps of x on agreed samples, or track x with learned step sizes.

    Each agent solves for y and z on its first rows, L = f - z' g_y, and all agree on

        x_{t+1} = x_t - s_t H_t u_t    if L decreases,    u_t = 1/m sum_i f_x - g_xy z,

    with H_t by L-BFGS (`diamond.auto.quasi_newton_control`). The run ends by itself at the
    `accuracy`: "rough", "normal", "exact", or the share of the whole decrease that one more step
    may gain.

    With `steps` "learned", and for streams, proximal terms, large or not convex lower levels and
    networks that change messages, step sizes are learned:

        p_t = average of f_x(x, y; xi) - g_xy(x, y; zeta) z      y <- y - beta g_y,  z <- z - beta w
        u_t = sum_j M_ij u_{j,t-1} + p_t - p_{t-1}               w = g_yy z - f_y
        x_{t+1} = sum_j M_ij (x_j - alpha_j u_j)

    alpha is learned from the trackers (`diamond.auto.step_learning`), beta = 1 / (1.5 L) with L
    from one power iteration step per round. If z relaxes slowly, the agent solves for y and z by a
    few conjugate gradient steps in rounds where that changes the hypergradient. A common y is
    tracked like x. Nothing is measured before the first round.

    If the lower level is large or not strongly convex, directions are those of the penalty of
    `f2sa`, all in one stage, with gradients only, and with f on half of a mini-batch if y is large.
    x then rests for 20 rounds and moves by distance over gradients, y and z move by Adam
    (`diamond.auto.adaptive_optimizers`).
    """
    _, s = choose("auto", "atc", alpha=None, beta=None, delta=None, theta=None)
    return Solver(
        carried(),
        Average(s["theta"]),
        x=Variable(s["alpha"], tracking()),
        y=Variable(s["beta"], local()),
        z=Variable(s["delta"], local()),
        batch=as_int("batch", batch, 1),
        lower_levels=("personal", "common", "none"),
        steps=steps,
        accuracy=as_tolerance(accuracy),
    )
