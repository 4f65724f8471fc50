"""Results of methods in the benchmark by kind of problem, which `advise` uses.

`benchmarks/leaderboard.py` writes `standings.json` from the results in docs/results/benchmark/: the
methods of every suite, ordered by the number of cases solved without tuning.
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..catalogue import methods_for

STANDINGS_FILE = Path(__file__).parent / "standings.json"


class Standing(NamedTuple):
    """Result of a method in a suite of the benchmark."""

    method: str
    cases: int  # cases that the method was run on
    solved: int  # cases solved with tuning
    untuned: int  # cases solved without tuning
    rank: float  # all-case rank with tuning, by gradients and products


@cache
def load_standings() -> dict[str, list[Standing]]:
    """Return the standings of every suite, best first."""
    content = json.loads(STANDINGS_FILE.read_text(encoding="utf-8"))
    return {name: [Standing(**row) for row in rows] for name, rows in content.items()}


def closest_suite(level: str, agents: int, kind: str) -> str:
    """Return the suite closest to this lower level, number of agents and kind of network."""
    candidate = "one-agent" if agents == 1 else "links" if kind != "symmetric" else level
    return candidate if level == "personal" and candidate in load_standings() else level


def leading_methods(level: str, agents: int, kind: str, count: int) -> list[Standing]:
    """Return the best methods of that suite that fit such a problem and network."""
    suitable = methods_for(level, kind)
    suite_standings = load_standings().get(closest_suite(level, agents, kind), [])
    return [standing for standing in suite_standings if standing.method in suitable][:count]


def describe_standing(standing: Standing, suite: str) -> str:
    """Describe a standing in words."""
    return (
        f"in the benchmark's suite {suite} {standing.method} solves {standing.untuned} of "
        f"{standing.cases} cases with the steps it chooses, {standing.solved} tuned "
        f"(docs/results/benchmark.md)"
    )
