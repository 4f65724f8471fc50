"""Forecasts of an experiment's cost, printed before it starts."""

from collections.abc import Mapping
from typing import Any

from ..engine.forecast import Forecast
from ..experiment.plans import Plan
from ..hardware.device_memory import format_bytes
from ..metrics.display import format_duration
from .terminal_tables import text_table


def as_dict(forecasts: Mapping[str, Forecast]) -> list[dict[str, Any]]:
    """Convert forecasts into plain dicts for JSON."""
    return [{"run": name, **forecast._asdict()} for name, forecast in forecasts.items()]


def summarize(plan: Plan, forecasts: Mapping[str, Forecast]) -> str:
    """Summarize the forecasts of all runs in one line."""
    network = plan.experiment.network[0].build()
    has_several_networks = len(plan.experiment.network) > 1
    runs = f"{len(forecasts)} runs" if len(forecasts) > 1 else "1 run"
    link_seconds = [f.network_seconds for f in forecasts.values() if f.network_seconds is not None]
    memory = max((f.memory or 0 for f in forecasts.values()), default=0)
    parts = [
        f"{plan.problem.agents} agents",
        f"{len(plan.experiment.network)} networks"
        if has_several_networks
        else str(network).split(":")[0],
        f"{runs} of {plan.experiment.rounds:,} rounds",
        f"about {format_duration(sum(f.seconds for f in forecasts.values()))}",
        f"compiled in {format_duration(sum(f.compile_seconds for f in forecasts.values()))}",
        *([f"memory {format_bytes(memory)}"] if memory else []),
        f"{sum(f.samples for f in forecasts.values()):,.0f} samples per agent",
        f"{sum(f.bytes for f in forecasts.values()) / 1e6:,.3g} MB over the network",
        *([f"{format_duration(sum(link_seconds))} on the links"] if link_seconds else []),
    ]
    return ", ".join(parts)


def print_forecasts(plan: Plan, forecasts: Mapping[str, Forecast]) -> None:
    """Print the forecasts as a table with one row per run."""
    from rich.console import Console

    has_links = any(f.network_seconds is not None for f in forecasts.values())
    columns = ["run", "compiling", "running", "rounds/s", "memory", "samples", "MB"]
    columns += ["on links"] if has_links else []

    def row(name: str, f: Forecast) -> list[str]:
        times = (
            format_duration(f.compile_seconds),
            format_duration(f.seconds),
            f"{f.rounds_per_second:,.{0 if f.rounds_per_second >= 10 else 1}f}",
        )
        memory = format_bytes(f.memory) if f.memory else "?"
        counts = f"{f.samples:,.0f}", f"{f.bytes / 1e6:,.3g}"
        seconds = "" if f.network_seconds is None else format_duration(f.network_seconds)
        return [name, *times, memory, *counts, *([seconds] if has_links else [])]

    title = f"{plan.experiment.name}: no mistakes found; nothing was run"
    console = Console()
    console.print(text_table(columns, [row(*item) for item in forecasts.items()], title))
    console.print(summarize(plan, forecasts), style="dim")
    for note in plan.notes:
        console.print(note, style="dim")
