"""PROMETHEUS (Liu et al., ICML 2023): SPIDER, tracked, for x with a constraint or a regularizer."""

from dataclasses import replace

from ...core.pytrees import Number
from ...hypergradient import Hypergradient, neumann_sum
from .._composition import Step, Steps
from ..parts import ComposedAlgorithm, Variable
from ..parts.communication import tracking
from ..parts.provenance import ABSTRACT_CERTAIN, EXACT, Provenance
from .svr_interact import svr_interact

__all__ = ["prometheus"]

PROVENANCE = Provenance("PROMETHEUS (Liu et al., ICML 2023)", ABSTRACT_CERTAIN, EXACT)


def prometheus(
    alpha: Step = None,
    beta: Step = None,
    relax: Number | None = None,
    batch: int = 64,
    period: int | None = None,
    hypergradient: Hypergradient = neumann_sum(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x_{i,t+1} = sum_j M_ij (x_j + relax (prox_{alpha h}(x_j - alpha u_j) - x_j)).

    p_t, v_t and u_t are as in `svr_interact`; alpha is 1 / tau of the paper, relax its nu (default
    1). h is the `prox` of the problem (`diamond.prox`: box, ball, simplex, l1, l2); x stays
    feasible for every relax. Without a prox this is SVR-INTERACT that mixes after the step.
    """
    algorithm = svr_interact(alpha, beta, batch, period, hypergradient, "atc", steps)
    return replace(algorithm, x=Variable(algorithm.x.step, tracking("atc", relax)))
