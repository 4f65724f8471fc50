"""Download of data sets that are not on this machine."""

import importlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from .dataset import DataError

INSTALL = "pip install diamond-bilevel[data]"

# Base addresses of the public files, tried in order.
SOURCES: dict[str, tuple[str, ...]] = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "cifar10": ("https://www.cs.toronto.edu/~kriz/",),
    "a9a": ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/",),
    "ijcnn1": ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/",),
}


@dataclass(frozen=True)
class DataFile:
    """A file of a dataset and its digest, `sha256:...` or `md5:...` (None: none is published)."""

    name: str
    digest: str | None


Layout = tuple[DataFile, ...]


def download(
    dataset: str, layout: Layout, searched: list[Path], store: Path | None
) -> tuple[Path, ...]:
    """Download every file of a layout into the cache; on failure raise one complete message."""
    names = ", ".join(file.name for file in layout)
    where = f"{dataset}: found {names} in none of {', '.join(map(str, searched)) or '(no folder)'}"
    remedy = "put the files in one folder and name it by folder=, --data or DIAMOND_DATA"
    sources = SOURCES[dataset]
    if any(file.digest is None for file in layout):
        raise DataError(
            f"{where}; no digest is published, so it is not downloaded: fetch it from "
            f"{sources[0]} yourself, then {remedy}"
        )
    if os.environ.get("DIAMOND_OFFLINE", "") not in ("", "0"):
        raise DataError(
            f"{where}; DIAMOND_OFFLINE forbids the download from {sources[0]}; {remedy}, "
            "or unset DIAMOND_OFFLINE"
        )
    if store is None or importlib.util.find_spec("pooch") is None:
        raise DataError(
            f"{where}; the download from {sources[0]} needs pooch: {INSTALL}; or {remedy}"
        )
    paths = []
    for file in layout:
        failures: list[str] = []
        for base in sources:
            path = _retrieve(base, file, store / dataset, failures)
            if path is not None:
                paths.append(path)
                break
        else:
            raise DataError(f"{where}; download failed: {'; '.join(failures)}; {remedy}")
    return tuple(paths)


def _retrieve(base: str, file: DataFile, store: Path, failures: list[str]) -> Path | None:
    pooch = importlib.import_module("pooch")
    bar = importlib.util.find_spec("tqdm") is not None
    fetcher = pooch.HTTPDownloader(progressbar=bar, timeout=30)
    try:
        url = base + file.name
        return Path(pooch.retrieve(url, file.digest, file.name, store, downloader=fetcher))
    except (OSError, ValueError) as cause:  # unreachable, refused, or a different digest
        failures.append(f"{base}{file.name} ({type(cause).__name__}: {cause})")
        return None
