"""Thinning of many or long runs to what a page can hold."""

import math
from collections import defaultdict
from dataclasses import dataclass

from ..records.folder_reader import StoredRun

PAGE_CHARACTERS = 700_000  # characters of a page without its scripts, which take 1.25 of its 2 MB
FACT_CHARACTERS = 700  # characters per run for its facts
CURVE_SHARE, AGENT_SHARE, CONFIG_SHARE = 0.4, 0.4, 0.2  # shares of the remaining space
NUMBER_CHARACTERS = 8  # characters per number, comma included
USEFUL_FRAMES = 10  # useful number of evaluations of a run's agents


@dataclass(frozen=True)
class Thinning:
    """Every `step`-th evaluation for curves, every `agent_step`-th for agents of `detailed_runs`.

    The steps are the same for all runs, so that runs of one experiment keep the same rounds.
    """

    step: int
    agent_step: int
    detailed_runs: frozenset[int]


def choose_thinning(runs: list[StoredRun], membership: list[int]) -> Thinning:
    """Choose the thinning that fits; the first runs of each group keep their agents' values."""
    space = max(PAGE_CHARACTERS - FACT_CHARACTERS * len(runs), PAGE_CHARACTERS // 10)
    sizes = [NUMBER_CHARACTERS * _count_agent_numbers(run) for run in runs]
    detailed: set[int] = set()
    agent_characters = config_characters = 0
    for i in _round_robin_order(membership):
        agent_characters += USEFUL_FRAMES * sizes[i]
        config_characters += len(read_config(runs[i]))
        if detailed and (
            agent_characters > AGENT_SHARE * space or config_characters > CONFIG_SHARE * space
        ):
            break
        detailed.add(i)
    columns = sum(len(run.lines[0]) - 1 for run in runs if run.lines)
    longest = max((len(run.lines) for run in runs), default=0)
    step = _step(longest, CURVE_SHARE * space / max(1, columns * NUMBER_CHARACTERS))
    agent_step = _step(longest, AGENT_SHARE * space / max(1, sum(sizes[i] for i in detailed)))
    return Thinning(step, agent_step, frozenset(detailed))


def _step(evaluations: int, capacity: float) -> int:
    """Return the step for which about `capacity` evaluations are kept."""
    return max(1, math.ceil((evaluations - 1) / max(1.0, capacity - 1)))


def read_config(run: StoredRun) -> str:
    """Read the configuration file of the run."""
    path = run.path / "config.toml"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _count_agent_numbers(run: StoredRun) -> int:
    """Count the numbers of all agents at one evaluation."""
    return sum(map(len, (run.lines[0].get("agents") or {}).values())) if run.lines else 0


def _round_robin_order(membership: list[int]) -> list[int]:
    """Order runs: the first of every group, then the second of every group, and so on."""
    counts: dict[int, int] = defaultdict(int)
    order = []
    for i, group in enumerate(membership):
        order.append((counts[group], i))
        counts[group] += 1
    return [i for _, i in sorted(order)]
