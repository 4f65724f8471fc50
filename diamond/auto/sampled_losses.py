"""Derivatives of one agent's losses on an agreed sample: always the same first n rows.

Each is a sum over blocks of rows, so that one program serves every n.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core.pytrees import Tree
from ..problem import Objectives
from .curvature_pairs import divide

Vector = jax.Array
Loss = Callable[[Vector, Vector], jax.Array]


class SampledLosses(NamedTuple):
    """f and g of one agent as functions of vectors, averaged over the first rows of each part."""

    problem: Objectives
    to_x: Callable[[Vector], Tree]
    to_y: Callable[[Vector], Tree]
    train_rows: jax.Array  # number of rows in the sample
    valid_rows: jax.Array

    def upper(self, x: Vector, y: Vector) -> tuple[jax.Array, Vector, Vector]:
        """Return f, f_x and f_y."""

        def value_and_gradients(f: Loss) -> tuple[jax.Array, Vector, Vector]:
            value, (f_x, f_y) = jax.value_and_grad(f, (0, 1))(x, y)
            return value, f_x, f_y

        return self._upper(value_and_gradients)

    def upper_product(self, x: Vector, y: Vector, dx: Vector, dy: Vector) -> tuple[Vector, Vector]:
        """Return the product of the Hessian of f and (dx, dy)."""
        return self._upper(lambda f: jax.jvp(jax.grad(f, (0, 1)), (x, y), (dx, dy))[1])

    def lower_gradient(self, x: Vector, y: Vector) -> Vector:
        """Return g_y."""
        return self._lower(lambda g: jax.grad(g, 1)(x, y))

    def product(self, x: Vector, y: Vector, v: Vector) -> Vector:
        """Return g_yy v."""
        return self._lower(lambda g: jax.jvp(lambda y: jax.grad(g, 1)(x, y), (y,), (v,))[1])

    def cross_product(self, x: Vector, y: Vector, z: Vector) -> Vector:
        """Return g_xy z."""
        return self._lower(lambda g: jax.jvp(lambda y: jax.grad(g, 0)(x, y), (y,), (z,))[1])

    def response(self, x: Vector, y: Vector, d: Vector) -> Vector:
        """Return g_yx d."""
        return self._lower(lambda g: jax.jvp(lambda x: jax.grad(g, 1)(x, y), (x,), (d,))[1])

    def _upper(self, derivative: Callable[[Loss], Any]) -> Any:
        return self._sum(self.problem.valid, self.problem.upper, self.valid_rows, derivative)

    def _lower(self, derivative: Callable[[Loss], Any]) -> Any:
        return self._sum(self.problem.train, self.problem.lower, self.train_rows, derivative)

    def _sum(
        self, rows: Any, loss: Any, number: jax.Array, derivative: Callable[[Loss], Any]
    ) -> Any:
        """Return the sum of `derivative` of the losses of all blocks."""

        def block_derivative(k: Any) -> Any:
            block = jax.tree.map(lambda a: a[:, None], rows.rows_at((k * rows.batch) % rows.count))
            is_in_sample = k * rows.batch + jnp.arange(rows.batch) < number

            def value(x: Vector, y: Vector) -> jax.Array:
                x, y = self.problem.in_loss_precision(self.to_x(x)), self.to_y(y)
                losses = jax.vmap(loss, (None, None, 0))(x, y, block)
                shares = divide(jnp.where(is_in_sample, losses, 0), number.astype(losses.dtype))
                return jnp.sum(shares)

            return derivative(value)

        if rows.most_rows <= rows.batch:
            return block_derivative(0)
        shapes = jax.eval_shape(block_derivative, 0)
        zero = 0 * number
        start = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype) + zero.astype(a.dtype), shapes)
        add = lambda k, total: jax.tree.map(jnp.add, total, block_derivative(k))
        return jax.lax.fori_loop(0, -(-number // rows.batch), add, start)
