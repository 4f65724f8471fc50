"""The `advise` command: measure a problem and recommend an algorithm with its step sizes."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.suggestions import did_you_mean
from .app import Json, app, emit, reported
from .experiment_commands import File, Set, start
from .terminal_tables import text_table

if TYPE_CHECKING:
    from ..advice.recommendation import Advice, Prospect
    from ..config.experiment_file import Experiment
    from ..interface.round_interface import Algorithm


@app.command()
def advise(
    file: File,
    set: Set = [],  # noqa: B006
    target: Annotated[
        float | None,
        typer.Option(
            help="Metric value to reach. Default: a tenth of the final value of the best pilot."
        ),
    ] = None,
    pilot: Annotated[int, typer.Option(help="Number of rounds of each pilot.", min=10)] = 100,
    algorithm: Annotated[
        list[str],
        typer.Option(
            help="Algorithm to try, or your own as mine.py:make; may be repeated. Default: the "
            "best in the benchmark for such problems."
        ),
    ] = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Measure a problem and its network, run a short pilot of each algorithm, and recommend one."""
    with reported():
        start()
        from ..advice.recommendation import advise as measured
        from ..config.experiment_file import load
        from ..experiment.jobs import build, precision

        experiment = load(file, set)
        with precision(experiment):
            problem, network = build(experiment, str(file)), experiment.network[0].build()
            batch = experiment.algorithm[0].build().batch
            given = problem, network, batch, target, experiment.seed[0], pilot
            kind = problem.lower_level, problem.agents, network.kind
            found = measured(*given, _tried(algorithm, experiment, batch, *kind))
        if json:
            emit(_numbers(found))
        else:
            _show(found)


def _tried(
    names: list[str], experiment: "Experiment", batch: int, level: str, agents: int, kind: str
) -> "dict[str, Algorithm]":
    """Return the named algorithms; by default those for such problems and the user's own ones."""
    from ..advice.recommendation import by_name, tried
    from ..catalogue import solving
    from ..config.previews import algorithm_of
    from ..config.user_functions import SPELLED

    own, there = [name for name in names if SPELLED.fullmatch(name)], solving(level)
    if unknown := [name for name in names if name not in (*there, *own)]:
        near = did_you_mean(unknown[0], there)
        raise typer.BadParameter(f"no {unknown[0]!r}; {near}, or your own as mine.py:make")
    parts = [algorithm_of(name) for name in own]
    parts += [] if names else [part for part in experiment.algorithm if part.sources]
    by = [name for name in names if name not in own] if names else tried(level, agents, kind)
    found = by_name(by, batch)
    return found | {part.label: part.build() for part in parts}


def _numbers(found: "Advice") -> dict:
    from dataclasses import asdict

    return {
        "constants": asdict(found.constants) if found.constants else None,
        "diameter": found.diameter,
        "rounds_to_mix": found.rounds_to_mix,
        "target": found.target,
        "prospects": [p._asdict() for p in found.prospects],
        "topologies": [t._asdict() for t in found.topologies],
        "prefer": found.best.algorithm,
        "why": found.why,
    }


def _show(found: "Advice") -> None:
    from rich.console import Console

    c = found.constants
    console = Console(highlight=False)
    lam = ""
    if c is not None:
        noise = f"sigma_f = {c.sigma_f:.3g}, sigma_g = {c.sigma_g:.3g}, where the best pilot ended"
        console.print(f"conditioning    mu_g = {c.mu_g:.3g}, L_g = {c.L_g:.3g}: {c.condition:.3g}")
        console.print(f"noise           {noise}")
        console.print(f"heterogeneity   {c.heterogeneity:.3g} (0: agents are alike)")
        lam = f"lam = {c.lam:.3f}, "
    console.print(
        f"network         {lam}diameter {found.diameter}, {found.rounds_to_mix} "
        f"rounds to mix to 1/1000"
    )
    linked = ["on links"] if found.topologies else []
    columns = ["", "alpha", "beta", "pilot", "rounds", "samples", "MB", *linked]
    title = f"to a metric of {found.target:.2g}, extrapolated from a pilot"
    console.print(text_table(columns, [_prospect(p, bool(linked)) for p in found.prospects], title))
    if found.topologies:
        title = f"{found.best.algorithm} on other edges between the same agents"
        rows = [
            (
                t.name + " (yours)" * (t is found.topologies[0]),
                *(str(t.edges), f"{t.lam:.3f}", f"{t.rounds:,.0f}", _duration(t.network_seconds)),
            )
            for t in found.topologies
        ]
        console.print(text_table(["", "edges", "lam", "rounds", "on links"], rows, title))
    console.print(f"prefer {found.best.algorithm}: {found.why}", soft_wrap=True)


def _prospect(p: "Prospect", linked: bool) -> list[str]:
    """Format the table row of an algorithm: steps, pilot and cost."""
    numbers = [f"{p.numbers[n]:.3g}" if n in p.numbers else "-" for n in ("alpha", "beta")]
    cost = [f"{p.rounds:,.0f}", f"{p.samples:,.0f}", f"{p.bytes / 1e6:,.1f}"]
    cost += [_duration(p.network_seconds)] if linked else []
    return [p.algorithm, *numbers, f"{p.metric:.2g}", *cost]


def _duration(seconds: float | None) -> str:
    from ..metrics.display import duration

    return "-" if seconds is None or not math.isfinite(seconds) else duration(seconds)
