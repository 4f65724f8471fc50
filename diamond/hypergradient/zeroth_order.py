"""Hypergradient by differences of gradient steps on the lower level, in random directions of x."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from ..core import pytrees, threefry
from ..core.cost_counter import Cost
from ..core.pytrees import Number, Tree
from ..core.sampling import Sample
from ..core.validation import as_int
from ..problem import Objectives
from .estimator_interface import Hypergradient, PointXY
from .unrolled import descend

PURPOSE = 0x5A4F  # of the directions, apart from the depth of a chain


@pytrees.pytree
@dataclass(frozen=True)
class ZerothOrder(Hypergradient):
    """Estimator f_x(x, y_N(x)) + (1/Q) sum_w w <(y_N(x + mu w) - y_N(x)) / mu, f_y(x, y_N(x))>.

    y_N are gradient steps from y, as in `Unrolled`, and w are Q Gaussian directions, the same for
    all points and agents. All y_N start from the same y and use the same rows.
    """

    rate: Number
    spread: Number  # mu
    steps: int = field(metadata={"static": True})
    directions: int = field(metadata={"static": True})

    @property
    def hessian_batches(self) -> int:
        return self.steps

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        rows, fresh = problem.train.size(sample.chain), problem.train.count_fresh_rows(sample.chain)
        upper, steps = problem.valid.size(sample.upper), self.steps * (1 + self.directions)
        cost = Cost(upper + self.steps * fresh, len(points) * (upper + steps * rows))
        return [self._at(problem, *point, sample) for point in points], cost

    def _at(self, problem: Objectives, x: Tree, y: Tree, sample: Sample) -> Tree:
        solve = lambda x: descend(problem, x, y, sample, self.rate, self.steps)
        near = solve(x)
        f_x, f_y = jax.grad(problem.f, (0, 1))(x, near, sample.upper)
        flat, unflatten = ravel_pytree(x)
        bits = jnp.asarray(sample.bits).astype(jnp.uint32)
        key = threefry.typed((bits, jnp.full_like(bits, PURPOSE)))
        w = jax.random.normal(key, (self.directions, flat.size), flat.dtype)

        def slope(w: jax.Array) -> jax.Array:
            moved = solve(unflatten(flat + self.spread * w))
            return pytrees.dot(pytrees.sub(moved, near), f_y) / self.spread

        slopes = jax.lax.map(slope, w).astype(flat.dtype)
        return pytrees.add(f_x, unflatten(slopes @ w / self.directions))


def zeroth_order(
    steps: int = 10, rate: Number = 0.1, directions: int = 10, spread: Number = 0.1
) -> ZerothOrder:
    """Make an estimator by gradients alone, whose mean is that of `unrolled` for a quadratic g.

    Its noise is of the order of dim(x) / directions.

    Args:
        steps: N, number of gradient steps.
        rate: size of the gradient steps, below 2 / L_g.
        directions: Q, number of random directions of x.
        spread: mu, distance of the points in these directions.

    Returns:
        The estimator.
    """
    if not spread > 0:
        raise ValueError(f"spread = {spread} must be positive, such as 0.1")
    return ZerothOrder(rate, spread, as_int("steps", steps, 1), as_int("directions", directions, 1))
