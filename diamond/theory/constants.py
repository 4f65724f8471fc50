"""Constants of the paper's assumptions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.cost_counter import Cost


class Start(NamedTuple):
    """Start of a run: terms of the potential of Theorem 1 at (x_0, y_0), without weights."""

    loss: float = 0.0  # l(x_0), exact
    lower_gap: float = 0.0  # sum_i ||y_0 - y_i*(x_0)||^2
    disagreement: float = 0.0  # sum_i ||h_i - mean of h||^2, h_i the exact hypergradient of agent i


@dataclass(frozen=True)
class Constants:
    """Constants of Assumptions 1 to 4 and of the network: the worst over all agents.

    C_gxy bounds ||g_xy|| itself: Assumption 2.5 prints ||g_xy||^2 <= C_gxy, but every lemma uses it
    as a bound on the norm. L_g bounds the eigenvalues of every sampled g_yy (Assumption 3, eq. 5);
    mu_g bounds those of the full g_yy from below, which Lemma 3 needs. `errors` has the standard
    error or the spread of each estimate, by name; nothing for given or exact values.
    """

    agents: int  # m
    lam: float  # lambda of the mixing matrix
    mu_g: float
    L_g: float
    C_gxy: float
    C_fy: float
    L_fx: float
    L_fy: float
    L_gxy: float
    L_gyy: float
    sigma_f: float = 0.0  # of the sampled hypergradient, eq. (5)
    sigma_g: float = 0.0  # of the sampled g_y
    sigma_df: float = 0.0  # of the sampled (f_x, f_y), a part of sigma_f
    L_g_full: float = 0.0  # largest eigenvalue of the full g_yy
    heterogeneity: float = 0.0  # mean_i ||h_i - hbar||^2 / ||hbar||^2
    start: Start = field(default_factory=Start)
    errors: Mapping[str, float] = field(default_factory=dict)
    # Cost of the estimates in rows per agent; the mean over the agents.
    cost: Cost = field(default_factory=Cost)
    rounds: int = 0  # rounds of communication for the estimates
    bytes: int = 0  # over all edges, in both directions

    def __post_init__(self) -> None:
        if not self.mu_g > 0:
            raise ValueError(
                f"mu_g = {self.mu_g:.3g}: the lower level is not strongly convex in y at some "
                f"point looked at (Assumption 2.3); add a term such as ||y||^2 to it"
            )
        if self.L_g < self.mu_g:
            raise ValueError(f"L_g = {self.L_g:.3g} is below mu_g = {self.mu_g:.3g}; exchange them")

    @property
    def condition(self) -> float:
        """The condition number L_g / mu_g."""
        return self.L_g / self.mu_g

    def __str__(self) -> str:
        numbers = [k for k, v in vars(self).items() if isinstance(v, float)]
        lines = [f"{'agents':14}{self.agents:12}"]
        for name in numbers:
            spread = f"  +- {self.errors[name]:.2g}" if name in self.errors else ""
            lines.append(f"{name:14}{getattr(self, name):12.5g}{spread}")
        spent = ", ".join(f"{name} {value:,.0f}" for name, value in self.cost._asdict().items())
        return "\n".join([*lines, f"found by {spent} rows an agent, {self.rounds} rounds"])
