"""Validation of class labels: integers from 0."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int

PARTS = ("training", "validation", "test")


def check_labels(*parts: Sequence[Tree] | None, classes: int) -> list[Any]:
    """Check that the labels `b` of training, validation and test rows are 0 .. `classes` - 1.

    Labels of another type with integer values become integers.
    """
    as_int("classes", classes, 2)
    check_part = lambda name, part: [
        _check_agent_labels(rows, name, i, classes) for i, rows in enumerate(part)
    ]
    return [part and check_part(name, part) for name, part in zip(PARTS, parts)]


def _check_agent_labels(rows: Any, name: str, agent: int, classes: int) -> Any:
    """Check one agent's rows."""
    labels = np.asarray(rows["b"])
    owner = f"agent {agent}'s {name} labels"
    if labels.dtype.kind not in "biuf" or labels.ndim != 1:
        raise ValueError(
            f"{owner} are {labels.dtype}{list(labels.shape)}; give one whole number a row, "
            f"0 to {classes - 1}"
        )
    is_class = np.isin(labels, np.arange(classes))
    if is_class.all():
        return rows if labels.dtype.kind in "iu" else rows | {"b": labels.astype(np.int32)}
    row = int(np.argmin(is_class))
    raise ValueError(
        f"{owner} have {labels[row].item()} in row {row}, which is none of the classes 0 to "
        f"{classes - 1}; {_remedy(labels, row, classes)}"
    )


def _remedy(labels: np.ndarray, row: int, classes: int) -> str:
    """Return the remedy for the label of `row`."""
    if classes == 2 and set(np.unique(labels).tolist()) <= {-1, 1}:
        return "labels -1 and +1 are to be 0 and 1: give (b + 1) // 2"
    value = labels[row].item()
    if value < 0 or not np.isfinite(value) or value != np.floor(value):
        return "number the classes from 0, by whole numbers"
    return f"correct it, or give classes={int(value) + 1} or more"
