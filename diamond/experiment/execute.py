"""One run into its folder: begun, gone on with, and ended."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax

from ..divergence import Diverged
from ..folder.manifest import Origin, closing, opening, versions
from ..folder.trajectory import digest
from ..folder.writer import Writer
from ..problem import Problem
from ..record import Saved
from ..run import Run
from ..runtimes.simulate import simulate
from ..stopping import reached
from .config import Experiment, relative
from .jobs import Job
from .mistakes import BadExperiment, Mistake
from .team import lead

Manifest = dict[str, Any]


class Watch(Protocol):
    """Whoever wants to see how the runs come along."""

    def begin(self, name: str, rounds: int) -> None: ...

    def stage(self, name: str, said: str) -> None: ...  # before the first evaluation

    def progress(self, name: str, entries: list[dict[str, float]]) -> None: ...

    def say(self, name: str, message: str) -> None: ...

    def end(self, name: str, manifest: Manifest) -> None: ...


def execute(
    job: Job,
    problem: Problem,
    path: Path,
    watch: Watch,
    stopped: Callable[[], bool] = lambda: False,
    compiled: float = 0.0,
) -> Manifest:
    """Run `job` in the folder `path`, from where an earlier attempt left it; the final manifest.

    `stopped` is asked after every evaluation; if so, all is saved and KeyboardInterrupt raised.
    `compiled` are seconds of compiling before.
    """
    watch.begin(job.name, job.experiment.rounds)
    with Writer(path, job.experiment.checkpoint_seconds) as writer:
        saved = _opened(writer, job, problem, watch)
        if jax.process_count() > 1:
            lead(saved)
        try:
            run, status, message = _simulated(writer, job, problem, watch, stopped, saved)
        except BaseException as error:
            asked = isinstance(error, KeyboardInterrupt)
            said = "" if asked else f"{type(error).__name__}: {error}"
            writer.manifest(status="interrupted", message=said, wall_seconds=writer.wall)
            raise
        shown = digest(writer.metrics.lines(), run.x, run.y)
        end = closing(run, status, message, writer.wall, shown)
        end["compile_seconds"] += compiled
        manifest = writer.manifest(**end)
    watch.end(job.name, manifest)
    return manifest


def _opened(writer: Writer, job: Job, problem: Problem, watch: Watch) -> Saved | None:
    """Where an earlier attempt left the run; None if it begins now."""
    saved, complaints = writer.restore()
    for complaint in complaints:
        watch.say(job.name, f"{complaint}; an earlier one is used")
    if saved is not None:
        writer.manifest(status="running", message="", finished=None)
        watch.progress(job.name, saved.entries)
        return saved
    one = job.experiment
    batch = one.algorithm[0].build().batch
    fixed = one.seed[0], one.rounds, one.every, batch, one.sampling
    manifest = opening(_origin(job, writer.path), problem, one.network[0].build(), *fixed)
    writer.begin(manifest, one.toml(writer.path))
    return None


def _simulated(
    writer: Writer,
    job: Job,
    problem: Problem,
    watch: Watch,
    stopped: Callable[[], bool],
    saved: Saved | None,
) -> tuple[Run, str, str]:
    """The run, what became of it, and why."""
    one = job.experiment

    def progress(saved: Saved) -> None:
        entry = saved.entries[-1]
        last = entry["round"] == one.rounds or bool(reached(one.stop, entry))
        writer.note(saved, last)
        watch.progress(job.name, saved.entries)
        if stopped() and not last:
            writer.save(saved)
            raise KeyboardInterrupt

    network, algorithm = one.network[0].build(), one.algorithm[0].build()
    fixed = one.rounds, one.seed[0], one.every, one.sampling
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = lambda message, *_, **__: watch.say(job.name, str(message))
        try:
            run = simulate(
                problem,
                network,
                algorithm,
                *fixed,
                stop=one.stop,
                on_divergence=one.on_divergence,
                on_progress=progress,
                resume=saved,
                devices=one.devices,
                precision=one.products,
                on_stage=lambda said: watch.stage(job.name, said),
            )
            return run, "finished", run.message
        except Diverged as error:
            return error.run, "diverged", str(error)


def finished(path: Path) -> Manifest | None:
    """The manifest of a run that has come to its end, by its last round or by diverging."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    return manifest if manifest["status"] in ("finished", "diverged") else None


def unchanged(experiment: Experiment, path: Path) -> list[str]:
    """Refuse to go on with another problem than the run began with; returns what to be aware of."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except (OSError, ValueError):
        return []  # not even begun
    then, now = manifest["problem"]["sources"], _sources(experiment, path)
    if then != now:
        changed = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
        said = (
            f"{', '.join(changed)} is not what it was when the run began, so the rounds to come "
            f"would be of another problem; restore it, or begin anew by `diamond run`"
        )
        raise BadExperiment(str(path), [Mistake("problem", said)])
    began = manifest["versions"]
    return [
        f"begun with {name} {began.get(name)}, continued with {version}: bits may differ"
        for name, version in versions().items()
        if began.get(name) != version
    ]


def _origin(job: Job, path: Path) -> Origin:
    one = job.experiment
    part = one.algorithm[0]
    name = Path(one.problem.name).name
    command = f"diamond run {(path / 'config.toml').as_posix()}"
    return Origin(
        name=job.name,
        experiment=one.name,
        problem=name,
        algorithm=Path(part.name).name,
        label=part.label,
        options=part.options,
        command=command,
        sources=_sources(one, path),
    )


def _sources(experiment: Experiment, path: Path) -> dict[str, str]:
    """The user's own files as seen from the run's folder, with their digests."""
    return {relative(file, path): d for file, d in experiment.sources.items()}
