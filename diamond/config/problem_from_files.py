"""Problems of the gallery on rows of files, in Python."""

import warnings
from pathlib import Path
from typing import Any

from ..problem import Problem
from .problem_section import read_problem
from .validation_errors import report_mistakes


def problem_from_files(kind: str, **options: Any) -> Problem:
    """Make a problem of the gallery on rows of files, as an experiment does.

    Runs of the problem predict the rows of new tables: `run.predict("new.csv", agent="north")`.

    Args:
        kind: Kind of the problem, such as "regression" or "hyperparameter".
        **options: Keys of the table `problem` of a file, such as dataset, label, features, levels
            and scale, and the options of the problem. Paths start at the working directory.

    Returns:
        The problem. Remarks about its rows, such as filled cells, are warnings.

    Raises:
        BadExperiment: Options or files cannot be used; the message lists all mistakes.

    Example:
        >>> diamond.problem_from_files("hyperparameter", dataset="digits", agents=5).counts("train")
        array([144, 144, 144, 144, 144])
    """
    table = {"kind": kind, **{name: _plain(value) for name, value in options.items()}}
    component = report_mistakes(kind, lambda: read_problem(table, Path.cwd()))
    problem: Problem = component.build()
    for note in problem.notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    return problem


def _plain(value: Any) -> Any:
    """Return paths and tuples as a file has them."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if type(value) is dict else value
