"""Extension of a finished run: the same experiment with more rounds."""

from pathlib import Path

from ..config.experiment_file import Experiment, load
from ..config.validation_errors import BadExperiment, Mistake
from ..metrics.stopping import reached
from ..records.folder_reader import Stored, below
from ..records.folder_writer import Writer
from .job_runner import RUN, Plan, again

FREE = {"rounds": 0, "stop": {}}  # settings that an extension may change


def extended(experiment: Experiment, out: Path) -> Plan | None:
    """Plan to extend the newest run of `experiment` below `out`; None if there is none.

    The run's folder gets the new number of rounds; existing results are kept. Raises
    `BadExperiment` if the run already has that many rounds or has reached a target of `stop`.
    """
    alike = [run for run in below(out) if _alike(run, experiment)]
    if not alike:
        return None
    run = max(alike, key=lambda run: run.manifest["started"])
    if run.manifest["status"] == "finished" and run.last["round"] >= experiment.rounds:
        said = (
            f"{run.path} has made {run.last['round']:,} rounds already; ask for more, or for a run "
            f"of its own by --set rounds={experiment.rounds}"
        )
        raise BadExperiment(experiment.name, [Mistake("rounds", said)])
    if run.lines and (why := reached(experiment.stop, run.last)):
        said = (
            f"{run.path} {why}: to extend it, give another target or none, as in --set 'stop={{}}'"
        )
        raise BadExperiment(experiment.name, [Mistake("stop", said)])
    with Writer(run.path) as writer:
        writer.extend(experiment.toml(run.path), experiment.rounds)
    return again(run.path)


def _alike(run: Stored, experiment: Experiment) -> bool:
    """Return whether a run is of that experiment, ignoring the number of rounds."""
    if run.manifest["status"] == "diverged" or "site" in run.manifest:
        return False
    try:
        began = load(run.path / RUN)
    except BadExperiment:
        return False
    text = lambda one: one.model_copy(update=FREE).toml(run.path)
    return text(began) == text(experiment)
