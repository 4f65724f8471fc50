"""Catalogue of all methods, by name and as a table."""

from .methods_table import Row, markdown, row, table
from .registry import COMPOSED, LEVELS, maker, names, solving

__all__ = ["COMPOSED", "LEVELS", "Row", "maker", "markdown", "names", "row", "solving", "table"]
