"""Catalogue of all methods, by name and as a table."""

from .methods_table import MethodRow, describe_method, markdown, methods_table
from .registry import COMPOSED, LEVELS, maker, methods_for, methods_without_convexity, names

__all__ = [
    "COMPOSED",
    "LEVELS",
    "MethodRow",
    "describe_method",
    "maker",
    "markdown",
    "methods_for",
    "methods_table",
    "methods_without_convexity",
    "names",
]
