"""Rounds in which a run is measured: periodic or given, plus the start and the end."""

from collections.abc import Sequence

Every = int | Sequence[int]
EVALUATIONS = 40  # of a run, at least, if the caller does not say when


def default_every(rounds: int) -> int:
    """Return the rounds between evaluations of a run of so many rounds."""
    return max(1, rounds // EVALUATIONS)


def next_evaluation(every: Every, t: int, rounds: int) -> int:
    """Return the first evaluation after round t."""
    if isinstance(every, int):
        return min(rounds, t - t % every + every)
    return min([rounds, *(round for round in every if round > t)])


def is_evaluation(every: Every, t: int, rounds: int) -> bool:
    """Return whether the run is measured after t rounds."""
    return t in (0, rounds) or (t % every == 0 if isinstance(every, int) else t in every)


def evaluation_rounds(every: Every, rounds: int) -> set[int]:
    """Return all rounds in which the run is measured."""
    between = range(every, rounds, every) if isinstance(every, int) else every
    return {0, *(round for round in between if round < rounds), rounds}


def late_rounds(rounds: int, share: float = 0.2, count: int = 5) -> list[int]:
    """Return `count` rounds of the last `share` of a run, including its end."""
    first = rounds * (1 - share)
    return sorted(
        {max(1, round(first + (rounds - first) * k / count)) for k in range(1, count + 1)}
    )


def geometric_rounds(rounds: int, count: int) -> list[int]:
    """Return up to `count` rounds in geometric progression."""
    return sorted({max(1, round(rounds ** (k / (count - 1)))) for k in range(count)})
