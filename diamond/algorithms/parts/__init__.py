"""Building blocks of methods: directions, estimators, moves, and the loop that joins them."""

from . import directions, estimators, matrices, moves
from .loop import Loop, Variable
from .point import Point

__all__ = ["Loop", "Point", "Variable", "directions", "estimators", "matrices", "moves"]
