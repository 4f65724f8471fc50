"""Building blocks of methods: directions, estimators, moves, and the loop that joins them."""

from . import communication, directions, estimators, explicit_matrices
from .composed import Loop, Variable
from .variables import Point

__all__ = [
    "Loop",
    "Point",
    "Variable",
    "communication",
    "directions",
    "estimators",
    "explicit_matrices",
]
