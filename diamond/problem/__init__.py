"""Bilevel problems: the losses, the starting point and the rows of every agent."""

from .bilevel_problem import Agents, LowerLevel, Problem
from .stored_rows import Loss, Objectives, Rows, halved
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
