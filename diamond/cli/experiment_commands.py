"""The commands `new`, `check`, `run`, `compare` and `resume`: experiments from files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import DIVERGED, FAILED, INTERRUPTED, Json, app, emit, reported, talk
from .device_options import asked_for, joined, leading, recorded, show_cores
from .interrupt_handling import check_interrupt, gently, interruptible

if TYPE_CHECKING:
    from ..config.experiment_file import Experiment
    from ..experiment.execution import ResumeOverrides
    from ..experiment.job_runner import Plan

File = Annotated[Path, typer.Argument(help="Experiment, a TOML file.")]
Set = Annotated[
    list[str],
    typer.Option(
        "--set", help="Change a key of the file, as in --set algorithm.alpha=0.1; may be repeated."
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        help="Number of rounds. If a shorter run of this file exists, it is extended. Default: "
        "that of the file.",
        min=0,
    ),
]
Out = Annotated[Path, typer.Option(help="Folder in which the folder of the run is created.")]
Devices = Annotated[
    str,
    typer.Option(
        help="Devices to shard the agents over: 'cores', 'all', or a number. Default: those of the "
        "experiment."
    ),
]
Hosts = Annotated[
    str,
    typer.Option(
        help="Run as one of several processes: HOST:PORT where process 0 listens, or 'auto' under "
        "SLURM or Open MPI. Not encrypted: use on trusted networks only. Default: a single "
        "process."
    ),
]
Rank = Annotated[int | None, typer.Option(help="With --hosts: number of this process, from 0.")]
Size = Annotated[int | None, typer.Option(help="With --hosts: number of processes.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(help="Name of the experiment; writes NAME.toml and NAME.py.")
    ],
    folder: Annotated[Path, typer.Option(help="Folder to write the files into.")] = Path(),
    problem: Annotated[
        str | None,
        typer.Option(help="Problem of the gallery. Default: a template of your own problem."),
    ] = None,
) -> None:
    """Write a commented experiment and a problem of your own, ready to run."""
    with reported():
        from ..templates.experiment_template import write

        for path in write(folder, name, problem):
            typer.echo(path)
    talk(f"try it:  diamond run {folder / name}.toml")


@app.command()
def check(file: File, set: Set = [], json: Json = False) -> None:  # noqa: B006
    """Report every mistake in an experiment and estimate its cost, without running it."""
    with reported(), interruptible():
        start()
        from ..experiment.job_runner import comparison, every_mistake
        from .forecast_output import as_dict, show

        plan = comparison(every_mistake(file, set), Path("runs"), str(file))
        found = plan.forecasts()
        if json:
            notes = {"notes": list(plan.problem.notes)} if plan.problem.notes else {}
            emit({"file": str(file), "mistakes": [], "runs": as_dict(found)} | notes)
        else:
            show(plan, found)


@app.command()
def run(
    file: File,
    set: Set = [],  # noqa: B006
    rounds: Rounds = None,
    out: Out = Path("runs"),
    devices: Devices = "",
    hosts: Hosts = "",
    rank: Rank = None,
    size: Size = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run the experiment of a file once, into a folder that `diamond resume` can continue."""
    with reported(), interruptible(), joined(hosts, rank, size):
        with continuable():
            start()
            from ..config.experiment_file import load
            from ..experiment.job_runner import single

            asked = asked_for(devices, hosts)
            more = [] if rounds is None else [f"rounds={rounds}"]
            experiment = load(file, [*set, *asked, *more])
            show_cores(experiment.devices)
            plan = None if rounds is None else _extended(experiment, out, quiet)
            plan = plan or single(experiment, out, str(file))
        _go(plan, quiet, json, estimate=not hosts)


