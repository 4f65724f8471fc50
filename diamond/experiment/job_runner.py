"""Plans of experiments in folders: one run, a comparison, or the rest of an earlier one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from pydantic import ValidationError

from ..config.components import graph
from ..config.experiment_file import Experiment, load, parsed
from ..config.problem_section import problem
from ..config.validation_errors import BadExperiment, Mistake
from ..core.sampling import key
from ..engine.forecast import Forecast, forecast
from ..hardware.memory import TooLarge
from ..problem import Problem
from ..records.checkpoint import replace
from ..records.folder_lock import Busy
from ..records.folder_recovery import Lost, manifest
from ..records.run_saving import PYTHON
from .execution import Manifest, ProgressListener, ResumeOverrides, execute, finished
from .jobs import FAULTS, Job, build, fresh, jobs, misfits, precision
from .multi_process import dismiss, follow

COMPARISON = "experiment.toml"  # in a folder of runs: the comparison
COPIES = 12  # of x and y: four in a state, two checkpoints and the one being written
RUN = "config.toml"  # in the folder of a run


class Plan(NamedTuple):
    """Runs to execute, and their folders."""

    experiment: Experiment
    problem: Problem
    path: Path
    jobs: list[tuple[Job, Path]]

    @property
    def size(self) -> int:
        """Estimate the bytes of all checkpoints: a few times x and y of all agents."""
        leaves = jax.tree.leaves(jax.eval_shape(self.problem.init, key(0)))
        one = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) * self.problem.agents
        return COPIES * one * len(self.jobs)

    def forecasts(self, skip_failures: bool = False) -> dict[str, Forecast]:
        """Forecast the cost of each run; one seed is tried, since seeds cost the same.

        If `skip_failures` is true and there are other algorithms, leave out an algorithm that
        fails; `execute` reports it.
        """
        found: dict[str, Forecast] = {}
        seen: dict[tuple[int, int], Forecast] = {}
        failed: dict[tuple[int, int], Mistake | None] = {}
        skip_failures = skip_failures and len(self.jobs) > 1
        with precision(self.experiment):
            for job, _ in self.jobs:
                one = job.experiment
                same = id(one.algorithm[0]), id(one.network[0])
                if same in seen:
                    found[job.name] = seen[same]._replace(compile_seconds=0.0)
                elif same not in failed:
                    try:
                        found[job.name] = seen[same] = self._forecast(one)
                    except TooLarge as error:
                        failed[same] = Mistake(job.name, str(error))
                    except Exception as error:
                        if not skip_failures and not isinstance(error, ValueError):
                            raise
                        failed[same] = None if skip_failures else Mistake(job.name, str(error))
        if mistakes := list(filter(None, failed.values())):
            raise BadExperiment(self.experiment.name, mistakes)
        return found

    def _forecast(self, one: Experiment) -> Forecast:
        network, algorithm = one.network[0].build(), one.algorithm[0].build()
        fixed = one.rounds, one.seed[0], one.every, one.sampling, one.devices, one.products
        return forecast(self.problem, network, algorithm, *fixed, measure=one.measure)

    def assist(self) -> None:
        """Compute this process's agents in the run that the first process writes."""
        with precision(self.experiment):
            for job, _ in self.jobs:
                follow(job, self.problem)

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
        alone = len(self.jobs) == 1 or jax.process_count() > 1
        with precision(self.experiment):
            for job, path in self.jobs:
                done = finished(path)
                if done is None:
                    took = (compiled or {}).get(job.name, 0.0)
                    given = job, self.problem, path, listener, stopped, took, overrides
                    done = execute(*given) if alone else _attempt(*given)
                else:
                    if jax.process_count() > 1:
                        dismiss()
                    listener.end(job.name, done)
                manifests.append(done)
        return manifests


def _attempt(
    job: Job, problem: Problem, path: Path, listener: ProgressListener, *rest: Any
) -> Manifest:
    """Call `execute`; if the algorithm itself fails, return a manifest with the reason.

    Raises errors that would stop other runs too: a full disk, a locked or damaged folder, bad
    input.
    """
    try:
        return execute(job, problem, path, listener, *rest)
    except (OSError, Busy, Lost, BadExperiment):
        raise
    except Exception:
        failed, _ = manifest(path / "manifest.json")
        listener.end(job.name, failed)
        return failed


