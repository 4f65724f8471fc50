"""Where an agent stands, and the exchanges that a round is made of."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from ..numbers.open_numbers import Found
from ..rounds.algorithm import Algorithm, State
from .frame import Layout


class Progress(NamedTuple):
    """Where an agent stands: everything its rounds to come depend on."""

    t: int  # rounds made
    state: State
    spent: jax.Array  # its counter of oracle calls
    algorithm: Any  # with the numbers in use
    found: dict[str, Found]  # those of them that were left to the run
    kept: Any = None  # of the messages of those it hears, where these are compressed or late


class Turn(NamedTuple):
    """One exchange of a round: its stage, which one of the round it is (a stage may be taken
    several times), and the stages before it that tell nothing."""

    stage: int
    number: int
    before: tuple[tuple[int, int], ...]


def turns_of(
    algorithm: Algorithm, layouts: Sequence[Layout]
) -> tuple[list[Turn], tuple[tuple[int, int], ...]]:
    """The exchanges of a round, and the stages after the last one."""
    turns: list[Turn] = []
    silent: tuple[tuple[int, int], ...] = ()
    number = 0
    for stage, (each, told) in enumerate(zip(algorithm.stages, layouts)):
        for _ in range(each.times):
            if told:
                turns.append(Turn(stage, number, silent))
                silent = ()
            else:
                silent = (*silent, (stage, number))
            number += 1
    return turns, silent
