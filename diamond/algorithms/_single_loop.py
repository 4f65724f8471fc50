"""The single-loop family: each round, one consensus step on x and one local step on y.

Its members differ in two things only, how an agent estimates its gradients and whether the
network tracks their mean:

                     estimate             tracking
    dsgd             plain                no
    gt_sgd           plain                yes
    m_sgd            momentum             no          SUSTAIN, if there is one agent
    diamond          momentum             yes
    interact         plain, all rows      yes
    svr_interact     spider               yes
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from .. import tree
from ..cost import Cost
from ..estimate import Directions, Momentum, Plain, Point, Spider
from ..problem import Objectives
from ..sampling import Sample
from ..schedule import Number, Schedule
from ..tree import Tree
from ._consensus import Consensus, Shared


class State(NamedTuple):
    """What an agent keeps between rounds, in the letters of the paper; None where not needed."""

    x: Tree  # its copy of the upper level, x_t
    y: Tree  # its lower level, y_t
    last: Point | None  # (x_{t-1}, y_{t-1}), where momentum looks back
    p: Tree | None  # estimate of the upper gradient, p_{t-1}
    v: Tree | None  # estimate of the lower gradient, v_{t-1}
    u: Tree | None  # the tracked gradient, as `Consensus` keeps it


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SingleLoop:
    """x_{t+1} from x_t and p_t as `consensus` says (8, 9), and y_{t+1} = y_t - beta_t v_t (10),

    where (p_t, v_t) comes from `estimator`.
    """

    alpha: Schedule
    beta: Schedule
    estimator: Plain | Momentum | Spider
    hypergradient: Any  # a Hypergradient
    consensus: Consensus
    batch: int = field(metadata={"static": True})

    @property
    def early(self) -> bool:
        return self.consensus.early

    @property
    def links(self) -> int:
        return self.hypergradient.links

    def numbers(self, t: Number) -> dict[str, Number]:
        """alpha_t, beta_t and what else the estimator weighs with."""
        return {"alpha": self.alpha(t), "beta": self.beta(t), **self.estimator.numbers(t)}

    def init(self, x: Tree, y: Tree) -> State:
        """p_{-1} = v_{-1} = u_{-1} = 0 and x_{-1} = x_0: with eta_0 = 1, u_0 = p_0 follows."""
        recalls, tracks = self.estimator.recalls, self.consensus.tracking
        return State(
            x,
            y,
            (x, y) if recalls else None,
            tree.zeros(x) if recalls or tracks else None,
            tree.zeros(y) if recalls else None,
            tree.zeros(x) if tracks else None,
        )

    def outgoing(self, state: State, estimate: Directions, t: Number) -> Shared:
        """x and, if it is tracked, u."""
        return self.consensus.message(state, estimate, self.alpha(t))

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Directions, Cost]:
        """(p_t, v_t)."""

        def gradients(points: Sequence[Point], sample: Sample) -> tuple[list[Directions], Cost]:
            p, cost = self.hypergradient(problem, points, sample)
            v = [jax.grad(problem.g, 1)(x, y, sample.lower) for x, y in points]
            rows = problem.train.size(sample.lower)
            return list(zip(p, v)), tree.add(cost, Cost(rows, len(points) * rows, 0, 0))

        now, old = (state.x, state.y), (state.p, state.v)
        return self.estimator(gradients, now, state.last, old, t, sample)

    def update(self, state: State, estimate: Directions, mixed: Shared, t: Number) -> State:
        """Eqs. (8) to (10)."""
        p, v = estimate
        x, u = self.consensus.moved(state, estimate, mixed, self.alpha(t))
        y = tree.axpy(-self.beta(t), v, state.y)
        recalls = self.estimator.recalls
        return State(
            x,
            y,
            (state.x, state.y) if recalls else None,
            p if recalls or self.consensus.tracking else None,
            v if recalls else None,
            u,
        )
