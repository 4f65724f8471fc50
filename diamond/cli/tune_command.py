"""The `tune` command: tune every algorithm by one rule, for an experiment or the paper's cases."""

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.suggestions import did_you_mean
from .app import DIVERGED, Json, app, emit, reported, talk
from .experiment_commands import Quiet, Set, start
from .inspect_commands import Data
from .interrupt_handling import interruptible

if TYPE_CHECKING:
    from ..tuning.experiment_grid import Setting
    from ..tuning.experiment_tuning import Results, Tuning
    from ..tuning.successive_halving import Result

SHOWN = 5  # number of the best settings to print per algorithm, besides the failed ones


@app.command()
def tune(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Experiment FILE.toml; or cases of the paper such as mnist-9-label-p0.3; or all."
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
    data: Data = None,
    store: Annotated[
        Path | None,
        typer.Option(help="File of the paper's constants. Default: that of the package."),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Tune every algorithm on one grid, with equal numbers and lengths of trials.

    For FILE.toml, the lists in the file are the grid; without lists, 27 settings around its steps
    are tried. The smallest late upper loss wins; settings that diverge with any seed are excluded.
    Run the same command again to continue an interrupted tuning.
    """
    files = [word for word in what if word.endswith(".toml")]
    if files and len(what) > 1:
        raise typer.BadParameter("one experiment at a time")
    with reported(), interruptible():
        start()
        if files:
            _tune_file(Path(files[0]), set, seeds, out or Path("runs"), quiet, json)
        else:
            _tune_cases(what, scale, data, out or Path("runs/reproduce"), store, json)


def _tune_cases(
    names: list[str], scale: str, data: Path | None, out: Path, store: Path | None, json: bool
) -> None:
    """Tune the cases of the paper."""
    from rich.console import Console

    from ..reproduce import paper_commands
    from ..reproduce.paper_case import FULL, QUICK
    from ..reproduce.paper_tuning import STORE

    names = list(paper_commands.CASES) if names == ["all"] else names
    if unknown := [name for name in names if name not in paper_commands.CASES]:
        near = did_you_mean(unknown[0], [*paper_commands.CASES, "all"])
        raise typer.BadParameter(f"no case {unknown[0]!r}; {near}, or an experiment's file x.toml")
    path = store or Path(paper_commands.__file__).with_name(STORE)
    scales = {"full": FULL, "quick": QUICK}
    if scale not in scales:
        raise typer.BadParameter(f"no scale {scale!r}; there are full and quick")
    found = paper_commands.tune_cases(names, scales[scale], out, path, data, Console(stderr=json))
    if json:
        emit({"store": str(path), "cases": found})


def _tune_file(
    file: Path, changes: list[str], seeds: int, out: Path, quiet: bool, json: bool
) -> None:
    """Tune the experiment of a file."""
    from ..tuning.experiment_tuning import edges, tuning
    from ..tuning.successive_halving import best

    plan = tuning(file, changes, out, seeds)
    found = _run(plan, quiet)
    failed = [label for label, tried in found.items() if best(tried).loss == inf]
    path = None if failed else plan.write(found)
    if json:
        emit(_numbers(plan, found, path))
    else:
        for label, tried in found.items():
            _show(label, tried)
    for label, tried in found.items():
        for said in edges(tried) if label not in failed else ():
            talk(f"{label}: the best {said}; better may lie beyond: widen its list", "yellow")
    for label in failed:
        talk(f"{label}: every setting diverged; try smaller steps", "red")
    if path is None:
        raise typer.Exit(DIVERGED)
    if not json:
        verb = "run" if plan.experiment.single else "compare"
        typer.echo(f"tuned: {path}\ntry it:  diamond {verb} {path}")


def _run(plan: "Tuning", quiet: bool) -> "Results":
    """Run all trials under a progress bar."""
    from .progress_bars import progress_bar

    if not quiet:
        count = len(next(iter(plan.settings.values())))
        who = ", ".join(plan.settings)
        seeds = f"seeds {', '.join(map(str, plan.seeds))}"
        rounds = plan.experiment.rounds
        talk(f"{who}: {count} settings each, {seeds}, {rounds:,} rounds: {plan.trials} trials")
    with progress_bar("trials", plan.trials, quiet) as advance:
        return plan.run(advance)


def _show(label: str, tried: list["Result[Setting]"]) -> None:
    """Print the best settings of an algorithm, and all that failed."""
    from rich.console import Console
    from rich.table import Table

    from ..tuning.experiment_tuning import diverged

    good = sorted((one for one in tried if one.loss < inf), key=lambda one: one.loss)
    bad = [one for one in tried if one.loss == inf]
    drawn = Table(box=None, pad_edge=False)
    for name in tried[0].candidate.options:
        drawn.add_column(name, justify="right")
    drawn.add_column("late upper loss", no_wrap=True)
    for one in good[:SHOWN]:
        drawn.add_row(*map(_said, one.candidate.options.values()), f"{one.loss:.4g}")
    if len(good) > SHOWN:
        between = f"{len(good) - SHOWN} more, up to {good[-1].loss:.4g}"
        drawn.add_row(*("..." for _ in tried[0].candidate.options), between)
    for one in bad:
        told = ", ".join(f"{who}: round {round}" for who, round in diverged(one).items())
        why = f"diverged ({told})" if told else "the loss is not finite"
        drawn.add_row(*map(_said, one.candidate.options.values()), why)
    typer.echo(f"{label}: {len(tried)} settings, {len(bad)} failed")
    Console(highlight=False).print(drawn)


def _said(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _numbers(plan: "Tuning", found: "Results", path: Path | None) -> dict[str, Any]:
    from ..tuning.experiment_tuning import diverged, edges
    from ..tuning.successive_halving import best

    row = lambda one: {
        "options": one.candidate.options,
        "algorithm": one.candidate.table,
        "upper_loss": one.loss,
        "diverged": diverged(one),
    }
    return {
        "folder": str(plan.path),
        "tuned": None if path is None else str(path),
        "seeds": plan.seeds,
        "trials": plan.trials,
        "algorithms": {
            label: {
                "best": row(best(tried)),
                "edges": edges(tried),
                "settings": [row(one) for one in tried],
            }
            for label, tried in found.items()
        },
    }
