"""Locations of the available data sets; nothing is read, verified or downloaded."""

from pathlib import Path

from .cifar import ARCHIVE, BATCHES, FOLDER, TILES
from .download import File, Layout
from .fetch import cache, named
from .standard_datasets import A9A, IJCNN1, IJCNN1_COPY, MNIST

LAYOUTS: dict[str, list[Layout]] = {
    "a9a": [A9A],
    "cifar10": [ARCHIVE, TILES, tuple(File(FOLDER + f.name, f.digest) for f in BATCHES), BATCHES],
    "ijcnn1": [IJCNN1, IJCNN1_COPY],
    "mnist": [MNIST],
}


def where(folder: str | Path | None = None) -> dict[str, Path | None]:
    """Find the folder that holds all files of each data set.

    Args:
        folder: Folder to search first; by default the usual locations.

    Returns:
        The folder by name of the data set; None if there is none.
    """
    store = cache()
    roots = [*named(folder), *([store] if store else [])]

    def found(name: str) -> Path | None:
        for place in (place for root in roots for place in (root / name, root)):
            if any(all((place / f.name).is_file() for f in layout) for layout in LAYOUTS[name]):
                return place
        return None

    return {name: found(name) for name in LAYOUTS}
