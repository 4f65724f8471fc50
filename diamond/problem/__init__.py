"""Bilevel problems: the losses, the starting point and the rows of every agent."""

from .bilevel_problem import LARGE, Agents, LowerLevel, Problem
from .stored_rows import Loss, Objectives, Rows, to_bfloat16
from .stream import Stream, stream

__all__ = [
    "LARGE",
    "Agents",
    "Loss",
    "LowerLevel",
    "Objectives",
    "Problem",
    "Rows",
    "Stream",
    "stream",
    "to_bfloat16",
]
