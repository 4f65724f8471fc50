"""Estimators of the hypergradient, the gradient of f(x, y*(x)) in x."""

from .accelerated import chebyshev, nesterov
from .conjugate import conjugate_gradient
from .diagnostics.estimator_check import Report, check
from .diagnostics.lipschitz import lipschitz
from .estimator_interface import Hypergradient
from .exact_hypergradient import exact
from .hessian_free import hessian_free
from .neumann import neumann, neumann_sum
from .partial import partial
from .unrolled import unrolled
from .warm_start import warm_start
from .zeroth_order import zeroth_order

__all__ = [
    "Hypergradient",
    "Report",
    "chebyshev",
    "check",
    "conjugate_gradient",
    "exact",
    "hessian_free",
    "lipschitz",
    "nesterov",
    "neumann",
    "neumann_sum",
    "partial",
    "unrolled",
    "warm_start",
    "zeroth_order",
]