def single(experiment: Experiment, out: Path, source: str) -> Plan:
    """Plan one run in a new folder below `out`."""
    if not experiment.single:
        counts = {
            "algorithm": len(experiment.algorithm),
            "network": len(experiment.network),
            "seed": len(experiment.seed),
        }
        wrong = [
            Mistake(key, f"has {count} entries; one run takes one: use `diamond compare`")
            for key, count in counts.items()
            if count > 1
        ]
        raise BadExperiment(source, wrong)
    with precision(experiment):
        problem = build(experiment, source)
    path = fresh(out, experiment.name)
    return Plan(experiment, problem, path, [(jobs(experiment)[0]._replace(name=path.name), path)])


def comparison(experiment: Experiment, out: Path, source: str) -> Plan:
    """Plan every algorithm on every network from every seed, in a new folder of folders."""
    with precision(experiment):
        problem = build(experiment, source)
    path = fresh(out, experiment.name)
    return _among(experiment, problem, path)


def every_mistake(path: Path, changes: Sequence[str] = ()) -> Experiment:
    """Load the experiment in the file at `path`; raises `BadExperiment` with all mistakes.

    If parts of the file are invalid, the problem is still built, if possible, and checked against
    the networks.
    """
    try:
        return load(path, changes)
    except BadExperiment as error:
        raw, found = parsed(path, changes), list(error.mistakes)
        several = raw.get("network", [])
        try:
            made = problem(raw["problem"], path.parent.absolute())
            graphs = [graph(one) for one in (several if isinstance(several, list) else [several])]
        except (ValidationError, KeyError):
            raise error from None
        try:
            with jax.enable_x64(raw.get("precision") == "float64"):
                found += misfits(made.build(), graphs)
        except FAULTS as cause:
            found.append(Mistake("problem", str(cause)))
        raise BadExperiment(error.source, found) from None


def begin(plan: Plan) -> None:
    """Write the file of a comparison, so that the comparison can be resumed."""
    plan.path.mkdir(parents=True, exist_ok=True)
    replace(plan.path / COMPARISON, plan.experiment.toml(plan.path).encode())


def again(path: Path, devices: int | str | None = None) -> Plan:
    """Plan the rest of the run or comparison in the folder `path`, perhaps on other `devices`.

    A run that was not sharded before is not sharded now, since its sums would change their order.
    """
    if (path / COMPARISON).is_file():
        experiment = load(path / COMPARISON)
        with precision(experiment):
            return _among(experiment, build(experiment, str(path)), path)
    _refuse_python(path)
    if not (path / RUN).is_file():
        said = "is no run: there is neither config.toml nor experiment.toml in it"
        raise BadExperiment(str(path), [Mistake("", said)])
    experiment = load(path / RUN)
    if not experiment.single:
        raise BadExperiment(str(path / RUN), [Mistake("", "does not describe a single run")])
    if devices is not None:
        if experiment.devices is None:
            said = "was begun on one device, without `devices`: it goes on as it was, without"
            raise BadExperiment(str(path / RUN), [Mistake("devices", said)])
        experiment = experiment.model_copy(update={"devices": devices})
    with precision(experiment):
        problem = build(experiment, str(path))
    name = path.absolute().name
    return Plan(experiment, problem, path, [(jobs(experiment)[0]._replace(name=name), path)])


def _refuse_python(path: Path) -> None:
    """Refuse a run or comparison saved from Python: no file can rebuild its problem."""
    made = (path / "manifest.json").is_file() or not any(path.glob("*/manifest.json"))
    where = [path] if made else sorted(file.parent for file in path.glob("*/manifest.json"))
    known, _ = manifest(where[0] / "manifest.json")
    if known.get("problem", {}).get("name") != PYTHON:
        return
    call = (
        "simulate(problem, network, algorithm, rounds, seed"
        if made
        else "compare(problem, network, algorithms, rounds, seeds"
    )
    said = (
        f"was saved from Python, so no file makes its problem again; continue it from Python by "
        f"diamond.{call}, resume=diamond.load({str(path)!r}, problem))"
    )
    raise BadExperiment(str(path), [Mistake("", said)])


def _among(experiment: Experiment, problem: Problem, path: Path) -> Plan:
    found = [(job, path / job.name) for job in jobs(experiment)]
    return Plan(experiment, problem, path, found)
