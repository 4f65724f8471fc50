"""Catalogue of all methods, by name and as a table."""

from .registry import COMPOSED, LEVELS, maker, names, solving
from .table import Row, markdown, row, table

__all__ = ["COMPOSED", "LEVELS", "Row", "maker", "markdown", "names", "row", "solving", "table"]
