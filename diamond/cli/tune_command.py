"""The `tune` command: tune every algorithm by one rule, for an experiment or the paper's cases."""

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.suggestions import did_you_mean
from ..metrics.display import print_message
from .app import DIVERGED, Json, app, print_json, report_errors
from .experiment_commands import Quiet, Set
from .inspect_commands import DataFolder
from .interrupt_handling import exit_on_interrupt
from .plan_execution import prepare_jax

if TYPE_CHECKING:
    from ..tuning.experiment_grid import TableSetting
    from ..tuning.experiment_tuning import Tuning, TuningResults
    from ..tuning.successive_halving import Result

SETTINGS_SHOWN = 5  # number of the best settings to print per algorithm, besides the failed ones


@app.command()
def tune(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Experiment FILE.toml; or cases of the paper, as in mnist-9-label-p0.3; or `all` "
            "of these cases."
        ),
    ],
    set: Set = [],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="For a file: number of seeds per setting.", min=1)] = 2,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the trials. Default: runs for a file, runs/reproduce for the paper's "
            "cases."
        ),
    ] = None,
    scale: Annotated[str, typer.Option(help="Scale of the paper's cases: full or quick.")] = "full",
    data: DataFolder = None,
    store: Annotated[
        Path | None,
        typer.Option(
            help="For the paper's cases: file to store the constants in. Default: that of the "
            "package."
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Tune every algorithm on one grid, with equal numbers and lengths of trials.

    For FILE.toml, the lists in the file are the grid; without lists, 27 settings
    around its steps are tried. The smallest mean upper loss over the last fifth
    of the evaluations wins; settings that diverge with any seed are excluded.

    To continue an interrupted tuning, run the same command again.
    """
    toml_files = [argument for argument in what if argument.endswith(".toml")]
    if toml_files and len(what) > 1:
        raise typer.BadParameter("give one experiment at a time")
    if scale not in ("full", "quick"):
        raise typer.BadParameter(f"no scale {scale!r}; there are full and quick")
    with report_errors(), exit_on_interrupt():
        prepare_jax()
        if toml_files:
            _tune_file(Path(toml_files[0]), set, seeds, out or Path("runs"), quiet=quiet, json=json)
        else:
            _tune_cases(what, scale, data, out or Path("runs/reproduce"), store=store, json=json)


def _tune_cases(
    names: list[str], scale: str, data: Path | None, out: Path, *, store: Path | None, json: bool
) -> None:
    """Tune the cases of the paper."""
    from rich.console import Console

    from ..reproduce import paper_commands
    from ..reproduce.paper_case import FULL, QUICK
    from ..reproduce.paper_tuning import CONSTANTS_FILE

    names = list(paper_commands.CASES) if names == ["all"] else names
    if unknown := [name for name in names if name not in paper_commands.CASES]:
        suggestion = did_you_mean(unknown[0], [*paper_commands.CASES, "all"])
        raise typer.BadParameter(
            f"no case {unknown[0]!r}; {suggestion}, or an experiment's file x.toml"
        )
    path = store or Path(paper_commands.__file__).with_name(CONSTANTS_FILE)
    paper_scale = QUICK if scale == "quick" else FULL
    results = paper_commands.tune_cases(
        names, paper_scale, out, path, folder=data, console=Console(stderr=json)
    )
    if json:
        print_json({"store": str(path), "cases": results})


def _tune_file(
    file: Path, changes: list[str], seeds: int, out: Path, *, quiet: bool, json: bool
) -> None:
    """Tune the experiment of a file."""
    from ..tuning.experiment_tuning import edge_options, plan_tuning
    from ..tuning.successive_halving import best_result

    plan = plan_tuning(file, changes, out, seeds)
    results = _run_trials(plan, quiet)
    failed = [label for label, trials in results.items() if best_result(trials).loss == inf]
    path = None if failed else plan.write(results)
    if json:
        print_json(_as_json(plan, results, path))
    else:
        for label, trials in results.items():
            _print_settings(label, trials)
    for label, trials in results.items():
        for edge in edge_options(trials) if label not in failed else ():
            print_message(
                f"{label}: the best {edge}; a better value may lie beyond it: extend the list",
                "yellow",
            )
    for label in failed:
        print_message(f"{label}: every setting diverged; try smaller steps", "red")
    if path is None:
        raise typer.Exit(DIVERGED)
    if not json:
        verb = "run" if plan.experiment.is_single_run else "compare"
        typer.echo(f"tuned: {path}\ntry it:  diamond {verb} {path}")


def _run_trials(plan: "Tuning", quiet: bool) -> "TuningResults":
    """Run all trials under a progress bar."""
    from .progress_bars import progress_bar

    if not quiet:
        count = len(next(iter(plan.settings.values())))
        labels = ", ".join(plan.settings)
        seeds = f"seeds {', '.join(map(str, plan.seeds))}"
        rounds = plan.experiment.rounds
        print_message(
            f"{labels}: {count} settings each, {seeds}, {rounds:,} rounds: {plan.trials} trials"
        )
    with progress_bar("trials", plan.trials, quiet) as advance:
        return plan.run(advance)


def _print_settings(label: str, results: list["Result[TableSetting]"]) -> None:
    """Print the best settings of an algorithm, and all that failed."""
    from rich.console import Console
    from rich.table import Table

    from ..tuning.experiment_tuning import diverged_trials

    finite = sorted(
        (result for result in results if result.loss < inf), key=lambda result: result.loss
    )
    failed = [result for result in results if result.loss == inf]
    table = Table(box=None, pad_edge=False)
    for name in results[0].candidate.options:
        table.add_column(name, justify="right")
    table.add_column("late upper loss", no_wrap=True)
    for result in finite[:SETTINGS_SHOWN]:
        table.add_row(*map(_format_value, result.candidate.options.values()), f"{result.loss:.4g}")
    if len(finite) > SETTINGS_SHOWN:
        summary = f"{len(finite) - SETTINGS_SHOWN} more, up to {finite[-1].loss:.4g}"
        table.add_row(*("..." for _ in results[0].candidate.options), summary)
    for result in failed:
        rounds_diverged = ", ".join(
            f"{seed_name}: round {round}" for seed_name, round in diverged_trials(result).items()
        )
        reason = f"diverged ({rounds_diverged})" if rounds_diverged else "the loss is not finite"
        table.add_row(*map(_format_value, result.candidate.options.values()), reason)
    typer.echo(f"{label}: {len(results)} settings, {len(failed)} failed")
    Console(highlight=False).print(table)


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _as_json(plan: "Tuning", results: "TuningResults", path: Path | None) -> dict[str, Any]:
    from ..tuning.experiment_tuning import diverged_trials, edge_options
    from ..tuning.successive_halving import best_result

    row = lambda result: {
        "options": result.candidate.options,
        "algorithm": result.candidate.table,
        "upper_loss": result.loss,
        "diverged": diverged_trials(result),
    }
    return {
        "folder": str(plan.path),
        "tuned": None if path is None else str(path),
        "seeds": plan.seeds,
        "trials": plan.trials,
        "algorithms": {
            label: {
                "best": row(best_result(settings)),
                "edges": edge_options(settings),
                "settings": [row(result) for result in settings],
            }
            for label, settings in results.items()
        },
    }
