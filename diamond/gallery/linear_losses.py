"""Mean losses of linear models: y = {"w": (p,), "b": ()}, or (p, q) and (q,) for q classes.

All are objects or functions of a module, so that fits of tables of the same sizes share programs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..core.pytrees import Tree
from .softmax_regression import cross_entropies

NO_SCORE = -1e9  # of a class that a site does not have: its probability is exactly 0


def squared(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """Return half of the squared errors."""
    return 0.5 * (scores - targets) ** 2


def logistic(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the negative log-likelihoods of labels 0 and 1."""
    return jax.nn.softplus(scores) - labels * scores


def poisson(scores: jax.Array, counts: jax.Array) -> jax.Array:
    """Return half of the Poisson deviances with a log link, up to terms of the counts."""
    return jnp.exp(scores) - counts * scores


@dataclass(frozen=True)
class Quantile:
    """The pinball loss of a quantile, with its kink rounded over a width of `smoothing`.

    r max(level, ...) becomes level r + s log(1 + exp(-r / s)), which has the two derivatives that
    the hypergradient needs.
    """

    level: float
    smoothing: float

    def __call__(self, scores: jax.Array, targets: jax.Array) -> jax.Array:
        r = targets - scores
        return self.level * r + self.smoothing * jax.nn.softplus(-r / self.smoothing)


@dataclass(frozen=True)
class LinearLoss:
    """The weighted mean of `row_loss` of the scores a w + b and the targets b of the rows."""

    row_loss: Callable[[jax.Array, jax.Array], jax.Array]

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        losses = self.row_loss(rows["a"] @ y["w"] + y["b"], rows["b"])
        return jnp.mean(rows["weight"] * losses)


def wrong_probability(x: Tree, y: Tree, rows: Any) -> jax.Array:
    """Return the mean probability of another class than that of the row.

    Unlike the cross-entropy it is bounded, so that rows with wrong labels count little
    (Ghosh, Kumar and Sastry, 2017).
    """
    return jnp.mean(-jnp.expm1(-cross_entropies(y, rows)))


def multinomial(x: Tree, y: Tree, rows: Any) -> jax.Array:
    """Return the weighted mean cross-entropy over the classes of a site, marked in the leaf "m".

    Adding a number to all intercepts changes no probability, and no row determines the intercept of
    an absent class. Squares of both, which are 0 at the minimum, make the minimizer unique.
    """
    scores, has = rows["a"] @ y["w"] + y["b"], rows["m"]
    log_shares = jax.nn.log_softmax(jnp.where(has, scores, NO_SCORE))
    losses = -jnp.take_along_axis(log_shares, rows["b"][:, None], 1)[:, 0]
    mean = jnp.sum(jnp.where(has, y["b"], 0), 1) / jnp.sum(has, 1)
    absent = jnp.sum(jnp.where(has, 0, y["b"]) ** 2, 1)
    return jnp.mean(rows["weight"] * (losses + 0.5 * (mean**2 + absent)))


def partial_likelihood(x: Tree, y: Tree, tables: Any) -> jax.Array:
    """Return the mean over tables of Breslow's negative log partial likelihood per row.

    A row of `tables` is a whole table (`diamond.estimators.survival.order_by_time`): its rows are
    in descending time, and those at risk at row r are rows 0 to last_r. The square of the
    intercept, which no likelihood has, makes the minimizer unique.
    """

    def loss(table: Any) -> jax.Array:
        scores = table["a"] @ y["w"]
        largest = jax.lax.stop_gradient(jnp.max(scores))
        # jax.lax.cumlogsumexp takes nine times as long to compile.
        hazards = table["at_risk"] * jnp.exp(scores - largest)
        sums = jnp.cumsum(hazards) + jnp.finfo(scores.dtype).tiny
        at_risk = largest + jnp.log(sums)[table["last"]]
        return jnp.sum(table["weight"] * (at_risk - scores))

    return jnp.mean(jax.vmap(loss)(tables)) + 0.5 * y["b"] ** 2
