"""Datasets, readers of the user's own files, and partitions over agents."""

from . import partition
from .arrays import npz
from .cifar import cifar10
from .dataset import DataError, Dataset, MissingCells
from .hashed_text import features as hashed
from .hashed_text import lines
from .parquet_files import parquet
from .several_files import alike, joined
from .show import columns, counts, picture, table
from .standard_datasets import a9a, digits, ijcnn1, mnist
from .svmlight import libsvm
from .tables import csv

__all__ = [
    "DataError",
    "Dataset",
    "MissingCells",
    "a9a",
    "alike",
    "cifar10",
    "columns",
    "counts",
    "csv",
    "digits",
    "hashed",
    "ijcnn1",
    "joined",
    "libsvm",
    "lines",
    "mnist",
    "npz",
    "parquet",
    "partition",
    "picture",
    "table",
]
