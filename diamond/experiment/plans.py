"""Plans of experiments in folders: one run, a comparison, or the rest of an earlier one."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
from pydantic import ValidationError

from ..config.components import read_network
from ..config.experiment_file import Experiment, load, parse_file
from ..config.problem_section import read_problem
from ..config.validation_errors import BadExperiment, Mistake
from ..core.sampling import key
from ..engine.forecast import Forecast, forecast
from ..hardware.device_memory import TooLarge
from ..privacy.private_runs import describe_noise
from ..problem import Problem
from ..records.checkpoint_file import replace_file
from ..records.folder_lock import FolderBusy
from ..records.folder_recovery import UnrecoverableRun, read_manifest
from ..records.run_saving import PYTHON
from .execution import Manifest, ProgressListener, ResumeOverrides, execute, finished_manifest
from .jobs import (
    BUILD_ERRORS,
    Job,
    build_problem,
    expand_jobs,
    network_mistakes,
    unused_folder,
    use_precision,
)
from .multi_process import dismiss_followers, run_follower

COMPARISON_FILE = "experiment.toml"  # in a folder of runs: the comparison
COPIES = 12  # of x and y: four in a state, two checkpoints and the one being written
RUN_FILE = "config.toml"  # in the folder of a run


class Plan(NamedTuple):
    """Runs to execute, and their folders."""

    experiment: Experiment
    problem: Problem
    path: Path
    jobs: list[tuple[Job, Path]]

    @property
    def checkpoint_bytes(self) -> int:
        """Estimate the bytes of all checkpoints: a few times x and y of all agents."""
        leaves = jax.tree.leaves(jax.eval_shape(self.problem.init, key(0)))
        copy_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) * self.problem.agents
        return COPIES * copy_bytes * len(self.jobs)

    @property
    def notes(self) -> list[str]:
        """Return remarks about the rows, and about the noise of private methods."""
        notes, algorithms = list(self.problem.notes), self.experiment.algorithm
        for part in algorithms if self.experiment.privacy is not None else []:
            with suppress(ValueError):  # the run itself is refused with the reason
                noise = describe_noise(part.build(), self.problem)
                notes.append(noise if len(algorithms) == 1 else f"{part.label}: {noise}")
        return notes

    def forecasts(self, skip_failures: bool = False) -> dict[str, Forecast]:
        """Forecast the cost of each run; one seed is tried, since seeds cost the same.

        If `skip_failures` is true and there are other algorithms, leave out an algorithm that
        fails; `execute` reports it.
        """
        by_name: dict[str, Forecast] = {}
        by_pair: dict[tuple[int, int], Forecast] = {}
        failed: dict[tuple[int, int], Mistake | None] = {}
        skip_failures = skip_failures and len(self.jobs) > 1
        with use_precision(self.experiment):
            for job, _ in self.jobs:
                experiment = job.experiment
                pair = id(experiment.algorithm[0]), id(experiment.network[0])
                if pair in by_pair:
                    by_name[job.name] = by_pair[pair]._replace(compile_seconds=0.0)
                elif pair not in failed:
                    try:
                        by_name[job.name] = by_pair[pair] = self._forecast(experiment)
                    except TooLarge as error:
                        failed[pair] = Mistake(job.name, str(error))
                    except Exception as error:
                        if not skip_failures and not isinstance(error, ValueError):
                            raise
                        failed[pair] = None if skip_failures else Mistake(job.name, str(error))
        if mistakes := list(filter(None, failed.values())):
            raise BadExperiment(self.experiment.name, mistakes)
        return by_name

    def _forecast(self, experiment: Experiment) -> Forecast:
        network, algorithm = experiment.network[0].build(), experiment.algorithm[0].build()
        return forecast(
            self.problem,
            network,
            algorithm,
            experiment.rounds,
            experiment.seed[0],
            experiment.every,
            experiment.sampling,
            experiment.devices,
            experiment.product_precision,
            measure=experiment.measure,
        )

    def run_as_follower(self) -> None:
        """Compute this process's agents in the run that the first process writes."""
        with use_precision(self.experiment):
            for job, _ in self.jobs:
                run_follower(job, self.problem)

    def execute(
        self,
        listener: ProgressListener,
        stopped: Callable[[], bool] = lambda: False,
        compiled: dict[str, float] | None = None,
        overrides: ResumeOverrides = ResumeOverrides(),
    ) -> list[Manifest]:
        """Execute the unfinished runs; a run that diverges or fails does not stop the others.

        The manifest of a failed run states the reason and that the run can be resumed.
        """
        manifests = []
        is_only_run = len(self.jobs) == 1 or jax.process_count() > 1
        with use_precision(self.experiment):
            for job, path in self.jobs:
                manifest = finished_manifest(path)
                if manifest is None:
                    seconds = (compiled or {}).get(job.name, 0.0)
                    run = execute if is_only_run else _try_execute
                    manifest = run(job, self.problem, path, listener, stopped, seconds, overrides)
                else:
                    if jax.process_count() > 1:
                        dismiss_followers()
                    listener.end(job.name, manifest)
                manifests.append(manifest)
        return manifests


