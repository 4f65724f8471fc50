"""Inverse Hessian by an accelerated chain: sqrt(L / mu) products instead of L / mu in eq. (5).

Every product is on its own rows, as in `neumann_sum`, and the iterate is linear in each product:
its mean is the iterate on all rows, a polynomial in g_yy like that of eq. (5), but a better one of
the same degree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Number, Tree
from ..core.sampling import Sample
from ..core.validation import as_int
from ..problem import Objectives
from .estimator_interface import LinearSolve, PointXY
from .implicit_estimator import ImplicitHypergradient
from .neumann import given_or_learned_lipschitz, make_factor

TERMS = 20
CLOSE = 1e-6  # (L - mu) / (L + mu) below which all eigenvalues count as equal


@dataclass(frozen=True)
class Accelerated(LinearSolve):
    """Solver of g_yy z = b: the K-th iterate from zero, by K - 1 products."""

    lipschitz: Any  # L, a number once the run begins
    mu: Any  # None: 4 L / K^2, what K terms reach
    terms: int = field(metadata={"static": True})  # K

    @property
    def hessian_batches(self) -> int:
        return self.terms - 1

    @property
    def mu_or_default(self) -> Any:
        """The lower bound mu of the eigenvalues, given or derived from K."""
        reached = min(1.0, 4 / self.terms**2) * self.lipschitz
        return reached if self.mu is None else self.mu

    def _steps(self, b: list[Tree], apply: Any) -> tuple[Any, Any]:
        """Return (z_1, z_0, r_0), and (j, carry) -> carry; apply(j, w) = w - g_yy(zeta_j) w / L."""
        raise NotImplementedError

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        first, step = self._steps(b, make_factor(self.lipschitz, problem, points, sample))
        z = first[0]
        if self.hessian_batches:  # a chain of one term has no drawn blocks
            z, _, _ = jax.lax.fori_loop(0, self.hessian_batches, step, first)
        rows, fresh = problem.train.size(sample.chain), problem.train.count_fresh_rows(sample.chain)
        return z, Cost(
            samples=self.hessian_batches * fresh, hvps=len(points) * self.hessian_batches * rows
        )


@pytrees.pytree
class Nesterov(Accelerated):
    """Nesterov's method with c = (1 - sqrt(mu / L)) / (1 + sqrt(mu / L)).

    z_1 = b / L,    z_{j+1} = w_j + (b - g_yy w_j) / L,    w_j = z_j + c (z_j - z_{j-1})
    """

    def _steps(self, b: list[Tree], apply: Any) -> tuple[Any, Any]:
        largest = jnp.asarray(self.lipschitz)
        root = jnp.sqrt(self.mu_or_default / largest)

        def step(j: Any, carry: Any) -> Any:
            z, before, c = carry
            ahead = pytrees.axpy(c, pytrees.sub(z, before), z)
            return pytrees.axpy(1 / largest, b, apply(j, ahead)), z, c

        return (pytrees.scale(1 / largest, b), pytrees.zeros(b), (1 - root) / (1 + root)), step


@pytrees.pytree
class Chebyshev(Accelerated):
    """Chebyshev iteration with t, d = (L +- mu) / 2, r_0 = d / t, r_j = 1 / (2 t / d - r_{j-1}).

    z_1 = b / t,    z_{j+1} = z_j + r_j r_{j-1} (z_j - z_{j-1}) + 2 r_j / d (b - g_yy z_j)
    """

    def _steps(self, b: list[Tree], apply: Any) -> tuple[Any, Any]:
        largest = jnp.asarray(self.lipschitz)
        middle, half = (
            (largest + self.mu_or_default) / 2,
            jnp.maximum((largest - self.mu_or_default) / 2, CLOSE * largest),
        )

        def step(j: Any, carry: Any) -> Any:
            z, before, last = carry
            r = 1 / (2 * middle / half - last)
            residual = pytrees.axpy(largest, pytrees.sub(apply(j, z), z), b)  # b - g_yy z
            moved = pytrees.axpy(r * last, pytrees.sub(z, before), z)
            return pytrees.axpy(2 * r / half, residual, moved), z, r

        return (pytrees.scale(1 / middle, b), pytrees.zeros(b), half / middle), step


def nesterov(
    terms: int = TERMS, lipschitz: Number | None = None, mu: Number | None = None
) -> ImplicitHypergradient:
    """Make an estimator with Nesterov's method for g_yy z = f_y, every step on its own rows.

    It leaves out at most (1 + K sqrt(mu / L)) (1 - sqrt(mu / L))^K of the inverse, and gathers less
    noise of sampled rows than `chebyshev`.

    Args:
        terms: K, number of terms.
        lipschitz: L, bound on the eigenvalues of every sampled g_yy; None: each agent learns its
            own during the run.
        mu: lower bound on the eigenvalues of g_yy; None: 4 L / K^2, what K terms reach.

    Returns:
        The estimator.
    """
    return _make(Nesterov, terms, lipschitz, mu)


def chebyshev(
    terms: int = TERMS, lipschitz: Number | None = None, mu: Number | None = None
) -> ImplicitHypergradient:
    """Make an estimator with Chebyshev's iteration for g_yy z = f_y, of optimal degree.

    It leaves out 1 / T_K((L + mu) / (L - mu)), about 2 ((1 - sqrt(mu / L)) / (1 + sqrt(mu / L)))^K,
    with T_K the Chebyshev polynomial; no polynomial of the same degree leaves out less. Arguments
    as in `nesterov`. An eigenvalue above L diverges, and noise of sampled rows is magnified: best
    on all rows (INTERACT) or large batches.
    """
    return _make(Chebyshev, terms, lipschitz, mu)


def _make(
    kind: type[Accelerated], terms: int, lipschitz: Number | None, mu: Number | None
) -> ImplicitHypergradient:
    if as_int("terms", terms) < 1:
        raise ValueError(f"terms = {terms}: the chain needs a whole number of terms, 1 or more")
    for name, number in {"lipschitz": lipschitz, "mu": mu}.items():
        if isinstance(number, int | float) and not number > 0:
            raise ValueError(f"{name} = {number} must be positive; None estimates it")
    if isinstance(mu, int | float) and isinstance(lipschitz, int | float) and mu > lipschitz:
        raise ValueError(
            f"mu = {mu} is above lipschitz = {lipschitz}: it is the smaller of the two"
        )
    return ImplicitHypergradient(kind(given_or_learned_lipschitz(lipschitz), mu, terms))
