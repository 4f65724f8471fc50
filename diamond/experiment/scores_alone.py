"""Scores of agents that learn alone, for the folder of a run."""

from pathlib import Path

from ..engine.compare_alone import compare_alone
from ..records.folder_writer import Writer
from ..records.solution import summarize_solution
from .loading import load


def add_cooperation(folder: Path, progress: bool = True) -> None:
    """Train the agents of the run in `folder` alone and on all rows; add the scores to its answer.

    Raises:
        ValueError: The run cannot be compared.
    """
    run = compare_alone(load(folder), progress=progress)
    with Writer(folder) as writer:
        writer.update_manifest(answer=summarize_solution(run))
