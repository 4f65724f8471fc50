"""The `advise` command: measure a problem and recommend an algorithm with its step sizes."""

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.suggestions import did_you_mean
from ..metrics.display import print_message
from .app import Json, app, print_json, report_errors
from .experiment_commands import File, Set
from .plan_execution import prepare_jax
from .terminal_tables import text_table

if TYPE_CHECKING:
    from ..advice.privacy_forecast import PrivacyForecast
    from ..advice.recommendation import Advice, Prospect
    from ..config.experiment_file import Experiment
    from ..interface.round_interface import Algorithm
    from ..problem import Problem


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
            help="Algorithm to try beside that of the file, or your own as mine.py:make; may be "
            "repeated. Default: the best in the benchmark for such problems."
        ),
    ] = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Measure a problem and its network, run a short pilot of each algorithm, and recommend one."""
    with report_errors():
        prepare_jax()
        from ..advice.recommendation import advise as measure_and_advise
        from ..advice.recommendation import omitted_methods
        from ..config.experiment_file import load
        from ..config.validation_errors import value_errors_as_mistakes
        from ..experiment.jobs import build_problem, use_precision

        experiment = load(file, set)
        with use_precision(experiment):
            problem, network = build_problem(experiment, str(file)), experiment.network[0].build()
            batch = experiment.algorithm[0].build().batch
            setting = problem, network, batch, target, experiment.seed[0], pilot
            is_network = problem.lower_level != "none" and not problem.has_lower_solution
            level, agents, kind = problem.lower_level, problem.agents, network.kind
            algorithms = _select_algorithms(
                algorithm, experiment, batch, level, agents=agents, kind=kind, is_network=is_network
            )
            refused = _refused_by_privacy(algorithms, problem, experiment)
            algorithms = {k: a for k, a in algorithms.items() if k not in refused}
            with value_errors_as_mistakes(str(file)):
                advice = measure_and_advise(*setting, algorithms)
            shown = {*algorithms, *refused, *(part.name for part in experiment.algorithm)}
            omitted = omitted_methods(shown, level, kind, is_network, is_selection=bool(algorithm))
            omitted |= dict.fromkeys(refused, "cannot be private on this problem")
            forecasts = _forecast_privacy(experiment, problem)
        if json:
            privacy = {k: [f._asdict() for f in forecast] for k, forecast in forecasts.items()}
            result = _as_json(advice) | {"omitted": omitted}
            print_json(result | ({"privacy": privacy} if privacy else {}))
        else:
            _print_advice(advice)
            if experiment.privacy is not None:
                typer.echo(_describe_private_steps(advice, algorithms[advice.best.algorithm]))
            for reason in dict.fromkeys(omitted.values()):
                names = [name for name, other in omitted.items() if other == reason]
                print_message(f"not tried, {reason}: {', '.join(names)}", "dim", err=False)
            _print_privacy(forecasts)


def _select_algorithms(
    names: list[str],
    experiment: "Experiment",
    batch: int,
    level: str,
    *,
    agents: int,
    kind: str,
    is_network: bool,
) -> "dict[str, Algorithm]":
    """Return the algorithms of the file and the named ones, by default those for such problems."""
    from ..advice.recommendation import FROM_FILE, build_algorithms, methods_to_try
    from ..catalogue import methods_for
    from ..config.components import read_algorithm
    from ..config.previews import read_named_algorithm
    from ..config.user_functions import REFERENCE

    user_names, available = (
        [name for name in names if REFERENCE.fullmatch(name)],
        methods_for(level),
    )
    if unknown := [name for name in names if name not in (*available, *user_names)]:
        suggestion = did_you_mean(unknown[0], available)
        raise typer.BadParameter(f"no {unknown[0]!r}; {suggestion}, or your own as mine.py:make")
    registry_names = (
        [name for name in names if name not in user_names]
        if names
        else methods_to_try(level, agents, kind, is_network)
    )
    algorithms = build_algorithms(registry_names, batch)
    parts = [read_named_algorithm(name) for name in user_names]
    algorithms |= {part.label: part.build() for part in parts}
    for part in experiment.algorithm:
        plain = {"name": part.name} | {k: batch for k in part.options if k == "batch"}
        is_other = part.label in algorithms and (
            part.sources or experiment.privacy is not None or part != read_algorithm(plain)
        )
        algorithms[f"{part.label}{FROM_FILE}" if is_other else part.label] = part.build()
    return algorithms


def _refused_by_privacy(
    algorithms: "dict[str, Algorithm]", problem: "Problem", experiment: "Experiment"
) -> list[str]:
    """Return the algorithms that cannot be private here; those of the file are private already."""
    from ..advice.privacy_forecast import can_be_private

    if experiment.privacy is None:
        return []
    options = experiment.privacy.as_table(experiment.rounds)
    return [
        name
        for name, algorithm in algorithms.items()
        if algorithm.privacy is None and not can_be_private(algorithm, problem, options)
    ]


def _describe_private_steps(advice: "Advice", algorithm: "Algorithm") -> str:
    """Return the steps to write into the file, since a private run learns none."""
    from ..advice.recommendation import FROM_FILE

    names = {"alpha": "alpha", "beta": "beta", "delta": "beta"}  # z moves like y
    known = {name: advice.best.numbers.get(source) for name, source in names.items()}
    steps = [f"{k} = {v:.3g}" for k in algorithm.schedule_values(0) if (v := known.get(k))]
    name = advice.best.algorithm.removesuffix(FROM_FILE)
    table = ", ".join([f'name = "{name}"', *steps])
    return (
        f"in the file:  algorithm = {{{table}}}\n"
        f"a private run takes given step sizes only; those of the pilots, which had no noise, are "
        f"at most a start, and choosing by pilots on the rows spends privacy that is not counted"
    )


def _forecast_privacy(
    experiment: "Experiment", problem: "Problem"
) -> "dict[str, list[PrivacyForecast]]":
    """Return what the budget of the file allows, for each of its private methods."""
    from ..advice.privacy_forecast import forecast_privacy

    if experiment.privacy is None:
        return {}
    return {
        part.label: forecast_privacy(part.build(), problem, experiment.rounds)
        for part in experiment.algorithm
    }


def _print_privacy(forecasts: "dict[str, list[PrivacyForecast]]") -> None:
    from rich.console import Console

    if not forecasts:
        return
    rows = [
        [
            label,
            f.clipping,
            f"{f.rounds:,}",
            f"{f.noise_multiplier:.3g}",
            f"{f.noise:.3g}",
            f"{f.error:.2g}",
            f.verdict,
        ]
        for label, group in forecasts.items()
        for f in group
    ]
    epsilon = next(iter(forecasts.values()))[0].epsilon
    columns = ["", "clipping", "rounds", "multiplier", "noise / clip", "error", ""]
    title = f"what epsilon = {epsilon:g} allows: noise in the sites' mean direction of x"
    Console(highlight=False).print(text_table(columns, rows, title))


def _as_json(advice: "Advice") -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "constants": asdict(advice.constants) if advice.constants else None,
        "diameter": advice.diameter,
        "rounds_to_mix": advice.rounds_to_mix,
        "target": advice.target,
        "prospects": [p._asdict() for p in advice.prospects],
        "topologies": [t._asdict() for t in advice.topologies],
        "prefer": advice.best.algorithm,
        "why": advice.why,
    }


def _print_advice(advice: "Advice") -> None:
    from rich.console import Console

    constants = advice.constants
    console = Console(highlight=False)
    lam = ""
    if constants is not None:
        noise = f"sigma_f = {constants.sigma_f:.3g}, sigma_g = {constants.sigma_g:.3g}"
        noise += " at the end of the best pilot"
        mu_g, L_g = constants.mu_g, constants.L_g
        console.print(
            f"conditioning    mu_g = {mu_g:.3g}, L_g = {L_g:.3g}, ratio {constants.condition:.3g}"
        )
        console.print(f"noise           {noise}")
        console.print(
            f"heterogeneity   {constants.heterogeneity:.3g} (0: all agents have the same data)"
        )
        lam = f"lam = {constants.lam:.3f}, "
    console.print(
        f"network         {lam}diameter {advice.diameter}, {advice.rounds_to_mix} "
        f"rounds to mix to 1/1000"
    )
    linked = ["on links"] if advice.topologies else []
    columns = ["", "alpha", "beta", "pilot", "rounds", "samples", "MB", *linked]
    source = "extrapolated from" if advice.network_facts is None else "in"
    title = f"cost to reach {advice.goal}, {source} a pilot"
    console.print(
        text_table(columns, [_format_prospect(p, bool(linked)) for p in advice.prospects], title)
    )
    for failure in advice.failures:
        console.print(failure, soft_wrap=True)
    if advice.topologies:
        title = f"{advice.best.algorithm} on other edges between the same agents"
        rows = [
            (
                t.name + " (yours)" * (t is advice.topologies[0]),
                *(
                    str(t.edges),
                    f"{t.lam:.3f}",
                    _format_count(t.rounds),
                    _format_seconds(t.network_seconds),
                ),
            )
            for t in advice.topologies
        ]
        console.print(text_table(["", "edges", "lam", "rounds", "on links"], rows, title))
    console.print(f"prefer {advice.best.algorithm}: {advice.why}", soft_wrap=True)


def _format_prospect(p: "Prospect", linked: bool) -> list[str]:
    """Format the table row of an algorithm: steps, pilot and cost."""
    numbers = [f"{p.numbers[n]:.3g}" if n in p.numbers else "-" for n in ("alpha", "beta")]
    cost = [_format_count(p.rounds), _format_count(p.samples), _format_count(p.bytes / 1e6, 1)]
    cost += [_format_seconds(p.network_seconds)] if linked else []
    return [p.algorithm, *numbers, f"{p.metric:.2g}" if math.isfinite(p.metric) else "-", *cost]


def _format_count(count: float, digits: int = 0) -> str:
    return f"{count:,.{digits}f}" if math.isfinite(count) else "-"


def _format_seconds(seconds: float | None) -> str:
    from ..metrics.display import format_duration

    return "-" if seconds is None or not math.isfinite(seconds) else format_duration(seconds)
