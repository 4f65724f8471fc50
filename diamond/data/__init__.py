"""Datasets, readers of the user's own files, and partitions over agents."""

from . import partition
from .cifar import cifar10
from .csv_files import csv
from .dataset import DataError, Dataset, MissingCells
from .hashed_text import features as hashed
from .hashed_text import lines
from .libsvm_files import libsvm
from .multiple_files import align_classes, join_files
from .npz_files import npz
from .parquet_files import parquet
from .standard_datasets import a9a, digits, ijcnn1, mnist
from .summaries import columns, counts, picture, table
from .table_columns import Column

__all__ = [
    "Column",
    "DataError",
    "Dataset",
    "MissingCells",
    "a9a",
    "align_classes",
    "cifar10",
    "columns",
    "counts",
    "csv",
    "digits",
    "hashed",
    "ijcnn1",
    "join_files",
    "libsvm",
    "lines",
    "mnist",
    "npz",
    "parquet",
    "partition",
    "picture",
    "table",
]
