"""Progress displays of runs and trials."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from ..experiment.execution import ProgressListener
from ..experiment.plans import Plan
from ..metrics.display import LineDisplay, QuietDisplay, live_table, print_message
from .app import INTERRUPTED
from .interrupt_handling import check_interrupt


class InterruptibleDisplay:
    """Display that stops at the start of a run or of a stage if Ctrl-C was pressed."""

    def __init__(self, display: ProgressListener):
        self.display = display
        self.progress, self.say, self.end = display.progress, display.say, display.end

    def begin(self, name: str, rounds: int) -> None:
        check_interrupt()
        self.display.begin(name, rounds)

    def stage(self, name: str, message: str) -> None:
        self.display.stage(name, message)
        check_interrupt()


@contextmanager
def show_progress(plan: Plan, quiet: bool) -> Iterator[ProgressListener]:
    """Yield the display for stderr: a live board on a terminal, plain lines elsewhere."""
    names = [job.name for job, _ in plan.jobs]
    rounds = plan.experiment.rounds
    if quiet:
        yield InterruptibleDisplay(QuietDisplay(names, rounds))
    elif not sys.stderr.isatty():
        yield InterruptibleDisplay(LineDisplay(names, rounds))
    else:
        with live_table(names, rounds) as board:
            yield InterruptibleDisplay(board)


@contextmanager
def progress_bar(name: str, total: int, quiet: bool) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr for work whose finished parts are kept in files.

    Yields a function that advances the bar, and ends the command if Ctrl-C was pressed.
    """
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console, disable=quiet) as bar:
            task = bar.add_task(name, total=total)

            def advance(count: int, description: str | None = None) -> None:
                bar.update(task, advance=count, description=description)
                check_interrupt()

            yield advance
    except KeyboardInterrupt:
        print_message(
            f"interrupted; run the same command again to continue; finished {name} are kept",
            "yellow",
        )
        raise typer.Exit(INTERRUPTED) from None
