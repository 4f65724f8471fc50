"""Extension of a finished run: the same experiment with more rounds."""

import tomllib
from pathlib import Path
from typing import Any

from ..config.experiment_file import Experiment, load
from ..config.validation_errors import BadExperiment, Mistake
from ..metrics.evaluations import default_every
from ..metrics.stopping import stop_reason
from ..records.folder_reader import StoredRun, find_runs
from ..records.folder_writer import Writer
from .plans import RUN_FILE, Plan, plan_resume

EXTENDABLE: dict[str, Any] = {"rounds": 0, "stop": {}}  # settings that an extension may change


def plan_extension(experiment: Experiment, out: Path) -> Plan | None:
    """Plan to extend the newest run of `experiment` below `out`; None if there is none.

    The run's folder gets the new number of rounds; existing results are kept. Raises
    `BadExperiment` if the run already has that many rounds or has reached a target of `stop`.
    """
    matching_runs = [run for run in find_runs(out) if _is_same_experiment(run, experiment)]
    if not matching_runs:
        return None
    run = max(matching_runs, key=lambda run: run.manifest["started"])
    last_round = run.last_evaluation["round"] if run.lines else 0
    if run.manifest["status"] == "finished" and last_round >= experiment.rounds:
        message = (
            f"{run.path} has {last_round:,} rounds already; ask for more, or start a separate run "
            f"by --set rounds={experiment.rounds}"
        )
        raise BadExperiment(experiment.name, [Mistake("rounds", message)])
    if run.lines and (reason := stop_reason(experiment.stop, run.last_evaluation)):
        message = (
            f"{run.path} {reason}: to extend it, give another target or none, as in "
            f"--set 'stop={{}}'"
        )
        raise BadExperiment(experiment.name, [Mistake("stop", message)])
    longer = experiment.model_copy(update={"every": load(run.path / RUN_FILE).every})
    with Writer(run.path) as writer:
        writer.extend_run(longer.to_toml(run.path), longer.rounds)
    return plan_resume(run.path)


def _is_same_experiment(run: StoredRun, experiment: Experiment) -> bool:
    """Return whether a run is of that experiment, ignoring the number of rounds."""
    if run.manifest["status"] == "diverged" or "site" in run.manifest:
        return False
    try:
        earlier = load(run.path / RUN_FILE)
    except BadExperiment:
        return False
    changes = dict(EXTENDABLE)
    if experiment.every == default_every(experiment.rounds):
        changes["every"] = 1  # by default a longer run is measured as often as the shorter one
    if earlier.measure is None and experiment.measure == _measure_of(run):
        changes["measure"] = None  # what the run measures by default is what the file asks for
    # Tables, since the keys of an earlier version's file may have another order.
    in_full = lambda settings: tomllib.loads(settings.model_copy(update=changes).to_toml(run.path))
    return bool(in_full(earlier) == in_full(experiment))


def _measure_of(run: StoredRun) -> list[str] | None:
    """Return the measure that a run without this setting has; None if nothing was measured."""
    if not run.lines:
        return None
    return ["exact" if "stationarity" in run.last_evaluation else "cheap"]
