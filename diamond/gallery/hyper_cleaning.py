"""Hyper-cleaning: detection of wrong training labels by one weight per row."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import LowerLevel, Problem
from ..problem.prediction import LinearPrediction
from ._labels import check_labels
from .softmax_regression import accuracy, upper, weighted_loss, zeros


@dataclass(frozen=True)  # equal objects share compiled programs
class CleanedLoss:
    """The cross-entropy with weights sigmoid(x_k(r)) of the rows, plus regularizer ||y||^2."""

    regularizer: float

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        return weighted_loss(jax.nn.sigmoid(x[rows["k"]]), y, rows, self.regularizer)


class Cleaning(Problem):
    """A problem that knows which entries of x belong to rows with wrong labels."""

    wrong: np.ndarray  # (numbers in x,) of bool

    def f1(self, x: Any) -> float:
        """Return the F1 score of x, of one agent or the mean of all, in detecting wrong rows."""
        return float(f1(jnp.asarray(x).reshape(-1, self.wrong.size).mean(0), self.wrong))


def hyper_cleaning(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 10,
    corrupted: float = 0.5,
    regularizer: float = 1e-3,
    seed: int = 0,
    lower_level: LowerLevel = "common",
) -> Cleaning:
    """Make a hyper-cleaning problem with partly wrong training labels.

        f_i = cross-entropy on clean validation rows
        g_i = mean_r sigmoid(x_k(r)) cross-entropy(y; r) + regularizer ||y||^2 on training rows

    y = {"w": (p, q), "b": (q,)} is a softmax regression. x is shared: one number for every training
    row of every agent, k(r) counting them agent by agent, starting at 0. g_i uses only the entries
    of agent i's rows.

    Args:
        train, valid, test: rows {"a": features (n, p), "b": labels (n,)} per agent. Training rows
            may have a leaf "k", integers from 0: rows of one source (an annotator, a sensor) then
            share a weight across agents.
        classes: q, number of classes.
        corrupted: share of training rows (or sources) whose labels are changed; 0: none.
        regularizer: weight of ||y||^2.
        seed: seed of the corruption.
        lower_level: "common": one y is fitted to the rows of all, so that a wrong label of one
            agent harms the others, as in SPARKLE (Zhu et al., 2024). "personal": each agent cleans
            its own rows for its own y.

    Returns:
        The problem; its metrics are the accuracy on `test`, and `f1` of detecting wrong rows by
        sigmoid(x) < 1/2.
    """
    train, valid, test = check_labels(train, valid, test, classes=classes)
    train = with_weight_index(train)
    features = np.shape(train[0]["a"])[1]
    train, wrong = corrupt(train, corrupted, classes, seed)

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.zeros(wrong.size), zeros(features, classes)

    metrics: dict[str, Any] = {"accuracy": accuracy}
    if wrong.any():
        metrics["f1"] = lambda x, y, rows: f1(x, wrong)
    lower = CleanedLoss(regularizer)
    options: dict[str, Any] = {"lower_level": lower_level, "predict": LinearPrediction()}
    problem = Cleaning(upper, lower, init, train, valid, test, metrics, **options)
    problem.wrong = wrong
    return problem


def f1(x: jax.Array, wrong: np.ndarray) -> jax.Array:
    """Return 2 hits / (2 hits + misses + false alarms) of predicting `wrong` by x < 0."""
    predicted = x < 0
    hits, errors = jnp.sum(predicted & wrong), jnp.sum(predicted ^ wrong)
    return (2.0 * hits) / jnp.maximum(2 * hits + errors, 1)


def corrupt(
    train: Sequence[Any], share: float, classes: int, seed: int
) -> tuple[list[Any], np.ndarray]:
    """Change the labels for a `share` of the weights; return the rows and which weights.

    The new label of a row is uniform over the other labels.
    """
    if not 0 <= share < 1:
        raise ValueError(f"corrupted = {share}; give the share of wrong rows, 0 to below 1")
    random = np.random.default_rng(as_int("seed", seed, 0))
    count = 1 + max(int(np.max(rows["k"])) for rows in train)
    wrong = np.zeros(count, bool)
    wrong[random.permutation(count)[: round(share * count)]] = True
    corrupted_rows = []
    for rows in train:
        labels = np.asarray(rows["b"])
        other_labels = (labels + random.integers(1, classes, len(labels))) % classes
        corrupted_rows.append(
            rows | {"b": np.where(wrong[rows["k"]], other_labels, labels).astype(labels.dtype)}
        )
    return corrupted_rows, wrong


def with_weight_index(train: Sequence[Any]) -> Sequence[Any]:
    """Return rows with the index of their entry of x: "k"."""
    has_sources = ["k" in rows for rows in train]
    if not any(has_sources):
        ends = np.cumsum([0, *(len(rows["b"]) for rows in train)], dtype=np.int32)
        return [
            rows | {"k": np.arange(*span, dtype=np.int32)}
            for rows, span in zip(train, pairwise(ends))
        ]
    for agent, rows in enumerate(train):
        sources = np.asarray(rows.get("k", ()))
        if sources.shape != np.shape(rows["b"]) or sources.dtype.kind not in "iu":
            raise ValueError(
                f"agent {agent}'s sources k are {sources.dtype}{list(sources.shape)}; give every "
                f"agent one whole number a training row, or none to any"
            )
        if sources.min() < 0:
            raise ValueError(f"agent {agent}'s sources k go below 0; number the sources from 0")
    return train
