"""The commands `new`, `check`, `run`, `compare` and `resume`: experiments from files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..metrics.display import print_message
from .app import Json, app, print_json, report_errors
from .device_options import device_changes, expose_cores, join_processes, recorded_devices
from .interrupt_handling import exit_on_interrupt
from .plan_execution import execute_and_report, explain_interrupt, prepare_jax

if TYPE_CHECKING:
    from ..config.experiment_file import Experiment
    from ..experiment.plans import Plan

File = Annotated[Path, typer.Argument(help="TOML file of the experiment.")]
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
        "`rounds` in the file.",
        min=0,
    ),
]
Out = Annotated[Path, typer.Option(help="Folder in which a new folder for the results is created.")]
Devices = Annotated[
    str,
    typer.Option(
        help="Devices to shard the agents over: 'cores', 'all', or a number. Default: `devices` in "
        "the file, or one device."
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
Rank = Annotated[
    int | None,
    typer.Option(
        help="With --hosts HOST:PORT: number of this process, 0 for the first. Default: none."
    ),
]
Size = Annotated[
    int | None, typer.Option(help="With --hosts HOST:PORT: number of processes. Default: none.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only, no progress.")]


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(help="Name of the experiment; writes NAME.toml and NAME.py.")
    ],
    folder: Annotated[Path, typer.Option(help="Folder to write the files into.")] = Path(),
    problem: Annotated[
        str | None,
        typer.Option(help="Problem of the gallery. Default: a template for your own problem."),
    ] = None,
) -> None:
    """Write a commented experiment and a template of your own problem, ready to run."""
    with report_errors():
        from ..templates.experiment_template import write_experiment

        for path in write_experiment(folder, name, problem):
            typer.echo(path)
    print_message(f"try it:  diamond run {folder / name}.toml")


@app.command()
def check(file: File, set: Set = [], json: Json = False) -> None:  # noqa: B006
    """Report every mistake in an experiment and estimate its cost, without running it."""
    with report_errors(), exit_on_interrupt():
        prepare_jax()
        from ..experiment.plans import load_and_check, plan_comparison
        from .forecast_output import as_dict, print_forecasts

        plan = plan_comparison(load_and_check(file, set), Path("runs"), str(file))
        forecasts = plan.forecasts()
        if json:
            notes = {"notes": plan.notes} if plan.notes else {}
            print_json({"file": str(file), "mistakes": [], "runs": as_dict(forecasts)} | notes)
        else:
            print_forecasts(plan, forecasts)


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
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="Then train each agent alone, and one model of all rows, and compare the scores.",
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run the experiment of a file once, into a folder that `diamond resume` can continue."""
    with report_errors(), exit_on_interrupt(), join_processes(hosts, rank, size):
        with explain_interrupt():
            prepare_jax()
            from ..config.experiment_file import load
            from ..experiment.plans import plan_run

            device_settings = device_changes(devices, hosts)
            round_settings = [] if rounds is None else [f"rounds={rounds}"]
            experiment = load(file, [*set, *device_settings, *round_settings])
            expose_cores(experiment.devices)
            plan = None if rounds is None else _plan_extension(experiment, out, quiet)
            plan = plan or plan_run(experiment, out, str(file))
        execute_and_report(plan, quiet, json, estimate=not hosts, alone=alone)


@app.command()
def compare(
    file: File,
    set: Set = [],  # noqa: B006
    out: Out = Path("runs"),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run every algorithm of a file on every network from every seed.

    If the value of an option is a list, as in alpha = [0.1, 0.3], every value is
    run.
    """
    with report_errors(), exit_on_interrupt():
        with explain_interrupt():
            prepare_jax()
            from ..config.experiment_file import load
            from ..experiment.plans import plan_comparison, write_comparison_file
            from ..records.write_check import check_writable

            plan = plan_comparison(load(file, set), out, str(file))
            check_writable(plan.path, plan.checkpoint_bytes)
        write_comparison_file(plan)
        execute_and_report(plan, quiet, json)


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
    with report_errors(), exit_on_interrupt(), join_processes(hosts, rank, size):
        prepare_jax()
        from ..experiment.execution import ResumeOverrides
        from ..experiment.plans import plan_resume

        selection = devices or ("all" if hosts else "")
        expose_cores(selection or recorded_devices(folder))
        new_devices = int(selection) if selection.isdigit() else selection or None
        overrides = ResumeOverrides(restart, changed_data)
        execute_and_report(
            plan_resume(folder, new_devices), quiet, json, estimate=False, overrides=overrides
        )


def _plan_extension(experiment: "Experiment", out: Path, quiet: bool) -> "Plan | None":
    """Return the plan that extends a shorter run of the same experiment; None if there is none."""
    from ..experiment.extension import plan_extension

    plan = plan_extension(experiment, out)
    if plan and not quiet:
        print_message(f"extending {plan.path} to round {experiment.rounds:,}")
    return plan
