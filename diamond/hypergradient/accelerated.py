"""The inverse Hessian by an accelerated chain: sqrt(L / mu) products for what eq. (5) takes L / mu.

Every product is on rows of its own, as in `neumann_sum`, and the iterate is linear in each of them:
its mean is the iterate on all rows, a polynomial in g_yy as that of eq. (5), but a better one of
the same degree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from ..core import tree
from ..core.cost import Cost
from ..core.sampling import Sample
from ..core.tree import Tree
from ..core.whole_numbers import whole
from ..numbers.schedule import Number
from ..problem import Objectives
from .implicit import Implicit
from .neumann import factors, given
from .protocol import Point

TERMS = 20
CLOSE = 1e-6  # (L - mu) / (L + mu) below which all eigenvalues count as one


@dataclass(frozen=True)
class Accelerated:
    """z = the K-th iterate for g_yy z = b, from zero, by K - 1 products."""

    lipschitz: Any  # L, a number once the run begins
    mu: Any  # None: what so many terms reach, 4 L / K^2
    terms: int = field(metadata={"static": True})  # K

    @property
    def links(self) -> int:
        return self.terms - 1

    @property
    def least(self) -> Any:
        """mu."""
        reached = min(1.0, 4 / self.terms**2) * self.lipschitz
        return reached if self.mu is None else self.mu

    def _steps(self, b: list[Tree], apply: Any) -> tuple[Any, Any]:
        """(z_1, z_0, r_0), and (j, carry) -> carry; apply(j, w) = w - g_yy(zeta_j) w / L."""
        raise NotImplementedError

    def __call__(
        self, problem: Objectives, points: Sequence[Point], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        first, step = self._steps(b, factors(self.lipschitz, problem, points, sample))
        z = first[0]
        if self.links:  # no blocks were drawn for a chain of one term
            z, _, _ = jax.lax.fori_loop(0, self.links, step, first)
        rows, fresh = problem.train.size(sample.chain), problem.train.fresh(sample.chain)
        return z, Cost(samples=self.links * fresh, hvps=len(points) * self.links * rows)


@tree.pytree
@dataclass(frozen=True)
class Nesterov(Accelerated):
    """With c = (1 - sqrt(mu / L)) / (1 + sqrt(mu / L)):

    z_1 = b / L,    z_{j+1} = w_j + (b - g_yy w_j) / L,    w_j = z_j + c (z_j - z_{j-1})
    """

    def _steps(self, b: list[Tree], apply: Any) -> tuple[Any, Any]:
        most = jnp.asarray(self.lipschitz)
        root = jnp.sqrt(self.least / most)

        def step(j: Any, carry: Any) -> Any:
            z, before, c = carry
            ahead = tree.axpy(c, tree.sub(z, before), z)
            return tree.axpy(1 / most, b, apply(j, ahead)), z, c

        return (tree.scale(1 / most, b), tree.zeros(b), (1 - root) / (1 + root)), step


@tree.pytree
@dataclass(frozen=True)
class Chebyshev(Accelerated):
    """With t, d = (L +- mu) / 2, r_0 = d / t, r_j = 1 / (2 t / d - r_{j-1}):

    z_1 = b / t,    z_{j+1} = z_j + r_j r_{j-1} (z_j - z_{j-1}) + 2 r_j / d (b - g_yy z_j)
    """

    def _steps(self, b: list[Tree], apply: Any) -> tuple[Any, Any]:
        most = jnp.asarray(self.lipschitz)
        middle, half = (most + self.least) / 2, jnp.maximum((most - self.least) / 2, CLOSE * most)

        def step(j: Any, carry: Any) -> Any:
            z, before, last = carry
            r = 1 / (2 * middle / half - last)
            left = tree.axpy(most, tree.sub(apply(j, z), z), b)  # b - g_yy z
            moved = tree.axpy(r * last, tree.sub(z, before), z)
            return tree.axpy(2 * r / half, left, moved), z, r

        return (tree.scale(1 / middle, b), tree.zeros(b), half / middle), step


def nesterov(
    terms: int = TERMS, lipschitz: Number | None = None, mu: Number | None = None
) -> Implicit:
    """Nesterov's method for g_yy z = f_y, every step on rows of its own.

    K = `terms`; L = `lipschitz` bounds the eigenvalues of every sampled g_yy, mu those of g_yy from
    below. If None, each agent learns its own L while it runs, and mu is what K terms reach,
    4 L / K^2. Leaves out at most (1 + K sqrt(mu / L)) (1 - sqrt(mu / L))^K of the
    inverse. Of sampled rows it gathers less noise than `chebyshev`.
    """
    return _made(Nesterov, terms, lipschitz, mu)


def chebyshev(
    terms: int = TERMS, lipschitz: Number | None = None, mu: Number | None = None
) -> Implicit:
    """Chebyshev's iteration for g_yy z = f_y: no polynomial of the same degree leaves out less.

    That is 1 / T_K((L + mu) / (L - mu)), about 2 ((1 - sqrt(mu / L)) / (1 + sqrt(mu / L)))^K, with
    T_K the Chebyshev polynomial. Numbers as in `nesterov`. An eigenvalue above L grows without
    bound, and noise of sampled rows is magnified: best on all rows (INTERACT), or large batches.
    """
    return _made(Chebyshev, terms, lipschitz, mu)


def _made(
    kind: type[Accelerated], terms: int, lipschitz: Number | None, mu: Number | None
) -> Implicit:
    if whole("terms", terms) < 1:
        raise ValueError(f"terms = {terms}: the chain needs a whole number of terms, 1 or more")
    for name, number in {"lipschitz": lipschitz, "mu": mu}.items():
        if isinstance(number, int | float) and not number > 0:
            raise ValueError(f"{name} = {number} must be positive; None estimates it")
    if isinstance(mu, int | float) and isinstance(lipschitz, int | float) and mu > lipschitz:
        raise ValueError(
            f"mu = {mu} is above lipschitz = {lipschitz}: it is the smaller of the two"
        )
    return Implicit(kind(given(lipschitz), mu, terms))
