"""In which rounds a run is measured: every so many or given ones, and at its start and end."""

from collections.abc import Sequence

Every = int | Sequence[int]


def following(every: Every, t: int, rounds: int) -> int:
    """The first evaluation after t rounds, of a run of so many."""
    if isinstance(every, int):
        return min(rounds, t - t % every + every)
    return min([rounds, *(round for round in every if round > t)])


def due(every: Every, t: int, rounds: int) -> bool:
    """Whether the run is measured after t rounds."""
    return t in (0, rounds) or (t % every == 0 if isinstance(every, int) else t in every)


def marks(every: Every, rounds: int) -> set[int]:
    """All rounds that the run is measured in."""
    between = range(every, rounds, every) if isinstance(every, int) else every
    return {0, *(round for round in between if round < rounds), rounds}


def late(rounds: int, share: float = 0.2, count: int = 5) -> list[int]:
    """`count` rounds of the last `share` of a run, its end among them."""
    first = rounds * (1 - share)
    return sorted(
        {max(1, round(first + (rounds - first) * k / count)) for k in range(1, count + 1)}
    )


def dense_early(rounds: int, count: int) -> list[int]:
    """Up to `count` rounds, each about the same factor after the one before."""
    return sorted({max(1, round(rounds ** (k / (count - 1)))) for k in range(count)})
