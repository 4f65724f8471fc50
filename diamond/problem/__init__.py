"""What the agents solve, with the rows that each of them has."""

from .problem import Agents, LowerLevel, Problem
from .rows import Loss, Objectives, Rows, halved
from .stream import Stream, stream

__all__ = [
    "Agents",
    "Loss",
    "LowerLevel",
    "Objectives",
    "Problem",
    "Rows",
    "Stream",
    "halved",
    "stream",
]
