"""Hypergradient by differentiation through gradient steps on the lower level (ITD)."""

from collections.abc import Sequence
from dataclasses import field

import jax

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Number, Tree
from ..core.sampling import Sample
from ..core.validation import as_int
from ..problem import Objectives
from .estimator_interface import Hypergradient, PointXY


@pytrees.pytree
class Unrolled(Hypergradient):
    """Gradient in x of f(x, y_N(x)), y_{s+1} = y_s - rate g_y(x, y_s; zeta_s), y_0 = y."""

    rate: Number
    steps: int = field(metadata={"static": True})

    @property
    def hessian_batches(self) -> int:
        return self.steps

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        def value(x: Tree, y: Tree) -> jax.Array:
            return problem.f(x, descend(problem, x, y, sample, self.rate, self.steps), sample.upper)

        # Each step costs one gradient forward, and one product with g_yy and one with g_xy
        # backward.
        rows, fresh = problem.train.size(sample.chain), problem.train.count_fresh_rows(sample.chain)
        upper, steps = problem.valid.size(sample.upper), self.steps * len(points)
        spent = Cost(
            samples=upper + self.steps * fresh,
            gradients=len(points) * upper + steps * rows,
            hvps=steps * rows,
            jvps=steps * rows,
        )
        return [jax.grad(value)(x, y) for x, y in points], spent


def descend(
    problem: Objectives, x: Tree, y: Tree, sample: Sample, rate: Number, steps: int
) -> Tree:
    """Return y after gradient steps on g(x, .), each on its own rows."""

    def step(y: Tree, where: jax.Array | None) -> tuple[Tree, None]:
        return pytrees.axpy(-rate, jax.grad(problem.g, 1)(x, y, where), y), None

    return jax.lax.scan(step, y, sample.chain, length=steps)[0]


def unrolled(steps: int = 10, rate: Number = 0.1) -> Unrolled:
    """Make an estimator by reverse mode through `steps` gradient steps from the current y.

    Exact for f(x, y_N(x)); the bias relative to grad l is of order N (1 - rate mu)^N. Memory grows
    with `steps`.

    Args:
        steps: N, number of gradient steps.
        rate: size of the gradient steps, below 2 / L_g.

    Returns:
        The estimator.
    """
    if as_int("steps", steps) < 1:
        raise ValueError(f"steps = {steps}: unrolling needs at least one gradient step")
    if isinstance(rate, int | float) and not rate > 0:
        raise ValueError(f"rate = {rate} must be positive, and below 2 / L_g")
    return Unrolled(rate, steps)
