"""DIAMOND without its chain: z_i, the solution of g_yy z = f_y, is carried along. Experimental."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax

from .. import tree
from ..cost import Cost
from ..problem import Objectives
from ..sampling import Sample
from ..schedule import Number, Schedule, weight
from ..tree import Tree
from ._auto import Order, Steps, choose
from ._consensus import Consensus, Shared

__all__ = ["k_free"]

Directions = tuple[Tree, Tree, Tree]  # (p, v, w)


class State(NamedTuple):
    """What an agent keeps between rounds."""

    x: Tree  # its copy of the upper level, x_t
    y: Tree  # its lower level, y_t
    z: Tree  # about [g_yy]^-1 f_y, z_t
    last: tuple[Tree, Tree, Tree]  # (x_{t-1}, y_{t-1}, z_{t-1}), where momentum looks back
    p: Tree  # estimate of the upper gradient, p_{t-1}
    v: Tree  # estimate of the lower gradient, v_{t-1}
    w: Tree  # estimate of the residual g_yy z - f_y, w_{t-1}
    u: Tree  # the tracked gradient, as `Consensus` keeps it


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KFree:
    """Momentum on three directions, the upper one tracked; see `k_free`."""

    alpha: Schedule
    beta: Schedule
    delta: Schedule
    eta: Schedule
    gamma: Schedule
    consensus: Consensus
    batch: int = field(metadata={"static": True})
    links: int = field(default=0, metadata={"static": True})

    @property
    def early(self) -> bool:
        return self.consensus.early

    def numbers(self, t: Number) -> dict[str, Number]:
        """alpha_t, beta_t, delta_t, eta_t and gamma_t."""
        steps = {"alpha": self.alpha(t), "beta": self.beta(t), "delta": self.delta(t)}
        return steps | {"eta": weight(self.eta, t), "gamma": weight(self.gamma, t)}

    def init(self, x: Tree, y: Tree) -> State:
        """z_0 = 0, and all estimates 0: with eta_0 = gamma_0 = 1 they are gradients in round 0."""
        z, nothing = tree.zeros(y), tree.zeros(x)
        return State(x, y, z, (x, y, z), nothing, z, z, nothing)

    def outgoing(self, state: State, estimate: Directions, t: Number) -> Shared:
        """x and u."""
        return self.consensus.message(state, estimate, self.alpha(t))

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Directions, Cost]:
        """(p_t, v_t, w_t)."""

        def directions(x: Tree, y: Tree, z: Tree) -> Directions:
            f_x, f_y = jax.grad(problem.f, (0, 1))(x, y, sample.upper)
            g_y = lambda x, y: jax.grad(problem.g, 1)(x, y, sample.cross)
            g_xy_z, g_yy_z = jax.vjp(g_y, x, y)[1](z)  # one pass: g_yy is symmetric
            v = jax.grad(problem.g, 1)(x, y, sample.lower)
            return tree.sub(f_x, g_xy_z), v, tree.sub(g_yy_z, f_y)

        new = directions(state.x, state.y, state.z)
        back = directions(*state.last)
        old = state.p, state.v, state.w
        eta, gamma = weight(self.eta, t), weight(self.gamma, t)
        kept = zip((1 - eta, 1 - gamma, 1 - gamma), tree.sub(old, back), new)
        p, v, w = (tree.axpy(c, correction, now) for c, correction, now in kept)
        f, g = problem.valid.size(sample.upper), problem.train.size(sample.lower)
        return (p, v, w), Cost(f + 2 * g, 2 * (f + g), hvps=2 * g, jvps=2 * g)

    def update(self, state: State, estimate: Directions, mixed: Shared, t: Number) -> State:
        """Eqs. (8) to (10), and z_{t+1} = z_t - delta_t w_t."""
        p, v, w = estimate
        x, u = self.consensus.moved(state, estimate, mixed, self.alpha(t))
        return State(
            x,
            tree.axpy(-self.beta(t), v, state.y),
            tree.axpy(-self.delta(t), w, state.z),
            (state.x, state.y, state.z),
            p,
            v,
            w,
            u,
        )


def k_free(
    alpha: Schedule | Number | None = None,
    beta: Schedule | Number | None = None,
    eta: Schedule | Number | None = None,
    gamma: Schedule | Number | None = None,
    delta: Schedule | Number | None = None,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> KFree:
    """DIAMOND with [g_yy]^-1 f_y as a third local variable: no chain, no K, no L_g to get wrong.

        p_t ~ f_x(xi) - g_xy(zeta_0) z,   v_t ~ g_y(zeta),   w_t ~ g_yy(zeta_0) z - f_y(xi)

    each with momentum as in eqs. (6) and (7), gamma for v and w; u_t tracks p_t as in eq. (8);
    x and y move as in eqs. (9) and (10), and z_{t+1} = z_t - delta_t w_t, delta = beta by default.
    beta and delta must stay below 2 / L_g, and alpha small enough for z to keep up: at a large
    condition number smaller than DIAMOND's, whose truncated chain damps (benchmarks/k_free.py).
    Three mini-batches a round instead of k + 3. No published guarantee is known.
    """
    order, s = choose(
        steps, order, lags=2, alpha=alpha, beta=beta, eta=eta, gamma=gamma, delta=delta
    )
    consensus = Consensus(order, tracking=True)
    return KFree(s["alpha"], s["beta"], s["delta"], s["eta"], s["gamma"], consensus, batch)
