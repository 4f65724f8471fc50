"""Locations of the available data sets; nothing is read, verified or downloaded."""

from pathlib import Path

from .cifar import ARCHIVE, BATCHES, FOLDER, TILES
from .download import DataFile, Layout
from .fetch import cache, named_folders
from .standard_datasets import A9A, IJCNN1, IJCNN1_COPY, MNIST

LAYOUTS: dict[str, list[Layout]] = {
    "a9a": [A9A],
    "cifar10": [
        ARCHIVE,
        TILES,
        tuple(DataFile(FOLDER + f.name, f.digest) for f in BATCHES),
        BATCHES,
    ],
    "ijcnn1": [IJCNN1, IJCNN1_COPY],
    "mnist": [MNIST],
}


def find_folders(folder: str | Path | None = None) -> dict[str, Path | None]:
    """Find the folder that holds all files of each data set.

    Args:
        folder: Folder to search first; by default the usual locations.

    Returns:
        The folder by name of the data set; None if there is none.
    """
    store = cache()
    roots = [*named_folders(folder), *([store] if store else [])]

    def find(name: str) -> Path | None:
        for candidate in (candidate for root in roots for candidate in (root / name, root)):
            if any(all((candidate / f.name).is_file() for f in layout) for layout in LAYOUTS[name]):
                return candidate
        return None

    return {name: find(name) for name in LAYOUTS}
