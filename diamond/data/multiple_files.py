"""Joining of several files into one data set: each file is a site."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from .dataset import DataError, Dataset


def join_files(datasets: Sequence[Dataset], sites: Sequence[str] | None = None) -> Dataset:
    """Join the rows of all files; the site of a row is the name of its file.

    All files need the same features; classes are those of all files. `sites` replaces the names of
    the sites, which are in the order of the files.
    """
    first = datasets[0]
    sites = tuple(sites or site_names([dataset.files[0] for dataset in datasets]))
    for site, dataset in zip(sites[1:], datasets[1:]):
        _check_same_features(first, dataset, f"site {site}: ")
    classes = _all_classes([dataset.classes for dataset in datasets])
    labels = [_recode_labels(dataset, classes) for dataset in datasets]
    return Dataset(
        name=f"{first.name} and {len(datasets) - 1} more" if len(datasets) > 1 else first.name,
        train=(np.concatenate([dataset.train[0] for dataset in datasets]), np.concatenate(labels)),
        test=None,
        classes=classes,
        shape=first.shape,
        sites=np.repeat(np.array(sites), [len(site_labels) for site_labels in labels]),
        files=tuple(path for dataset in datasets for path in dataset.files),
        names=first.names,
        columns=first.columns,
        places=sites,
        missing=tuple(
            cells._replace(site=site)
            for site, dataset in zip(sites, datasets)
            for cells in dataset.missing
        ),
    )


def align_classes(
    datasets: Sequence[Dataset], labels: Sequence[str] | None = None
) -> list[Dataset]:
    """Give data sets with the same features, such as training and validation, equal classes.

    The classes are those of all data sets, or `labels` in their order.
    """
    for dataset in datasets[1:]:
        _check_same_features(datasets[0], dataset, "")
    if not datasets[0].classes:
        return list(datasets)
    classes = (
        _all_classes([dataset.classes for dataset in datasets]) if labels is None else tuple(labels)
    )
    for dataset in datasets:
        for label in (name for name in dataset.classes if name not in classes):
            place = next(
                (p for p in dataset.places if _has_label(dataset, p, label)), dataset.files[0]
            )
            raise DataError(
                f"{place}: label {label!r} is none of {', '.join(classes)}; correct it, or add it "
                f"to labels"
            )
    return [
        replace(
            dataset, train=(dataset.train[0], _recode_labels(dataset, classes)), classes=classes
        )
        for dataset in datasets
    ]


def _has_label(dataset: Dataset, site: str, label: str) -> bool:
    """Return whether `site` has a row with this label."""
    assert dataset.sites is not None
    return bool(np.any(dataset.train[1][dataset.sites == site] == dataset.classes.index(label)))


def _check_same_features(first: Dataset, other: Dataset, prefix: str) -> None:
    if (other.names, other.shape) != (first.names, first.shape):
        raise DataError(
            f"{prefix}{other.files[0]} has the features {_describe_features(other)}, "
            f"{first.files[0]} has {_describe_features(first)}; give every file the same, in the "
            f"same order, or name those to use by features"
        )


def site_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the file names without endings, with folders if names repeat."""
    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        names = [f"{path.parent.name}/{path.stem}" for path in paths]
    if len(set(names)) < len(names):
        repeated = next(path for path, name in zip(paths, names) if names.count(name) > 1)
        raise DataError(f"{repeated} is there twice; name every file once")
    return tuple(names)


def _describe_features(dataset: Dataset) -> str:
    return ", ".join(dataset.names) if dataset.names else f"of shape {dataset.shape}"


def _all_classes(classes_of_files: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels of all files in ascending order, numeric if all are numbers."""
    labels = {name for classes in classes_of_files for name in classes}
    try:
        return tuple(sorted(labels, key=int))
    except ValueError:
        return tuple(sorted(labels))


def _recode_labels(dataset: Dataset, classes: tuple[str, ...]) -> np.ndarray:
    """Re-encode the labels by their index in `classes`; real-valued targets stay."""
    if not dataset.classes:
        return dataset.train[1]
    codes = np.array([classes.index(name) for name in dataset.classes], np.int32)
    return codes[dataset.train[1]]
