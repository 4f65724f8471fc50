"""Reader of the user's own npz arrays."""

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dataset import DataError, Dataset, encode, to_float32
from .missing_values import (
    REMEDY,
    CellTreatment,
    MissingValues,
    complete_rows,
    fill_sites,
    parse_treatment,
)

# Errors of numpy for files that are not npz (TypeError: a bare npy), damaged, or hold objects.
DAMAGE = (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)


def npz(path: str | Path, real: bool = False, missing_values: MissingValues = "refuse") -> Dataset:
    """Read `features` (rows, ...) and `labels` (rows,) from an npz file.

    The file may also have `test_features`, `test_labels`, and `sites` (rows,), the site of each
    row.

    Args:
        path: File to read.
        real: Treat labels as numbers to regress on.
        missing_values: Treatment of NaN features, as in `csv`.

    Raises:
        DataError: The file cannot be used; the message gives cause and remedy.
    """
    path, treatment = Path(path), parse_treatment(missing_values)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except DAMAGE as cause:
        raise DataError(
            f"{path}: not a whole npz file of plain arrays ({cause}); write it by numpy.savez"
        ) from cause
    expected = {"features", "labels", "test_features", "test_labels", "sites"}
    missing = {"features", "labels"} - set(arrays)
    if (
        missing
        or set(arrays) - expected
        or ("test_features" in arrays) != ("test_labels" in arrays)
    ):
        raise DataError(
            f"{path}: holds {', '.join(sorted(arrays))}; give features and labels, and perhaps "
            "test_features with test_labels, and sites"
        )
    rows, labels = _check_arrays(
        arrays["features"], arrays["labels"], path, real, treatment=treatment
    )
    classes = () if real else np.unique(labels)
    encode_labels = lambda labels: labels if real else encode(labels, classes, path)
    test = None
    if "test_features" in arrays:
        test_rows, test_labels = _check_arrays(
            arrays["test_features"], arrays["test_labels"], path, real, treatment=treatment
        )
        if test_rows.shape[1:] != rows.shape[1:]:
            raise DataError(
                f"{path}: test_features of shape {test_rows.shape[1:]}, features of "
                f"{rows.shape[1:]}; give both the same"
            )
        if (test_labels.dtype.kind == "U") != (labels.dtype.kind == "U"):
            raise DataError(f"{path}: labels and test_labels must both be numbers or both names")
        test = (test_rows.reshape(len(test_rows), -1), encode_labels(test_labels))
    sites = arrays.get("sites")
    if sites is not None and sites.shape != labels.shape:
        raise DataError(
            f"{path}: sites {sites.shape} for {len(labels)} rows; give one site name per row"
        )
    dataset = Dataset(
        name=path.stem,
        train=(rows.reshape(len(rows), -1), encode_labels(labels)),
        test=test,
        classes=tuple(str(value) for value in classes),
        shape=rows.shape[1:],
        sites=None if sites is None else sites.astype(str),
        files=(path,),
        places=() if sites is None else tuple(map(str, np.unique(sites.astype(str)))),
    )
    return _drop_rows(dataset) if treatment.drops else fill_sites(dataset, missing_values)


def _drop_rows(dataset: Dataset) -> Dataset:
    """Return the data set without rows that have missing values."""
    rows, labels = dataset.train
    test = dataset.test
    if test is not None:
        is_known = ~np.isnan(test[0]).any(1)
        test = test[0][is_known], test[1][is_known]
    is_complete, missing = complete_rows(rows, (), dataset.sites, dataset.files[0])
    return replace(
        dataset,
        train=(rows[is_complete], labels[is_complete]),
        test=test,
        sites=None if dataset.sites is None else dataset.sites[is_complete],
        missing=missing,
    )


def _check_arrays(
    rows: NDArray[Any], labels: NDArray[Any], path: Path, real: bool, *, treatment: CellTreatment
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    if rows.ndim < 2 or rows.dtype.kind not in "biuf" or not rows.size:
        raise DataError(
            f"{path}: features {rows.dtype} {rows.shape}; give real numbers, one row an example"
        )
    if labels.shape != (len(rows),) or labels.dtype.kind not in ("biuf" if real else "biuU"):
        expected = "real number" if real else "whole number or name"
        raise DataError(
            f"{path}: labels {labels.dtype} {labels.shape} for {len(rows)} rows; give one "
            f"{expected} a row"
        )
    remedy = f"correct it, or {REMEDY}" if np.isnan(rows).any() else "correct or drop the row"
    features = to_float32(rows, path, treatment.keeps or treatment.drops, remedy)
    return features, to_float32(labels, path) if real else labels