@app.command()
def compare(
    file: File,
    set: Set = [],  # noqa: B006
    out: Out = Path("runs"),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run every algorithm of a file on every network from every seed; lists are sweeps."""
    with reported(), interruptible():
        with continuable():
            start()
            from ..config.experiment_file import load
            from ..experiment.job_runner import begin, comparison
            from ..records.write_check import room

            plan = comparison(load(file, set), out, str(file))
            room(plan.path, plan.size)
        begin(plan)
        _go(plan, quiet, json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or of a comparison.")],
    devices: Devices = "",
    hosts: Hosts = "",
    rank: Rank = None,
    size: Size = None,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Start again from round 0 if no checkpoint can be read; nothing is deleted.",
        ),
    ] = False,
    changed_data: Annotated[
        bool,
        typer.Option(
            "--changed-data", help="Continue although rows, files or packages have changed."
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Continue an interrupted run or comparison; the result equals that of an uninterrupted run."""
    with reported(), interruptible(), joined(hosts, rank, size):
        start()
        from ..experiment.execution import ResumeOverrides
        from ..experiment.job_runner import again

        chosen = devices or ("all" if hosts else "")
        show_cores(chosen or recorded(folder))
        others = int(chosen) if chosen.isdigit() else chosen or None
        overrides = ResumeOverrides(restart, changed_data)
        _go(again(folder, others), quiet, json, estimate=False, overrides=overrides)


def _extended(experiment: "Experiment", out: Path, quiet: bool) -> "Plan | None":
    """Return the plan that extends a shorter run of the same experiment; None if there is none."""
    from ..experiment.extension import extended

    plan = extended(experiment, out)
    if plan and not quiet:
        talk(f"going on with {plan.path}, up to round {experiment.rounds:,}")
    return plan


def start() -> None:
    """Enable the persistent compilation cache of JAX."""
    from ..hardware.compilation_cache import compile_cache

    compile_cache()


def _go(
    plan: "Plan",
    quiet: bool,
    json: bool,
    estimate: bool = True,
    overrides: "ResumeOverrides | None" = None,
) -> None:
    """Estimate the cost, run, print the table, and exit with the code of the outcome."""
    from ..records.folder_reader import open_run
    from ..records.result_table import over_seeds, rows
    from ..records.write_check import room
    from .forecast_output import summary
    from .terminal_tables import print_table

    if not leading():
        plan.assist()
        return
    for note in () if quiet else plan.problem.notes:
        talk(note, "dim")
    room(plan.path, plan.size)
    compiled: dict[str, float] = {}
    if estimate:
        with continuable(plan.path):
            if not quiet:
                talk("compiling, and trying a few rounds ...", "dim")
            found = plan.forecasts(skip_failures=True)
            check_interrupt()
            compiled = {name: forecast.compile_seconds for name, forecast in found.items()}
            if not quiet:
                talk(summary(plan, found), "dim")
    manifests = executed(plan, quiet, compiled, overrides)
    table = rows([open_run(path) for _, path in plan.jobs])
    stopped = {one["name"]: one["message"] for one in manifests if _has_stopped(one)}
    if json:
        emit({"folder": str(plan.path), "runs": table, "stopped": stopped})
    else:
        print_table(table)
        if len(plan.experiment.seed) > 1:
            typer.echo("\nover the seeds:")
            print_table(over_seeds(table))
        for name, why in stopped.items():
            typer.echo(why if len(manifests) == 1 else f"{name} {why}")
        typer.echo(f"folder: {plan.path}")
        if len(manifests) == 1:
            if best := manifests[0].get("answer", {}).get("best"):
                typer.echo(f"best: round {best['round']}, upper loss {best['upper_loss']:.4g}")
            typer.echo(f"digest: {manifests[0]['digest']}")
    _end(manifests, plan.path)


def executed(
    plan: "Plan",
    quiet: bool,
    compiled: dict[str, float],
    overrides: "ResumeOverrides | None" = None,
) -> list[dict[str, Any]]:
    """Execute a plan under a progress display and return the manifests; handle Ctrl-C."""
    from ..experiment.execution import ResumeOverrides
    from .progress_bars import watching

    with continuable(plan.path), gently() as stopped, watching(plan, quiet) as listener:
        return plan.execute(listener, stopped, compiled, overrides or ResumeOverrides())


@contextmanager
def continuable(folder: Path | None = None) -> Iterator[None]:
    """On Ctrl-C, print how to continue: by `diamond resume` once `folder` exists."""
    try:
        yield
    except KeyboardInterrupt:
        written = folder is not None and folder.exists()
        remedy = (
            f"go on with:  diamond resume {folder}"
            if written
            else "nothing was written: repeat the command to begin"
        )
        talk(f"interrupted; {remedy}", "yellow")
        raise typer.Exit(INTERRUPTED) from None


def _has_stopped(manifest: dict[str, Any]) -> bool:
    """Return whether a run ended before its last round, at a target or a spent budget."""
    return manifest["status"] == "finished" and bool(manifest["message"])


def _end(manifests: list[dict[str, Any]], folder: Path) -> None:
    """Print which runs failed or diverged, and why; exit with the code of the worst."""
    failed = [manifest for manifest in manifests if manifest["status"] == "interrupted"]
    for manifest in failed:
        talk(f"{manifest['name']} failed: {manifest['message']}", "red")
    diverged = [manifest for manifest in manifests if manifest["status"] == "diverged"]
    for manifest in diverged:
        talk(f"{manifest['name']} {manifest['message'].split('. The state before')[0]}", "red")
    if failed:
        done = len(manifests) - len(failed)
        talk(f"{done} done; try the others again with:  diamond resume {folder}", "yellow")
        raise typer.Exit(FAILED)
    if diverged:
        raise typer.Exit(DIVERGED)
