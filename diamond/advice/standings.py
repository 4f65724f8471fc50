"""How methods do in the benchmark, by the kind of problem: what `advise` follows.

`standings.json` is written by `benchmarks/leaderboard.py` from the results in docs/benchmark/: the
methods of every suite, those first that solve most of its cases with the numbers they choose.
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..catalogue import solving

FILE = Path(__file__).parent / "standings.json"


class Standing(NamedTuple):
    """A method in a suite of the benchmark."""

    method: str
    cases: int  # that it met
    solved: int  # of them, tuned
    untuned: int  # of them, with the numbers that it chooses for itself
    rank: float  # all-case rank of the tuned ones, by gradients and products


@cache
def standings() -> dict[str, list[Standing]]:
    """Of every suite, best first."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: [Standing(**row) for row in rows] for name, rows in found.items()}


def suite(level: str, agents: int, kind: str) -> str:
    """The suite whose cases are nearest to this: lower level, agents, kind of network."""
    near = "one-agent" if agents == 1 else "links" if kind != "symmetric" else level
    return near if level == "personal" and near in standings() else level


def leading(level: str, agents: int, kind: str, count: int) -> list[Standing]:
    """The first methods there that fit such a problem and network."""
    right = solving(level, kind)
    there = standings().get(suite(level, agents, kind), [])
    return [one for one in there if one.method in right][:count]


def said(one: Standing, name: str) -> str:
    """A standing in words."""
    return (
        f"in the benchmark's suite {name} {one.method} solves {one.untuned} of {one.cases} cases "
        f"with the steps it chooses, {one.solved} tuned (docs/benchmark.md)"
    )
