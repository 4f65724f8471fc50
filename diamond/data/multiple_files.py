"""Joining of several files into one data set: each file is a site."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from .dataset import DataError, Dataset


def joined(found: Sequence[Dataset], places: Sequence[str] | None = None) -> Dataset:
    """Join the rows of all files; the site of a row is the name of its file.

    All files need the same features; classes are those of all files. `places` replaces the names of
    the sites, which are in the order of the files.
    """
    first, places = found[0], tuple(places or called([one.files[0] for one in found]))
    for place, other in zip(places[1:], found[1:]):
        _same_features(first, other, f"site {place}: ")
    classes = _classes([one.classes for one in found])
    recoded = [_recoded(one, classes) for one in found]
    return Dataset(
        name=f"{first.name} and {len(found) - 1} more" if len(found) > 1 else first.name,
        train=(np.concatenate([one.train[0] for one in found]), np.concatenate(recoded)),
        test=None,
        classes=classes,
        shape=first.shape,
        sites=np.repeat(np.array(places), [len(marks) for marks in recoded]),
        files=tuple(path for one in found for path in one.files),
        names=first.names,
        places=places,
        missing=tuple(
            cells._replace(site=place) for place, one in zip(places, found) for cells in one.missing
        ),
    )


def alike(parts: Sequence[Dataset], labels: Sequence[str] | None = None) -> list[Dataset]:
    """Give data sets with the same features, such as training and validation, equal classes.

    The classes are those of all data sets, or `labels` in their order.
    """
    for other in parts[1:]:
        _same_features(parts[0], other, "")
    if not parts[0].classes:
        return list(parts)
    classes = _classes([one.classes for one in parts]) if labels is None else tuple(labels)
    for one in parts:
        for odd in (name for name in one.classes if name not in classes):
            place = next((p for p in one.places if _has(one, p, odd)), one.files[0])
            raise DataError(
                f"{place}: label {odd!r} is none of {', '.join(classes)}; correct it, or add it "
                f"to labels"
            )
    return [
        replace(one, train=(one.train[0], _recoded(one, classes)), classes=classes) for one in parts
    ]


def _has(one: Dataset, place: str, label: str) -> bool:
    """Return whether the site `place` has such a row."""
    assert one.sites is not None
    return bool(np.any(one.train[1][one.sites == place] == one.classes.index(label)))


def _same_features(first: Dataset, other: Dataset, place: str) -> None:
    if (other.names, other.shape) != (first.names, first.shape):
        raise DataError(
            f"{place}{other.files[0]} has the features {_features(other)}, "
            f"{first.files[0]} has {_features(first)}; give every file the same, in the same "
            f"order, or name those to use by features"
        )


def called(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the file names without endings, with folders if names repeat."""
    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        names = [f"{path.parent.name}/{path.stem}" for path in paths]
    if len(set(names)) < len(names):
        twice = next(path for path, name in zip(paths, names) if names.count(name) > 1)
        raise DataError(f"{twice} is there twice; name every file once")
    return tuple(names)


def _features(one: Dataset) -> str:
    return ", ".join(one.names) if one.names else f"of shape {one.shape}"


def _classes(each: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels of all files in ascending order, numeric if all are numbers."""
    known = {name for classes in each for name in classes}
    try:
        return tuple(sorted(known, key=int))
    except ValueError:
        return tuple(sorted(known))


def _recoded(one: Dataset, classes: tuple[str, ...]) -> np.ndarray:
    """Re-encode the labels by their index in `classes`; real-valued targets stay."""
    if not one.classes:
        return one.train[1]
    places = np.array([classes.index(name) for name in one.classes], np.int32)
    return places[one.train[1]]
