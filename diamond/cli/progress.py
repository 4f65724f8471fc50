"""The display of a command's runs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..experiment.execute import Watch
from ..experiment.runner import Plan
from ..measure.display import Lines, Quiet, live


@contextmanager
def watching(plan: Plan, quiet: bool) -> Iterator[Watch]:
    """The display that suits where the talk goes."""
    names = [job.name for job, _ in plan.jobs]
    rounds = plan.experiment.rounds
    if quiet:
        yield Quiet(names, rounds)
    elif not sys.stderr.isatty():
        yield Lines(names, rounds)
    else:
        with live(names, rounds) as board:
            yield board
