"""Penalties per feature as hyper-parameters: squared weights, or an elastic net."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import jax
import jax.numpy as jnp

from ..core.pytrees import Tree
from ..problem import Problem
from ..problem.prediction import Predict

Penalty = Literal["l2", "elastic_net"]


def l2(x: jax.Array, w: jax.Array) -> jax.Array:
    """Return the mean over the weights of exp(x_r) w_rk^2."""
    return jnp.mean(_factors_by_feature(x, w) * w**2)


def elastic_net(x: jax.Array, w: jax.Array, smoothing: float) -> jax.Array:
    """Return the mean over the weights of exp(x_r) w_rk^2 + exp(x_(p+r)) h(w_rk).

    h(w) = sqrt(w^2 + s^2) - s, s = `smoothing`, is |w| to within s. It has the two derivatives that
    the implicit function theorem needs, unlike |w|.
    """
    squares, absolutes = jnp.split(x, 2)
    size = jnp.sqrt(w**2 + smoothing**2) - smoothing
    return l2(squares, w) + jnp.mean(_factors_by_feature(absolutes, w) * size)


def _factors_by_feature(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.exp(x).reshape(-1, *[1] * (w.ndim - 1))


@dataclass(frozen=True)  # equal objects share compiled programs
class PenalizedLoss:
    """`loss` plus the penalties of the weights of y; without a smoothing, only squares."""

    loss: Callable[..., jax.Array]
    weights: Callable[[Tree], jax.Array]
    smoothing: float | None

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        w = self.weights(y)
        penalties = l2(x, w) if self.smoothing is None else elastic_net(x, w, self.smoothing)
        return self.loss(x, y, rows) + penalties


def weight_names(names: Sequence[str] | None, class_names: Sequence[str] | None) -> Any:
    """Return names of weights (features, classes): of the features alone if classes have none."""
    if names is None or class_names is None:
        return names
    return [[f"{name}, {class_name}" for class_name in class_names] for name in names]


def penalized_problem(
    loss: Callable[..., jax.Array],
    first_y: Callable[[], Tree],
    rows: tuple[Any, ...],
    metrics: dict[str, Callable[..., jax.Array]],
    *,
    start: float,
    names: Sequence[str] | None,
    y_names: Any,
    penalty: Penalty = "l2",
    smoothing: float = 0.01,
    constant: float | None = None,
    weights: Callable[[Tree], jax.Array] = itemgetter("w"),
    predict: Predict,
) -> Problem:
    """Make a problem with f_i = loss on validation rows, g_i = loss on training rows + penalties.

    x are the log-penalties of the features, starting at `start`; y_i starts at `first_y()`. The
    penalties apply to `weights(y)`.
    """
    if penalty not in ("l2", "elastic_net"):
        raise ValueError(f"penalty = {penalty!r}; there are 'l2' and 'elastic_net'")
    if not 0 < smoothing < float("inf"):
        raise ValueError(f"smoothing = {smoothing}; give a number above 0, as 0.01")
    is_elastic_net = penalty == "elastic_net"
    lower = PenalizedLoss(loss, weights, smoothing if is_elastic_net else None)
    size = len(weights(first_y())) * (2 if is_elastic_net else 1)
    if names is not None and is_elastic_net:
        names = [f"{name} {kind}" for kind in ("L2", "L1") for name in names]
    names_and_meaning: dict[str, Any] = {
        "names": names,
        "y_names": y_names,
        "x_meaning": "log-penalty",
        "predict": predict,
    }
    init = lambda key: (jnp.full(size, start * 1.0), first_y())
    train, valid, test = rows
    return Problem(
        loss, lower, init, train, valid, test, metrics, constant=constant, **names_and_meaning
    )
