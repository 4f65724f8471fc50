"""The method behind `diamond.solve`: it learns its step sizes while it runs.

Rule: of this project, described in docs/solve.md.
"""

from ..core.whole_numbers import whole
from ..numbers.open_numbers import Deferred, Found, Setting
from .parts.learned_steps import COMMON_SHARE, LearnedSteps

__all__ = ["solve"]


def _stable_share(setting: Setting) -> Found:
    """The share of 1 / curvature that gradient tracking takes on this network."""
    if setting.network is None or setting.problem.lower_level != "common":
        return Found(COMMON_SHARE, lasting=True)
    return Found(min(COMMON_SHARE, setting.network.tracking["atc"] / 2), lasting=True)


def solve(batch: int = 64) -> LearnedSteps:
    """Gradient tracking of x with learned step sizes; y and z by the work they need.

        p_t = average of f_x(x, y; xi) - g_xy(x, y; zeta) z      y <- y - beta g_y,  z <- z - beta w
        u_t = sum_j M_ij u_{j,t-1} + p_t - p_{t-1}               w = g_yy z - f_y
        x_{t+1} = sum_j M_ij (x_j - alpha_j u_j)

    alpha is learned from the trackers (`diamond.auto.step_rule`), beta = 1 / (1.5 L) from L by one
    product a round with a carried vector. Where z relaxes slowly, the agent solves for its y and z
    by a few conjugate gradients in rounds in which that changes the hypergradient. A y that is
    common to all agents is tracked like x. Nothing is measured before the first round.
    """
    return LearnedSteps(share=Deferred("share", _stable_share), batch=whole("batch", batch, 1))
