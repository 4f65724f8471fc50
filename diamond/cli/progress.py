"""The display of a command's runs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..experiment.execute import Watch
from ..experiment.runner import Plan
from ..metrics.display import Lines, Quiet, live
from .interrupt import check_interrupt


class Interruptible:
    """A display that ends the runs before a run or a stage of it, if Ctrl-C was pressed."""

    def __init__(self, display: Watch):
        self.display = display
        self.progress, self.say, self.end = display.progress, display.say, display.end

    def begin(self, name: str, rounds: int) -> None:
        check_interrupt()
        self.display.begin(name, rounds)

    def stage(self, name: str, said: str) -> None:
        self.display.stage(name, said)
        check_interrupt()


@contextmanager
def watching(plan: Plan, quiet: bool) -> Iterator[Watch]:
    """The display that suits where the talk goes."""
    names = [job.name for job, _ in plan.jobs]
    rounds = plan.experiment.rounds
    if quiet:
        yield Interruptible(Quiet(names, rounds))
    elif not sys.stderr.isatty():
        yield Interruptible(Lines(names, rounds))
    else:
        with live(names, rounds) as board:
            yield Interruptible(board)
