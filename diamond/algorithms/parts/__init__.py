"""Building blocks of methods: directions, estimators, moves, and the loop that joins them."""

from . import communication, directions, explicit_matrices, gradient_estimators
from .composed import ComposedAlgorithm, Variable
from .variables import Point

__all__ = [
    "ComposedAlgorithm",
    "Point",
    "Variable",
    "communication",
    "directions",
    "explicit_matrices",
    "gradient_estimators",
]
