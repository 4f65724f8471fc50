"""Results of methods in the benchmark by kind of problem, which `advise` uses.

`benchmarks/leaderboard.py` writes `standings.json` from the results in docs/results/benchmark/: the
methods of every suite, ordered by the number of cases solved without tuning.
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..catalogue import methods_for

FILE = Path(__file__).parent / "standings.json"


class Standing(NamedTuple):
    """Result of a method in a suite of the benchmark."""

    method: str
    cases: int  # cases that the method was run on
    solved: int  # cases solved with tuning
    untuned: int  # cases solved without tuning
    rank: float  # all-case rank with tuning, by gradients and products


@cache
def standings() -> dict[str, list[Standing]]:
    """Return the standings of every suite, best first."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: [Standing(**row) for row in rows] for name, rows in found.items()}


def suite(level: str, agents: int, kind: str) -> str:
    """Return the suite closest to this lower level, number of agents and kind of network."""
    near = "one-agent" if agents == 1 else "links" if kind != "symmetric" else level
    return near if level == "personal" and near in standings() else level


def leading(level: str, agents: int, kind: str, count: int) -> list[Standing]:
    """Return the best methods of that suite that fit such a problem and network."""
    right = methods_for(level, kind)
    there = standings().get(suite(level, agents, kind), [])
    return [one for one in there if one.method in right][:count]


def said(one: Standing, name: str) -> str:
    """Describe a standing in words."""
    return (
        f"in the benchmark's suite {name} {one.method} solves {one.untuned} of {one.cases} cases "
        f"with the steps it chooses, {one.solved} tuned (docs/results/benchmark.md)"
    )
