"""Penalties of each feature as hyper-parameters: the squares of its weights, or an elastic net."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from ..core.tree import Tree

Penalty = Literal["l2", "elastic_net"]


def l2(x: jax.Array, w: jax.Array) -> jax.Array:
    """The mean over the weights of exp(x_r) w_rk^2."""
    return jnp.mean(_by_feature(x, w) * w**2)


def elastic_net(x: jax.Array, w: jax.Array, smoothing: float) -> jax.Array:
    """The mean over the weights of exp(x_r) w_rk^2 + exp(x_(p+r)) h(w_rk).

    h(w) = sqrt(w^2 + s^2) - s, s = `smoothing`, is |w| to within s. It has two derivatives, as the
    implicit function theorem needs, which |w| itself has not.
    """
    squares, absolutes = jnp.split(x, 2)
    size = jnp.sqrt(w**2 + smoothing**2) - smoothing
    return l2(squares, w) + jnp.mean(_by_feature(absolutes, w) * size)


def _by_feature(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.exp(x).reshape(-1, *[1] * (w.ndim - 1))


@dataclass(frozen=True)  # equal ones share compiled programs
class ElasticNetLoss:
    """`loss` plus an elastic net of the weights of y."""

    loss: Callable[..., jax.Array]
    weights: Callable[[Tree], jax.Array]
    smoothing: float

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        return self.loss(x, y, rows) + elastic_net(x, self.weights(y), self.smoothing)


def check_options(penalty: str, smoothing: float) -> None:
    """Refuse a penalty that is not known, or a smoothing that is not above 0."""
    if penalty not in ("l2", "elastic_net"):
        raise ValueError(f"penalty = {penalty!r}; there are 'l2' and 'elastic_net'")
    if not 0 < smoothing < float("inf"):
        raise ValueError(f"smoothing = {smoothing}; give a number above 0, as 0.01")


def entry_names(names: Sequence[str] | None, penalty: str) -> Sequence[str] | None:
    """The names of the penalties of features of these names."""
    if names is None or penalty == "l2":
        return names
    return [f"{name} {kind}" for kind in ("L2", "L1") for name in names]
