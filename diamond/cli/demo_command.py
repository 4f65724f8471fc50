"""The `demo` command: four methods on a small problem, in about a minute."""

import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..metrics.display import print_message
from .app import FAILED, Json, app, check_picture, print_json, report_errors
from .experiment_commands import Out, Quiet
from .interrupt_handling import exit_on_interrupt
from .net_site_setup import report_site_errors
from .plan_execution import execute_plan, prepare_jax
from .terminal_tables import text_table

if TYPE_CHECKING:
    from ..records.folder_reader import StoredRun

COLUMNS = ("", "upper loss", "own loss", "accuracy", "metric", "samples", "MB", "s")
LEGEND = (
    "upper loss: the objective, at the mean of the agents' x; own loss: at each agent's own x "
    "and y; accuracy: on test rows, own x and y; metric: eq. (11), mean over the run; samples: "
    "rows drawn by an agent; MB: sent over the whole network"
)


@app.command()
def demo(
    picture: Annotated[
        Path, typer.Option(help="File to draw the curves into.", callback=check_picture)
    ] = Path("demo.png"),
    out: Out = Path("runs"),
    quiet: Quiet = False,
    json: Json = False,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers", help="Run five sites as real processes instead, and kill one of them."
        ),
    ] = False,
) -> None:
    """Run DIAMOND, GT-SGD, M-SGD and D-SGD on built-in digits: a table, a picture and a report."""
    if peers:
        demo_of_sites(out, quiet, json)
        return
    with report_errors(), exit_on_interrupt():
        if not quiet:
            print_message("starting JAX and compiling ...", "dim")
        import_module("matplotlib")  # if it is missing, fail now and not after the runs
        prepare_jax()
        from ..config.experiment_file import validate
        from ..experiment.plans import plan_comparison, write_comparison_file
        from ..records import plot
        from ..records.folder_reader import open_run
        from ..records.result_table import make_rows
        from ..report import build
        from ..templates import demo_experiment

        plan = plan_comparison(
            validate(demo_experiment.experiment_tables(), Path(), "the demo"), out, "the demo"
        )
        network = plan.experiment.network[0].build()
        if not quiet:
            print_message(f"1,797 digits over 9 agents by label, {network}", "dim")
        write_comparison_file(plan)
        execute_plan(plan, quiet, {})
        runs = {job.experiment.algorithm[0].label: open_run(path) for job, path in plan.jobs}
        title = f"digits, 9 agents by label, {network.name}, lam = {network.lam:.2f}"
        plot.plot_convergence(runs, picture, title)
        page = build([plan.path], plan.path / "report.html")
        if json:
            files = {"picture": str(picture), "report": str(page)}
            print_json({"folder": str(plan.path), "runs": make_rows(list(runs.values())), **files})
            return
        _print_results(runs, plan.experiment.rounds)
        typer.echo(f"curves: {picture}\nreport: {page}\nruns:   {plan.path}")


def _print_results(runs: Mapping[str, "StoredRun"], rounds: int) -> None:
    """Print the final numbers of each method."""
    from rich.console import Console

    title = f"{rounds} rounds, each method with its best constants of one grid"
    console = Console()
    console.print(
        text_table(COLUMNS, [_format_row(name, run) for name, run in runs.items()], title)
    )
    console.print(LEGEND, style="dim")


def _format_row(name: str, run: "StoredRun") -> list[str]:
    metrics, last = [line["metric"] for line in run.lines[1:]], run.last_evaluation
    losses = [f"{last[key]:.3f}" for key in ("upper_loss", "local_loss", "accuracy")]
    costs = [f"{last['samples']:,.0f}", f"{last['bytes'] / 1e6:.1f}", f"{last['seconds']:.1f}"]
    return [name, *losses, f"{sum(metrics) / len(metrics):.4f}", *costs]


MAX_DIFFERENCE = (
    1e-5  # relative difference from the simulation: float32 rounding over a hundred rounds
)


def demo_of_sites(out: Path, quiet: bool, json: bool) -> None:
    """Found a federation, run it, kill and restart a site, and compare with `diamond.simulate`."""
    with report_site_errors():
        prepare_jax()
        import jax

        from ..report import build
        from ..templates.sites_demo import KILLED_SITE, ROUNDS, SITES, SiteFailed, SitesDemo

        started = time.monotonic()
        log = lambda message: (
            None if quiet else print_message(f"{time.monotonic() - started:5.1f} s  {message}")
        )
        demo = SitesDemo(out, log)
        demo.write_files()
        log(f"{len(SITES)} sites on a ring, in {demo.federation_folder}: {', '.join(SITES)}")
        log(f"one process each, mutual TLS, {ROUNDS} rounds; {KILLED_SITE} will be killed")
        try:
            demo.run()
        except SiteFailed as error:
            print_message(str(error), "red")
            raise typer.Exit(FAILED) from None
        log("all sites have finished; now the same run by diamond.simulate, in one process")
        with jax.enable_x64(False):
            difference = demo.difference()
        page = build([demo.folder], demo.folder / "report.html")
        if json:
            print_json({"folder": str(demo.folder), "difference": difference, "report": str(page)})
        else:
            typer.echo(f"largest relative difference from diamond.simulate: {difference:.1e}")
            typer.echo(f"report: {page}\nruns:   {demo.folder}")
        if not difference <= MAX_DIFFERENCE:
            print_message(f"more than rounding explains ({MAX_DIFFERENCE:g})", "red")
            raise typer.Exit(FAILED)
