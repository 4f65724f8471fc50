"""Location of a data set's files: named folders, then the user's cache."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from .dataset import DataError
from .download import Layout, download


def locate(
    dataset: str, layouts: Sequence[Layout], folder: str | Path | None = None
) -> tuple[Path, ...]:
    """Find one complete layout of a data set, verify its digests, and return its paths in order.

    The folders are searched in this order: `folder`, DIAMOND_DATA, the user's cache; in each,
    ROOT/dataset, then ROOT. If no folder has the files, the first layout, that of the public
    source, is downloaded into the cache, unless DIAMOND_OFFLINE is set.
    """
    searched: list[Path] = []
    for root in named_folders(folder):
        for folder_to_search in (root / dataset, root):
            searched.append(folder_to_search)
            if paths := _find_complete(folder_to_search, layouts):
                return paths
            _refuse_incomplete(folder_to_search, layouts)
    store = cache()
    if store is not None:
        # Incomplete files are no error here: an interrupted download leaves them, and continues.
        for folder_to_search in (store / dataset, store):
            searched.append(folder_to_search)
            if paths := _find_complete(folder_to_search, layouts):
                return paths
    return download(dataset, layouts[0], searched, store)


def named_folders(folder: str | Path | None) -> Iterator[Path]:
    """List the folders that the user named, the argument before the environment."""
    for origin, value in (("folder", folder), ("DIAMOND_DATA", os.environ.get("DIAMOND_DATA"))):
        if value:
            root = Path(value).expanduser()
            if not root.is_dir():
                raise DataError(f"{origin} = {root} is not a folder; name an existing one")
            yield root


def cache() -> Path | None:
    """Return the user's cache of data sets; None if platformdirs is not installed."""
    try:
        import platformdirs
    except ImportError:
        return None
    return Path(platformdirs.user_cache_dir("diamond")) / "data"


def verify(path: Path, digest: str | None) -> None:
    """Refuse a file whose digest differs from the published one."""
    if digest is None:
        return
    kind, _, expected = digest.partition(":")
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, kind).hexdigest()
    if actual != expected:
        raise DataError(
            f"{path}: {kind} is {actual}, not {expected}: the file is damaged or altered; "
            "delete it and fetch it again"
        )


def _find_complete(place: Path, layouts: Sequence[Layout]) -> tuple[Path, ...]:
    for layout in layouts:
        paths = tuple(place / file.name for file in layout)
        if all(path.is_file() for path in paths):
            for path, file in zip(paths, layout, strict=True):
                verify(path, file.digest)
            return paths
    return ()


def _refuse_incomplete(place: Path, layouts: Sequence[Layout]) -> None:
    for layout in layouts:
        missing = [file.name for file in layout if not (place / file.name).is_file()]
        if len(missing) < len(layout):
            raise DataError(
                f"{place}: {', '.join(missing)} missing among the files of the dataset; "
                "add what is missing or remove the rest"
            )
