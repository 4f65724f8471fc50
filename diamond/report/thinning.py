"""Thinning of many or long runs to what a page can hold."""

import math
from collections import defaultdict
from dataclasses import dataclass

from ..records.folder_reader import StoredRun

SPACE = 700_000  # characters of a page without its scripts, which take 1.25 of its 2 MB
FACT = 700  # characters per run for its facts
CURVES, AGENTS, CONFIGS = 0.4, 0.4, 0.2  # shares of the remaining space
NUMBER = 8  # characters per number, comma included
FRAMES = 10  # useful number of evaluations of a run's agents


@dataclass(frozen=True)
class Thinning:
    """Every `step`-th evaluation for curves, every `pause`-th for agents of `detailed` runs.

    The steps are the same for all runs, so that runs of one experiment keep the same rounds.
    """

    step: int
    pause: int
    detailed: frozenset[int]


def thin(runs: list[StoredRun], membership: list[int]) -> Thinning:
    """Choose the thinning that fits; the first runs of each group keep their agents' values."""
    space = max(SPACE - FACT * len(runs), SPACE // 10)
    sizes = [NUMBER * _own(run) for run in runs]
    kept: set[int] = set()
    spent = written = 0
    for i in _by_turns(membership):
        spent += FRAMES * sizes[i]
        written += len(config(runs[i]))
        if kept and (spent > AGENTS * space or written > CONFIGS * space):
            break
        kept.add(i)
    columns = sum(len(run.lines[0]) - 1 for run in runs if run.lines)
    longest = max((len(run.lines) for run in runs), default=0)
    step = _step(longest, CURVES * space / max(1, columns * NUMBER))
    pause = _step(longest, AGENTS * space / max(1, sum(sizes[i] for i in kept)))
    return Thinning(step, pause, frozenset(kept))


def _step(evaluations: int, fit: float) -> int:
    """Return the step for which about `fit` evaluations are kept."""
    return max(1, math.ceil((evaluations - 1) / max(1.0, fit - 1)))


def config(run: StoredRun) -> str:
    """Read the configuration file of the run."""
    path = run.path / "config.toml"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _own(run: StoredRun) -> int:
    """Count the numbers of all agents at one evaluation."""
    return sum(map(len, (run.lines[0].get("agents") or {}).values())) if run.lines else 0


def _by_turns(membership: list[int]) -> list[int]:
    """Order runs: the first of every group, then the second of every group, and so on."""
    seen: dict[int, int] = defaultdict(int)
    turns = []
    for i, group in enumerate(membership):
        turns.append((seen[group], i))
        seen[group] += 1
    return [i for _, i in sorted(turns)]
