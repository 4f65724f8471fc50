"""What every reader returns, and the error every reader raises."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = tuple[NDArray[np.float32], NDArray[Any]]


class DataError(ValueError):
    """Data that cannot be used: the message names the file, the cause and the remedy."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows: features (rows, width) float32, labels (rows,) int32 in 0..q-1.

    `classes[k]` is the name of label k; there is none where the labels are real-valued targets,
    float32. `shape` is the shape of one row before it was flattened, `names` the features' where
    a table has a header, `sites` the site of each training row where a table names one, `places`
    the sites in the order of the agents, `files` what was read.
    """

    name: str
    train: Rows
    test: Rows | None
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    sites: NDArray[np.str_] | None = None
    files: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


def encode(labels: NDArray, known: Sequence | NDArray, path: Path) -> NDArray[np.int32]:
    """Number the labels by their place in the ascending `known`, refusing any other label."""
    order = np.asarray(known)
    code = np.searchsorted(order, labels).clip(max=len(order) - 1)
    wrong = np.flatnonzero(order[code] != labels)
    if wrong.size:
        raise DataError(
            f"{path}, row {wrong[0] + 1}: label {labels[wrong[0]].item()!r} is none of "
            f"{', '.join(str(value) for value in order[:20])}; correct the label"
        )
    return code.astype(np.int32)


def narrow(values: NDArray, path: Path) -> NDArray[np.float32]:
    """Cast to float32, refusing the first value that is not finite there."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(single))
    if len(wrong):
        row, column = wrong[0][0], wrong[0][1:]
        raise DataError(
            f"{path}, row {row + 1}, column {', '.join(str(k + 1) for k in column)}: "
            f"{values[tuple(wrong[0])]} is not finite in float32; correct or drop the row"
        )
    return single
