"""Inverse Hessian as a truncated Neumann series, sampled (eq. 5) or summed."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Number, Tree
from ..core.sampling import Sample
from ..core.validation import as_int
from ..problem import Objectives
from ..schedules.deferred import Deferred, ResolutionContext, ResolvedValue
from ..schedules.learned import Learned
from .estimator_interface import LinearSolve, PointXY
from .implicit_estimator import ImplicitHypergradient, hessian, hessian_product

TERMS = 32  # default K


@pytrees.pytree
class Neumann(LinearSolve):
    """Solver z = (K / L) prod_{j=1..k} (I - g_yy(zeta_j) / L) b, k uniform on 0..K-1.

    On all rows it is the whole sum, the mean over k.
    """

    lipschitz: Any  # L, a number once the run begins
    terms: int = field(metadata={"static": True})  # K
    shift: Any = None  # shift of k as a share of K; None: all agents have the same k

    @property
    def hessian_batches(self) -> int:
        return self.terms

    @property
    def depth(self) -> str:
        """The argument `depth` of `neumann`."""
        return "common" if self.shift is None else "own"

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        if sample.chain is None:
            return NeumannSum(self.lipschitz, self.terms)(problem, points, b, sample)
        bits = sample.bits % jnp.uint32(self.terms)
        if self.shift is not None:
            offset = jnp.floor(self.shift * self.terms + 1e-3).astype(jnp.uint32)
            bits = (bits + offset) % jnp.uint32(self.terms)
        k = bits.astype(jnp.int32)
        z = jax.lax.fori_loop(0, k, make_factor(self.lipschitz, problem, points, sample), b)
        rows = problem.train.size(sample.chain)
        spent = Cost(
            samples=k * problem.train.count_fresh_rows(sample.chain), hvps=len(points) * k * rows
        )
        return [pytrees.scale(self.terms / self.lipschitz, z) for z in z], spent


@pytrees.pytree
class NeumannSum(LinearSolve):
    """Solver z = (1 / L) sum_{k=0..K-1} prod_{j=1..k} (I - g_yy(zeta_j) / L) b."""

    lipschitz: Any  # L, a number once the run begins
    terms: int = field(metadata={"static": True})  # K

    @property
    def hessian_batches(self) -> int:
        return self.terms - 1

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        factor = make_factor(self.lipschitz, problem, points, sample)

        def term(j: Any, carry: Any) -> Any:
            w, z = carry
            w = factor(j, w)
            return w, pytrees.add(z, w)

        z = b
        if self.hessian_batches:  # a chain of one term has no drawn blocks
            _, z = jax.lax.fori_loop(0, self.hessian_batches, term, (b, b))
        rows, fresh = problem.train.size(sample.chain), problem.train.count_fresh_rows(sample.chain)
        spent = Cost(
            samples=self.hessian_batches * fresh, hvps=len(points) * self.hessian_batches * rows
        )
        return [pytrees.scale(1 / self.lipschitz, z) for z in z], spent


def make_factor(
    lipschitz: Number, problem: Objectives, points: Sequence[PointXY], sample: Sample
) -> Any:
    """Return (j, w at every point) -> (I - g_yy(zeta_{j+1}) / L) w at every point."""
    points = [
        (problem.in_loss_precision(x), y) for x, y in points
    ]  # rounded once, not in every factor
    if sample.chain is None:
        products = [hessian(problem, point, None) for point in points]
        apply = lambda where, i, w: products[i](w)
    else:
        apply = lambda where, i, w: hessian_product(problem, points[i], where, w)

    def factor(j: Any, ws: list[Tree]) -> list[Tree]:
        where = None if sample.chain is None else problem.train.draw_batch(sample.chain[j])
        return [pytrees.axpy(-1 / lipschitz, apply(where, i, w), w) for i, w in enumerate(ws)]

    return factor


def neumann(
    terms: int | None = None,
    lipschitz: Number | None = None,
    depth: Literal["common", "own"] = "common",
) -> ImplicitHypergradient:
    """Make the estimator of eq. (5): a product of random depth, unbiased for the sum.

    The bias is at most (C_gxy C_fy / mu) (1 - mu / L)^K (Lemma 3); the variance grows with K. A
    round costs k Hessian-vector products per point, (K - 1) / 2 on average. On all rows it is the
    whole sum.

    Args:
        terms: K, number of terms; default 32.
        lipschitz: L, bound on the eigenvalues of every sampled g_yy; None: each agent learns its
            own during the run.
        depth: "common", as in the paper: all agents have the same k in a round, so that its noise
            does not average out over the agents. "own": agent i of m has (k + floor(i K / m)) mod
            K, each uniform, spread evenly over the network; agents computed in parallel wait for
            the deepest.

    Returns:
        The estimator.
    """
    if depth not in ("common", "own"):
        raise ValueError(f"depth = {depth!r}; there are 'common' and 'own'")
    shift = Deferred("_spread", _depth_shift) if depth == "own" else None
    return ImplicitHypergradient(
        Neumann(given_or_learned_lipschitz(lipschitz), check_terms(terms), shift)
    )


def _depth_shift(context: ResolutionContext) -> ResolvedValue:
    """Return i / m for agent i."""
    return ResolvedValue(np.asarray(context.agent_indices) / context.agents, lasting=True)


def neumann_sum(terms: int | None = None, lipschitz: Number | None = None) -> ImplicitHypergradient:
    """Make an estimator with the whole sum, every term on its own rows.

    It is the mean of eq. (5) over the depth: the bias of `neumann` with less variance, for K - 1
    Hessian-vector products per point. Arguments as in `neumann`.
    """
    return ImplicitHypergradient(
        NeumannSum(given_or_learned_lipschitz(lipschitz), check_terms(terms))
    )


def given_or_learned_lipschitz(lipschitz: Number | None) -> Any:
    if isinstance(lipschitz, int | float) and not lipschitz > 0:
        raise ValueError(f"lipschitz = {lipschitz} must be positive; None estimates it")
    return Learned("lipschitz") if lipschitz is None else lipschitz


def check_terms(terms: int | None) -> Any:
    if terms is None:
        return TERMS
    if as_int("terms", terms) < 1:
        raise ValueError(f"terms = {terms}: the series needs a whole number of terms, 1 or more")
    return terms
