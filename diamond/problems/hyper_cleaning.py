"""Hyper-cleaning: find the training rows whose labels are wrong, by one weight a row."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.tree import Tree
from ..core.whole_numbers import whole
from ..problem import LowerLevel, Problem
from ._labels import labelled
from ._softmax_regression import accuracy, upper, weighted, zeros


class Cleaning(Problem):
    """A problem that knows which entries of x stand for rows whose labels were made wrong."""

    wrong: np.ndarray  # (numbers in x,) of bool

    def f1(self, x: Any) -> float:
        """How well x, one agent's or all agents' mean, tells the wrong rows from the others."""
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
    """f_i = cross-entropy on clean validation rows;
    g_i = mean_r sigmoid(x_k(r)) cross-entropy(y; r) + regularizer ||y||^2 on training rows.

    Rows are {"a": features (n, p), "b": labels (n,)}, y = {"w": (p, q), "b": (q,)} is a softmax
    regression. x is shared: one number for every training row of every agent, k(r) counting them
    agent by agent, begun at 0. Agent i's g_i sees those of its own rows alone, so the agents have
    something to solve together where one y is fitted to the rows of all, and a wrong label of one
    spoils it for the others: `lower_level` "common", as in SPARKLE (Zhu et al., 2024). "personal":
    each agent cleans its own rows for its own y. Training rows may have a leaf "k", whole numbers
    from 0: rows of one source (an annotator, a sensor) then share a weight, whoever has them.

    The labels of a share `corrupted` of the training rows, drawn by `seed`, become other ones;
    with sources, all those of that share of the sources. 0 leaves yours. The metrics are the
    accuracy on `test`, and `f1` of finding them: rows with sigmoid(x) < 1/2 are said to be wrong.
    """
    train, valid, test = labelled(train, valid, test, classes=classes)
    train = _numbered(train)
    features = np.shape(train[0]["a"])[1]
    train, wrong = corrupt(train, corrupted, classes, seed)

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.zeros(wrong.size), zeros(features, classes)

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return weighted(jax.nn.sigmoid(x[rows["k"]]), y, rows, regularizer)

    metrics: dict[str, Any] = {"accuracy": accuracy}
    if wrong.any():
        metrics["f1"] = lambda x, y, rows: f1(x, wrong)
    parts = train, valid, test
    problem = Cleaning(upper, lower, init, *parts, metrics, lower_level=lower_level)
    problem.wrong = wrong
    return problem


def f1(x: jax.Array, wrong: np.ndarray) -> jax.Array:
    """2 hits / (2 hits + misses + false alarms) of saying that x < 0 are the `wrong` ones."""
    said = x < 0
    hits, errors = jnp.sum(said & wrong), jnp.sum(said ^ wrong)
    return (2.0 * hits) / jnp.maximum(2 * hits + errors, 1)


def corrupt(
    train: Sequence[Any], share: float, classes: int, seed: int
) -> tuple[list[Any], np.ndarray]:
    """The rows with other labels for a `share` of the weights, and for which.

    The new label of a row is any of the others, all as likely.
    """
    if not 0 <= share < 1:
        raise ValueError(f"corrupted = {share}; give the share of wrong rows, 0 to below 1")
    random = np.random.default_rng(whole("seed", seed, 0))
    count = 1 + max(int(np.max(rows["k"])) for rows in train)
    wrong = np.zeros(count, bool)
    wrong[random.permutation(count)[: round(share * count)]] = True
    found = []
    for rows in train:
        labels = np.asarray(rows["b"])
        moved = (labels + random.integers(1, classes, len(labels))) % classes
        found.append(rows | {"b": np.where(wrong[rows["k"]], moved, labels).astype(labels.dtype)})
    return found, wrong


def _numbered(train: Sequence[Any]) -> Sequence[Any]:
    """Rows that say which number of x is theirs: "k"."""
    given = ["k" in rows for rows in train]
    if not any(given):
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
