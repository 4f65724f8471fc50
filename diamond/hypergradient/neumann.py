"""The inverse Hessian as a truncated Neumann series, sampled (eq. 5) or summed."""

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
from .conditioning import chosen
from .implicit import Implicit, hessian, hessian_product
from .lipschitz import estimated
from .protocol import Point


@tree.pytree
@dataclass(frozen=True)
class Neumann:
    """z = (K / L) prod_{j=1..k} (I - g_yy(zeta_j) / L) b, k uniform on 0..K-1."""

    lipschitz: Any  # L, a number once the run begins
    terms: int = field(metadata={"static": True})  # K

    @property
    def links(self) -> int:
        return self.terms

    def __call__(
        self, problem: Objectives, points: Sequence[Point], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        k = (sample.bits % jnp.uint32(self.terms)).astype(jnp.int32)
        z = jax.lax.fori_loop(0, k, _factor(self.lipschitz, problem, points, sample), b)
        rows = problem.train.size(sample.chain)
        spent = Cost(samples=k * problem.train.fresh(sample.chain), hvps=len(points) * k * rows)
        return [tree.scale(self.terms / self.lipschitz, z) for z in z], spent


@tree.pytree
@dataclass(frozen=True)
class NeumannSum:
    """z = (1 / L) sum_{k=0..K-1} prod_{j=1..k} (I - g_yy(zeta_j) / L) b."""

    lipschitz: Any  # L, a number once the run begins
    terms: int = field(metadata={"static": True})  # K

    @property
    def links(self) -> int:
        return self.terms - 1

    def __call__(
        self, problem: Objectives, points: Sequence[Point], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        factor = _factor(self.lipschitz, problem, points, sample)

        def term(j: Any, carry: Any) -> Any:
            w, z = carry
            w = factor(j, w)
            return w, tree.add(z, w)

        z = b
        if self.links:  # no blocks were drawn for a chain of one term
            _, z = jax.lax.fori_loop(0, self.links, term, (b, b))
        rows, fresh = problem.train.size(sample.chain), problem.train.fresh(sample.chain)
        spent = Cost(samples=self.links * fresh, hvps=len(points) * self.links * rows)
        return [tree.scale(1 / self.lipschitz, z) for z in z], spent


def _factor(lipschitz: Number, problem: Objectives, points: Sequence[Point], sample: Sample) -> Any:
    """(j, w at every point) -> (I - g_yy(zeta_{j+1}) / L) w at every point."""
    points = [(problem.seen(x), y) for x, y in points]  # rounded once, not in every factor
    if sample.chain is None:
        products = [hessian(problem, point, None) for point in points]
        apply = lambda where, i, w: products[i](w)
    else:
        apply = lambda where, i, w: hessian_product(problem, points[i], where, w)

    def factor(j: Any, ws: list[Tree]) -> list[Tree]:
        where = None if sample.chain is None else problem.train.at(sample.chain[j])
        return [tree.axpy(-1 / lipschitz, apply(where, i, w), w) for i, w in enumerate(ws)]

    return factor


def neumann(terms: int | None = None, lipschitz: Number | None = None) -> Implicit:
    """Eq. (5): a product of random depth, unbiased for the sum of `terms` terms.

    K = `terms`; L = `lipschitz` must bound the eigenvalues of every sampled g_yy. If None, both are
    found from the data: L by each agent for itself, as `diamond.hypergradient.lipschitz` does for
    all, K the first of 4, 8, 16, 32 with (1 - mu / L)^K < 0.05 for every agent (or 32). Bias at
    most (C_gxy C_fy / mu) (1 - mu / L)^K (Lemma 3); its variance grows with K. A round costs k
    Hessian-products a point, (K - 1) / 2 on average.
    """
    return Implicit(Neumann(given(lipschitz), at_least_one(terms)))


def neumann_sum(terms: int | None = None, lipschitz: Number | None = None) -> Implicit:
    """The whole sum, every term on rows of its own: the mean of eq. (5) over the depth.

    The bias of `neumann` and less variance, for K - 1 Hessian-products a point.
    """
    return Implicit(NeumannSum(given(lipschitz), at_least_one(terms)))


def given(lipschitz: Number | None) -> Any:
    if isinstance(lipschitz, int | float) and not lipschitz > 0:
        raise ValueError(f"lipschitz = {lipschitz} must be positive; None estimates it")
    return estimated if lipschitz is None else lipschitz


def at_least_one(terms: int | None) -> Any:
    if terms is None:
        return chosen
    if whole("terms", terms) < 1:
        raise ValueError(f"terms = {terms}: the series needs a whole number of terms, 1 or more")
    return terms
