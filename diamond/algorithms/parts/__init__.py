"""Building blocks of methods: directions, estimators, moves, and the loop that joins them."""

from . import communication, directions, estimators, explicit_matrices
from .composed import ComposedAlgorithm, Variable
from .variables import Point

__all__ = [
    "ComposedAlgorithm",
    "Point",
    "Variable",
    "communication",
    "directions",
    "estimators",
    "explicit_matrices",
]
