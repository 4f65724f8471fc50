"""Hypergradient by gradients alone: products replaced by differences of gradients."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Number, Tree
from ..core.sampling import Sample, Where
from ..problem import Objectives
from .estimator_interface import Hypergradient, PointXY
from .neumann import check_terms, given_or_learned_lipschitz


@pytrees.pytree
class HessianFree(Hypergradient):
    """Neumann sum with g_yy w and g_xy w as central differences of g_y and g_x along w."""

    lipschitz: Any
    radius: Number | None  # step relative to 1 + ||y||; None: set by the precision
    terms: int = field(metadata={"static": True})

    @property
    def hessian_batches(self) -> int:
        return self.terms - 1

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        upper, lower = problem.valid.size(sample.upper), problem.train.size(sample.cross)
        fresh = problem.train.count_fresh_rows(sample.cross)
        spent = Cost(  # a difference is two gradients
            samples=upper + self.terms * fresh,
            gradients=len(points) * (upper + 2 * self.terms * lower),
        )
        return [self._estimate_at(problem, point, sample) for point in points], spent

    def _estimate_at(self, problem: Objectives, point: PointXY, sample: Sample) -> Tree:
        f_x, f_y = jax.grad(problem.f, (0, 1))(*point, sample.upper)

        def term(j: Any, carry: Any) -> Any:
            w, z = carry
            hw = self._difference(problem, 1, point, sample.hessian_batch(j), w=w)
            w = pytrees.axpy(-1 / self.lipschitz, hw, w)
            return w, pytrees.add(z, w)

        _, z = jax.lax.fori_loop(0, self.terms - 1, term, (f_y, f_y))
        cross = self._difference(problem, 0, point, sample.cross, w=z)
        return pytrees.axpy(-1 / self.lipschitz, cross, f_x)

    def _difference(
        self, problem: Objectives, block: int, point: PointXY, where: Where, *, w: Tree
    ) -> Tree:
        """Return [grad g(x, y + d w) - grad g(x, y - d w)] / 2d, the gradient in x (0) or y (1)."""
        x, y = point
        size = pytrees.norm(w)
        precision = jnp.finfo(size.dtype)
        radius = float(precision.eps) ** (1 / 3) if self.radius is None else self.radius
        d = radius * (1 + pytrees.norm(y)) / jnp.maximum(size, precision.tiny)
        gradient = jax.grad(problem.g, block)
        ahead, behind = (gradient(x, pytrees.axpy(s * d, w, y), where) for s in (1, -1))
        return pytrees.scale(1 / (2 * d), pytrees.sub(ahead, behind))


def hessian_free(
    terms: int = 10, lipschitz: Number | None = None, radius: Number | None = None
) -> HessianFree:
    """Make `neumann_sum` without second derivatives: 2 gradients for each product.

    Args:
        terms: K, number of terms.
        lipschitz: L, bound on the eigenvalues of every sampled g_yy; None: learned.
        radius: step of the differences relative to 1 + ||y||; by default the cube root of the
            precision of y (5e-3 in float32, 6e-6 in float64), which balances truncation and
            rounding.

    Returns:
        The estimator.
    """
    return HessianFree(given_or_learned_lipschitz(lipschitz), radius, check_terms(terms))
