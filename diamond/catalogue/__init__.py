"""Every method by its name, and the table of them all."""

from .registry import COMPOSED, LEVELS, maker, names, solving
from .table import Row, markdown, row, table

__all__ = ["COMPOSED", "LEVELS", "Row", "maker", "markdown", "names", "row", "solving", "table"]
