"""A finished run, gone on with: the same experiment, with more rounds."""

from pathlib import Path

from ..config.experiment import Experiment, load
from ..config.validation_errors import BadExperiment, Mistake
from ..metrics.stopping import reached
from ..runs.reader import Stored, below
from ..runs.writer import Writer
from .runner import RUN, Plan, again

FREE = {"rounds": 0, "stop": {}}  # what may differ between a run and the one that extends it


def extended(experiment: Experiment, out: Path) -> Plan | None:
    """The newest run of `experiment` below `out`, to be gone on with; None if there is none.

    Its folder gets the new number of rounds; what was made stays as it is. Raises `BadExperiment`
    where the run has made that many rounds already, or has reached a target of `stop`.
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
    """Whether a run is of that experiment, whatever its rounds."""
    if run.manifest["status"] == "diverged" or "site" in run.manifest:
        return False
    try:
        began = load(run.path / RUN)
    except BadExperiment:
        return False
    text = lambda one: one.model_copy(update=FREE).toml(run.path)
    return text(began) == text(experiment)