def _try_execute(
    job: Job, problem: Problem, path: Path, listener: ProgressListener, *rest: Any
) -> Manifest:
    """Call `execute`; if the algorithm itself fails, return a manifest with the reason.

    Raises errors that would stop other runs too: a full disk, a locked or damaged folder, bad
    input.
    """
    try:
        return execute(job, problem, path, listener, *rest)
    except (OSError, FolderBusy, UnrecoverableRun, BadExperiment):
        raise
    except Exception:
        failed, _ = read_manifest(path / "manifest.json")
        listener.end(job.name, failed)
        return failed


def plan_run(experiment: Experiment, out: Path, source: str) -> Plan:
    """Plan one run in a new folder below `out`."""
    if not experiment.is_single_run:
        counts = {
            "algorithm": len(experiment.algorithm),
            "network": len(experiment.network),
            "seed": len(experiment.seed),
        }
        mistakes = [
            Mistake(key, f"has {count} entries; one run takes one: use `diamond compare`")
            for key, count in counts.items()
            if count > 1
        ]
        raise BadExperiment(source, mistakes)
    with use_precision(experiment):
        problem = build_problem(experiment, source)
    path = unused_folder(out, experiment.name)
    return Plan(experiment, problem, path, [(Job(path.name, experiment), path)])


def plan_comparison(experiment: Experiment, out: Path, source: str) -> Plan:
    """Plan every algorithm on every network from every seed, in a new folder of folders."""
    with use_precision(experiment):
        problem = build_problem(experiment, source)
    path = unused_folder(out, experiment.name)
    return _plan_jobs(experiment, problem, path)


def load_and_check(path: Path, changes: Sequence[str] = ()) -> Experiment:
    """Load the experiment in the file at `path`; raises `BadExperiment` with all mistakes.

    If parts of the file are invalid, the problem is still built, if possible, and checked against
    the networks.
    """
    try:
        return load(path, changes)
    except BadExperiment as error:
        raw, mistakes = parse_file(path, changes), list(error.mistakes)
        networks = raw.get("network", [])
        try:
            problem_component = read_problem(raw["problem"], path.parent.absolute())
            graphs = [
                read_network(network)
                for network in (networks if isinstance(networks, list) else [networks])
            ]
        except (ValidationError, KeyError):
            raise error from None
        try:
            with jax.enable_x64(raw.get("precision") == "float64"):
                mistakes += network_mistakes(problem_component.build(), graphs)
        except BUILD_ERRORS as cause:
            mistakes.append(Mistake("problem", str(cause)))
        raise BadExperiment(error.source, mistakes) from None


def write_comparison_file(plan: Plan) -> None:
    """Write the file of a comparison, so that the comparison can be resumed."""
    plan.path.mkdir(parents=True, exist_ok=True)
    replace_file(plan.path / COMPARISON_FILE, plan.experiment.to_toml(plan.path).encode())


def plan_resume(path: Path, devices: int | str | None = None) -> Plan:
    """Plan the rest of the run or comparison in the folder `path`, perhaps on other `devices`.

    A run that was not sharded before is not sharded now, since its sums would change their order.
    """
    if (path / COMPARISON_FILE).is_file():
        experiment = load(path / COMPARISON_FILE)
        with use_precision(experiment):
            return _plan_jobs(experiment, build_problem(experiment, str(path)), path)
    _refuse_python_run(path)
    if not (path / RUN_FILE).is_file():
        message = (
            "is no run: it contains neither config.toml nor experiment.toml; `diamond list` names "
            "the runs below runs/"
        )
        raise BadExperiment(str(path), [Mistake("", message)])
    experiment = load(path / RUN_FILE)
    if not experiment.is_single_run:
        raise BadExperiment(str(path / RUN_FILE), [Mistake("", "does not describe a single run")])
    if devices is not None:
        if experiment.devices is None:
            message = (
                "was started on one device, without `devices`; it must be resumed the same way"
            )
            raise BadExperiment(str(path / RUN_FILE), [Mistake("devices", message)])
        experiment = experiment.model_copy(update={"devices": devices})
    with use_precision(experiment):
        problem = build_problem(experiment, str(path))
    return Plan(experiment, problem, path, [(Job(path.absolute().name, experiment), path)])


def _refuse_python_run(path: Path) -> None:
    """Refuse a run or comparison saved from Python: no file can rebuild its problem."""
    is_single_run = (path / "manifest.json").is_file() or not any(path.glob("*/manifest.json"))
    folders = (
        [path] if is_single_run else sorted(file.parent for file in path.glob("*/manifest.json"))
    )
    manifest_found, _ = read_manifest(folders[0] / "manifest.json")
    if manifest_found.get("problem", {}).get("name") != PYTHON:
        return
    call = (
        "simulate(problem, network, algorithm, rounds, seed"
        if is_single_run
        else "compare(problem, network, algorithms, rounds, seeds"
    )
    message = (
        f"was saved from Python, so no file can rebuild its problem; continue it from Python by "
        f"diamond.{call}, resume=diamond.load({str(path)!r}, problem))"
    )
    raise BadExperiment(str(path), [Mistake("", message)])


def _plan_jobs(experiment: Experiment, problem: Problem, path: Path) -> Plan:
    jobs = [(job, path / job.name) for job in expand_jobs(experiment)]
    return Plan(experiment, problem, path, jobs)
