"""Forecasts of an experiment's cost, printed before it starts."""

from collections.abc import Mapping
from typing import Any

from ..engine.forecast import Forecast
from ..experiment.job_runner import Plan
from ..hardware.memory import bytes_in_words
from ..metrics.display import duration
from .terminal_tables import text_table


def as_dict(found: Mapping[str, Forecast]) -> list[dict[str, Any]]:
    """Convert forecasts into plain dicts for JSON."""
    return [{"run": name, **forecast._asdict()} for name, forecast in found.items()]


def summary(plan: Plan, found: Mapping[str, Forecast]) -> str:
    """Summarize the forecasts of all runs in one line."""
    network = plan.experiment.network[0].build()
    several = len(plan.experiment.network) > 1
    runs = f"{len(found)} runs" if len(found) > 1 else "1 run"
    linked = [f.network_seconds for f in found.values() if f.network_seconds is not None]
    memory = max((f.memory or 0 for f in found.values()), default=0)
    parts = [
        f"{plan.problem.agents} agents",
        f"{len(plan.experiment.network)} networks" if several else str(network).split(":")[0],
        f"{runs} of {plan.experiment.rounds:,} rounds",
        f"about {duration(sum(f.seconds for f in found.values()))}",
        f"compiled in {duration(sum(f.compile_seconds for f in found.values()))}",
        *([f"memory {bytes_in_words(memory)}"] if memory else []),
        f"{sum(f.samples for f in found.values()):,.0f} samples an agent",
        f"{sum(f.bytes for f in found.values()) / 1e6:,.3g} MB on the network",
        *([f"{duration(sum(linked))} on its links"] if linked else []),
    ]
    return ", ".join(parts)


def show(plan: Plan, found: Mapping[str, Forecast]) -> None:
    """Print the forecasts as a table with one row per run."""
    from rich.console import Console

    linked = any(f.network_seconds is not None for f in found.values())
    columns = ["run", "compiling", "running", "rounds/s", "memory", "samples", "MB"]
    columns += ["on links"] if linked else []

    def row(name: str, f: Forecast) -> list[str]:
        times = duration(f.compile_seconds), duration(f.seconds), f"{f.rounds_per_second:,.0f}"
        memory = bytes_in_words(f.memory) if f.memory else "?"
        counts = f"{f.samples:,.0f}", f"{f.bytes / 1e6:,.3g}"
        seconds = "" if f.network_seconds is None else duration(f.network_seconds)
        return [name, *times, memory, *counts, *([seconds] if linked else [])]

    title = f"{plan.experiment.name}: no mistake found; not run"
    console = Console()
    console.print(text_table(columns, [row(*one) for one in found.items()], title))
    console.print(summary(plan, found), style="dim")
    for note in plan.problem.notes:
        console.print(note, style="dim")
