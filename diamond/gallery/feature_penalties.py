"""Penalties per feature as hyper-parameters: squared weights, or an elastic net."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..problem import Problem
from ..problem.prediction import Predict

Penalty = Literal["l2", "elastic_net"]
START = 0.1  # first penalty of a standardized feature, where penalties have bounds
RANGE = float(np.log(1e4))  # penalties are between START / 10,000 and START * 10,000
Penalties = Literal["feature", "shared"] | dict[str, str | int] | list[str | int]


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


@dataclass(frozen=True)  # equal objects share compiled programs
class GroupedPenalties:
    """`loss` as a function of one log-penalty per group; groups[r] is the group of feature r."""

    loss: PenalizedLoss
    groups: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries of x."""
        return (max(self.groups) + 1) * (1 if self.loss.smoothing is None else 2)

    def log_penalties(self, penalty: float, coefficients: float) -> np.ndarray:
        """Return x of one penalty for all features: 1/2 penalty w^2, and penalty |w|.

        `PenalizedLoss` has the means of squares and absolute values over the coefficients.
        """
        x = np.full(self.size, np.log(penalty * coefficients))
        x[: max(self.groups) + 1] -= np.log(2)
        return x

    def by_feature(self, x: Any) -> Any:
        """Return the log-penalties of the features: of squares, then of absolute values."""
        groups = np.array(self.groups)
        shift = max(self.groups) + 1
        return x[groups if self.loss.smoothing is None else np.append(groups, groups + shift)]

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        return self.loss(self.by_feature(x), y, rows)


@dataclass(frozen=True)
class BoundedPenalties:
    """`loss` as a function of any x, whose log-penalties are start + range tanh(x / range).

    Without bounds, penalties of noise grow for ever, and those of separable classes fall for ever.
    """

    loss: GroupedPenalties
    coefficients: float

    def log_penalties(self, x: Any) -> Any:
        """Return the log-penalties of x."""
        start = self.loss.log_penalties(START, self.coefficients)
        return start + RANGE * jnp.tanh(x / RANGE)

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        return self.loss(self.log_penalties(x), y, rows)


class FeatureGroups(NamedTuple):
    """Groups of features that have one penalty each."""

    groups: tuple[int, ...]  # number of the group of each feature
    labels: tuple[str, ...]  # of the groups


def group_features(
    penalties: str | Mapping[Any, Any] | Sequence[Any], names: Sequence[Any], size: int
) -> FeatureGroups:
    """Return the groups of features with one penalty each.

    Args:
        penalties: "feature", "shared", a label per feature, or a mapping from names of features
            to labels. Features that the mapping does not name have penalties of their own.
        names: names of the features, or their numbers.
        size: number of columns; columns without a name are 0, and any penalty will do.
    """
    keys: list[Any] = [(False, name) for name in names]
    if isinstance(penalties, str):
        if penalties not in ("feature", "shared"):
            raise ValueError(
                f"penalties = {penalties!r}; give 'feature', 'shared', or labels of the features"
            )
        keys = keys if penalties == "feature" else [(True, "all features")] * len(names)
    elif isinstance(penalties, Mapping):
        if unknown := [name for name in penalties if name not in {*names}]:
            raise ValueError(
                f"penalties has a label for {unknown[0]!r}, which is no feature; the features "
                f"are {', '.join(map(str, names[:10]))}{', ...' * (len(names) > 10)}"
            )
        keys = [(True, penalties[name]) if name in penalties else (False, name) for name in names]
    else:
        keys = [(True, label) for label in np.asarray(penalties).tolist()]
        if len(keys) != len(names):
            raise ValueError(
                f"penalties has {len(keys)} labels for {len(names)} features; give one each"
            )
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    groups = tuple(numbers[key] for key in keys)
    if len(numbers) == len(names) > 1:
        groups = (*range(size),)
    return FeatureGroups(groups + (0,) * (size - len(groups)), tuple(str(k[1]) for k in numbers))


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
    penalties: Penalties = "feature",
    bounded: bool = False,
    unit: float = 1.0,
    constant: float | None = None,
    lower_loss: Callable[..., jax.Array] | None = None,
    weights: Callable[[Tree], jax.Array] = itemgetter("w"),
    predict: Predict,
) -> Problem:
    """Make a problem with f_i = loss on validation rows, g_i = loss on training rows + penalties.

    x are the log-penalties of the features or their groups, starting at `start`; y_i starts at
    `first_y()`. The penalties apply to `weights(y)`. `bounded` log-penalties are those of
    `BoundedPenalties`, where `unit` is the loss in units of 1/2 w^2. `lower_loss` replaces the loss
    of g_i.
    """
    if penalty not in ("l2", "elastic_net"):
        raise ValueError(f"penalty = {penalty!r}; there are 'l2' and 'elastic_net'")
    if not 0 < smoothing < float("inf"):
        raise ValueError(f"smoothing = {smoothing}; give a number above 0, as 0.01")
    is_elastic_net = penalty == "elastic_net"
    shape = np.shape(weights(first_y()))
    features = range(shape[0]) if names is None else [*names]
    groups, labels = group_features(penalties, features, shape[0])
    lower: Any = PenalizedLoss(lower_loss or loss, weights, smoothing if is_elastic_net else None)
    if bounded or len(labels) < shape[0]:
        lower = GroupedPenalties(lower, groups)
    if bounded:
        lower, start = BoundedPenalties(lower, unit * np.prod(shape)), 0.0
    x_names: Sequence[str] | None = labels if names is not None or penalties != "feature" else None
    if x_names is not None and is_elastic_net:
        x_names = [f"{name} {kind}" for kind in ("L2", "L1") for name in x_names]
    size = len(labels) * (2 if is_elastic_net else 1)
    names_and_meaning: dict[str, Any] = {
        "names": x_names,
        "y_names": y_names,
        "x_meaning": "bounded log-penalty" if bounded else "log-penalty",
        "predict": predict,
    }
    init = lambda key: (jnp.full(size, start * 1.0), first_y())
    train, valid, test = rows
    return Problem(
        loss, lower, init, train, valid, test, metrics, constant=constant, **names_and_meaning
    )
