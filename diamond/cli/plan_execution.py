"""Execution of plans by the commands: forecast, progress, results, interruption and exit codes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..metrics.display import print_message
from .app import DIVERGED, FAILED, INTERRUPTED, print_json
from .device_options import is_first_process
from .interrupt_handling import check_interrupt, stop_at_evaluation

if TYPE_CHECKING:
    from ..experiment.execution import ResumeOverrides
    from ..experiment.plans import Plan


def prepare_jax() -> None:
    """Enable the persistent compilation cache of JAX."""
    from ..hardware.compilation_cache import enable_compile_cache

    enable_compile_cache()


def execute_and_report(
    plan: "Plan",
    quiet: bool,
    json: bool,
    estimate: bool = True,
    *,
    overrides: "ResumeOverrides | None" = None,
    alone: bool = False,
) -> None:
    """Estimate the cost, run, print what was found, and exit with the code of the outcome.

    With `alone`, the agents of a finished run are also trained alone and on all rows.
    """
    from ..experiment.loading import add_cooperation
    from ..records.folder_reader import open_run
    from ..records.result_table import average_over_seeds, make_rows
    from ..records.run_summary import summarize_run
    from ..records.write_check import check_writable
    from .forecast_output import summarize
    from .terminal_tables import print_table

    if not is_first_process():
        plan.run_as_follower()
        return
    for note in () if quiet else plan.notes:
        print_message(note, "dim")
    check_writable(plan.path, plan.checkpoint_bytes)
    compiled: dict[str, float] = {}
    if estimate:
        with explain_interrupt(plan.path):
            if not quiet:
                print_message("compiling and timing a few rounds ...", "dim")
            forecasts = plan.forecasts(skip_failures=True)
            check_interrupt()
            compiled = {name: forecast.compile_seconds for name, forecast in forecasts.items()}
            if not quiet:
                print_message(summarize(plan, forecasts), "dim")
    manifests = execute_plan(plan, quiet, compiled, overrides)
    if alone and manifests[0]["status"] == "finished":
        add_cooperation(plan.jobs[0][1], progress=not quiet)
    stored = [open_run(path) for _, path in plan.jobs]
    table = make_rows(stored)
    messages = {m["name"]: m["message"] for m in manifests if m["status"] == "finished"}
    if json:
        stopped = {name: text for name, text in messages.items() if text.startswith("stopped")}
        print_json({"folder": str(plan.path), "runs": table, "stopped": stopped})
    else:
        if len(stored) == 1:
            typer.echo(f"{summarize_run(stored[0].manifest, stored[0].lines)}\n")
        else:
            print_table(table)
        if len(plan.experiment.seed) > 1:
            typer.echo("\nover the seeds:")
            print_table(average_over_seeds(table))
        for name, message in messages.items():
            if message and len(manifests) > 1:
                typer.echo(f"{name}: {message}")
        typer.echo(f"folder: {plan.path}")
        if len(manifests) == 1:
            typer.echo(f"digest: {manifests[0]['digest']}")
    _exit_with_status(manifests, plan.path)


def execute_plan(
    plan: "Plan",
    quiet: bool,
    compiled: dict[str, float],
    overrides: "ResumeOverrides | None" = None,
) -> list[dict[str, Any]]:
    """Execute a plan under a progress display and return the manifests; handle Ctrl-C."""
    from ..experiment.execution import ResumeOverrides
    from .progress_bars import show_progress

    with (
        explain_interrupt(plan.path),
        stop_at_evaluation() as should_stop,
        show_progress(plan, quiet) as listener,
    ):
        return plan.execute(listener, should_stop, compiled, overrides or ResumeOverrides())


@contextmanager
def explain_interrupt(folder: Path | None = None) -> Iterator[None]:
    """On Ctrl-C, print how to continue: by `diamond resume` once `folder` exists."""
    try:
        yield
    except KeyboardInterrupt:
        has_folder = folder is not None and folder.exists()
        remedy = (
            f"continue with:  diamond resume {folder}"
            if has_folder
            else "nothing was written; run the command again to start"
        )
        print_message(f"interrupted; {remedy}", "yellow")
        raise typer.Exit(INTERRUPTED) from None


def _exit_with_status(manifests: list[dict[str, Any]], folder: Path) -> None:
    """Print which runs failed or diverged, and why; exit with the code of the worst."""
    failed = [manifest for manifest in manifests if manifest["status"] == "interrupted"]
    for manifest in failed:
        print_message(f"{manifest['name']} failed: {manifest['message']}", "red")
    diverged = [manifest for manifest in manifests if manifest["status"] == "diverged"]
    for manifest in diverged:
        print_message(
            f"{manifest['name']} {manifest['message'].split('. The state before')[0]}", "red"
        )
    if failed:
        finished_count = len(manifests) - len(failed)
        print_message(
            f"{finished_count} finished; retry the others with:  diamond resume {folder}", "yellow"
        )
        raise typer.Exit(FAILED)
    if diverged:
        raise typer.Exit(DIVERGED)
