"""Reader of the user's own npz arrays."""

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .dataset import DataError, Dataset, encode, narrow
from .missing_values import REMEDY, MissingValues, Reading, complete_rows, fill_sites, parse_rule

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

    Returns:
        The data set.

    Raises:
        DataError: The file cannot be used; the message gives cause and remedy.
    """
    path, rule = Path(path), parse_rule(missing_values)
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
    rows, marks = _checked(arrays["features"], arrays["labels"], path, real, rule)
    known = () if real else np.unique(marks)
    coded = lambda marks: marks if real else encode(marks, known, path)
    test = None
    if "test_features" in arrays:
        given = arrays["test_features"], arrays["test_labels"]
        rest, rest_marks = _checked(*given, path, real, rule)
        if rest.shape[1:] != rows.shape[1:]:
            raise DataError(
                f"{path}: test_features of shape {rest.shape[1:]}, features of {rows.shape[1:]}; "
                "give both the same"
            )
        if (rest_marks.dtype.kind == "U") != (marks.dtype.kind == "U"):
            raise DataError(f"{path}: labels and test_labels must both be numbers or both names")
        test = (rest.reshape(len(rest), -1), coded(rest_marks))
    sites = arrays.get("sites")
    if sites is not None and sites.shape != marks.shape:
        raise DataError(f"{path}: sites {sites.shape} for {len(marks)} rows; name one a row")
    found = Dataset(
        name=path.stem,
        train=(rows.reshape(len(rows), -1), coded(marks)),
        test=test,
        classes=tuple(str(value) for value in known),
        shape=rows.shape[1:],
        sites=None if sites is None else sites.astype(str),
        files=(path,),
        places=() if sites is None else tuple(map(str, np.unique(sites.astype(str)))),
    )
    return _drop_rows(found) if rule.drops else fill_sites(found, missing_values)


def _drop_rows(found: Dataset) -> Dataset:
    """Return the data set without rows that have missing values."""
    rows, marks = found.train
    test = found.test
    if test is not None:
        known = ~np.isnan(test[0]).any(1)
        test = test[0][known], test[1][known]
    whole, missing = complete_rows(rows, (), found.sites, found.files[0])
    return replace(
        found,
        train=(rows[whole], marks[whole]),
        test=test,
        sites=None if found.sites is None else found.sites[whole],
        missing=missing,
    )


def _checked(
    rows: NDArray, marks: NDArray, path: Path, real: bool, rule: Reading
) -> tuple[NDArray[np.float32], NDArray]:
    if rows.ndim < 2 or rows.dtype.kind not in "biuf" or not rows.size:
        raise DataError(
            f"{path}: features {rows.dtype} {rows.shape}; give real numbers, one row an example"
        )
    if marks.shape != (len(rows),) or marks.dtype.kind not in ("biuf" if real else "biuU"):
        one = "real number" if real else "whole number or name"
        raise DataError(
            f"{path}: labels {marks.dtype} {marks.shape} for {len(rows)} rows; give one {one} a row"
        )
    remedy = f"correct it, or {REMEDY}" if np.isnan(rows).any() else "correct or drop the row"
    found = narrow(rows, path, rule.keeps or rule.drops, remedy)
    return found, narrow(marks, path) if real else marks
