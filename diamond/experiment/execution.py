"""Execute or resume one run in its folder."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax

from ..config.experiment_file import Experiment, make_relative
from ..config.validation_errors import BadExperiment, Mistake
from ..core.pytrees import StateMismatch
from ..metrics.divergence_error import Diverged
from ..metrics.stopping import stop_reason
from ..privacy.private_runs import describe_privacy
from ..problem import Problem
from ..records.checkpoint_content import Snapshot
from ..records.folder_recovery import last_round, read_manifest
from ..records.folder_writer import Writer
from ..records.manifest import (
    RunOrigin,
    current_time,
    data_digests,
    final_fields,
    initial_manifest,
    package_versions,
)
from ..records.run import Run
from .jobs import Job
from .multi_process import start_followers

Manifest = dict[str, Any]


class ResumeOverrides(NamedTuple):
    """Overrides for the consistency checks of `resume`."""

    restart: bool = False  # start from round 0 if no checkpoint can be read
    changed_data: bool = False  # continue although rows, files or packages have changed


class ProgressListener(Protocol):
    """Receives the progress of runs."""

    def begin(self, name: str, rounds: int) -> None: ...

    def stage(self, name: str, message: str) -> None: ...  # before the first evaluation

    def progress(self, name: str, entries: list[dict[str, float]]) -> None: ...

    def say(self, name: str, message: str) -> None: ...

    def end(self, name: str, manifest: Manifest) -> None: ...


def execute(
    job: Job,
    problem: Problem,
    path: Path,
    listener: ProgressListener,
    stopped: Callable[[], bool] = lambda: False,
    compiled: float = 0.0,
    overrides: ResumeOverrides = ResumeOverrides(),
) -> Manifest:
    """Run `job` in the folder `path`, or resume it there; return the final manifest.

    Args:
        stopped: Called after every evaluation; if true, the run is saved and KeyboardInterrupt
            raised.
        compiled: Seconds of compilation before this call, for the manifest.
    """
    listener.begin(job.name, job.experiment.rounds)
    with Writer(path, job.experiment.checkpoint_seconds) as writer:
        changes = check_unchanged(job.experiment, problem, path, overrides)
        execution = _Execution(writer, job, problem, listener)
        saved = execution.restore_or_begin(overrides)
        if changes and saved is not None:
            execution.record_changes(saved, changes)
        if jax.process_count() > 1:
            start_followers(saved)
        try:
            run, status, message, rounds = execution.simulate(stopped, saved)
        except BaseException as error:
            is_interrupt = isinstance(error, KeyboardInterrupt)
            message = "" if is_interrupt else f"{type(error).__name__}: {error}"
            rounds = max(last_round(writer.metrics.lines()), 0)
            writer.update_manifest(
                status="interrupted",
                message=message,
                wall_seconds=writer.wall_seconds,
                **execution.spent_privacy(rounds),
            )
            raise
        digest = writer.final_digest(run.last_x, run.last_y)
        end = final_fields(run, status, message, writer.wall_seconds, digest=digest)
        end["compile_seconds"] += compiled
        manifest = writer.update_manifest(**end | execution.spent_privacy(rounds))
    listener.end(job.name, manifest)
    return manifest


class _Execution(NamedTuple):
    """A job and the writer of its folder."""

    writer: Writer
    job: Job
    problem: Problem
    listener: ProgressListener

    def restore_or_begin(self, overrides: ResumeOverrides) -> Snapshot | None:
        """Return the snapshot to resume from; None if the run starts now."""
        writer, job = self.writer, self.job
        saved, complaints = writer.restore(overrides.restart)
        for complaint in complaints:
            self.listener.say(job.name, complaint)
        writer.write_preparation(self.problem.preparation)
        if saved is None:
            writer.begin(self.initial_manifest(), job.experiment.to_toml(writer.path))
            return None
        known = writer.update_manifest() or self.initial_manifest()
        writer.update_manifest(**known | {"status": "running", "message": "", "finished": None})
        if saved.entries:
            self.listener.progress(job.name, saved.entries)
        return saved

    def initial_manifest(self) -> Manifest:
        """Return the initial manifest of the run."""
        experiment = self.job.experiment
        manifest = initial_manifest(
            _describe_origin(self.job, self.writer.path),
            self.problem,
            experiment.network[0].build(),
            experiment.seed[0],
            experiment.rounds,
            experiment.every,
            experiment.algorithm[0].build().batch,
            experiment.sampling,
        )
        return manifest | self.spent_privacy(0)

    def spent_privacy(self, rounds: int) -> Manifest:
        """Return what `rounds` rounds spend, as a field of the manifest."""
        algorithm = self.job.experiment.algorithm[0].build()
        privacy = describe_privacy(algorithm, self.problem, rounds)
        return {} if privacy is None else {"privacy": privacy}

    def record_changes(self, saved: Snapshot, changes: list[str]) -> None:
        """Report that the run continues with changed inputs, also in the manifest."""
        now, known = self.initial_manifest(), self.writer.update_manifest()
        round = int(saved.entries[-1]["round"]) if saved.entries else 0
        change = {"round": round, "when": current_time(), "what": changes}
        changed = [*known.get("changed", []), change]
        self.writer.update_manifest(
            changed=changed, problem=now["problem"], versions=now["versions"]
        )
        self.listener.say(self.job.name, f"continues although {'; '.join(changes)}")

    def simulate(
        self, stopped: Callable[[], bool], saved: Snapshot | None
    ) -> tuple[Run, str, str, int]:
        """Simulate; return the run, its status, the message of the status, and the rounds made."""
        writer, job, listener = self.writer, self.job, self.listener

        def progress(saved: Snapshot) -> None:
            entry, stop = saved.entries[-1], job.experiment.stop
            last = entry["round"] == job.experiment.rounds or bool(stop_reason(stop, entry))
            writer.record_snapshot(saved, last)
            listener.progress(job.name, saved.entries)
            if stopped() and not last:
                writer.save_checkpoint(saved)
                raise KeyboardInterrupt

        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: listener.say(job.name, str(message))
            on_stage = lambda message: listener.stage(job.name, message)
            options = {"on_progress": progress, "resume": saved, "on_stage": on_stage}
            try:
                run = job.simulate(self.problem, **options)
                if run.snapshot is not None:  # the last evaluation of a run that ends by itself
                    writer.save_checkpoint(run.snapshot)
                return run, "finished", run.message, run.rounds
            except Diverged as error:
                return error.run, "diverged", str(error), error.rounds_made
            except StateMismatch as error:
                message = (
                    f"{error}; it was written by another version: start the run again in a new "
                    f"folder"
                )
                raise BadExperiment(job.name, [Mistake("checkpoint", message)]) from error


def finished_manifest(path: Path) -> Manifest | None:
    """Return the manifest of a run that has finished or diverged, else None."""
    known, _ = read_manifest(path / "manifest.json")
    return known if known.get("status") in ("finished", "diverged") else None


def check_unchanged(
    experiment: Experiment, problem: Problem, path: Path, overrides: ResumeOverrides
) -> list[str]:
    """List the inputs that changed since the run started; raise unless `overrides` allow changes.

    With changed inputs, later rounds would solve another problem or have other bits.
    """
    then, _ = read_manifest(path / "manifest.json")
    if not then:
        return []  # not started yet
    versions_then, versions_now = then["versions"], package_versions()
    changes = changed_inputs(experiment, problem, path, then)
    changes += [
        f"it was started with {name} {versions_then.get(name)}, but this is "
        f"{versions_now.get(name)}"
        for name in _changed_keys(versions_then, versions_now)
    ]
    if changes and not overrides.changed_data:
        message = (
            f"{'; '.join(changes)}: restore it, start a new run by `diamond run`, or continue "
            f"anyway by `diamond resume --changed-data`, which the manifest will record"
        )
        raise BadExperiment(str(path), [Mistake("problem", message)])
    return changes


def changed_inputs(
    experiment: Experiment, problem: Problem, path: Path, manifest: Mapping[str, Any]
) -> list[str]:
    """List the files and rows of the run that differ from those in the manifest."""
    before = manifest["problem"]
    files = _changed_keys(before["sources"], _source_digests(experiment, path))
    rows = (
        _changed_keys(before.get("data", {}), data_digests(problem)) if before.get("data") else []
    )
    return [f"{name} has changed since the run started" for name in files] + [
        f"its {name} rows have changed since the run started" for name in rows
    ]


def _changed_keys(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def _describe_origin(job: Job, path: Path) -> RunOrigin:
    experiment = job.experiment
    part = experiment.algorithm[0]
    name = Path(experiment.problem.name).name
    command = f"diamond run {(path / 'config.toml').as_posix()}"
    return RunOrigin(
        name=job.name,
        experiment=experiment.name,
        problem=name,
        algorithm=Path(part.name).name,
        label=part.label,
        options=part.options,
        command=command,
        sources=_source_digests(experiment, path),
    )


def _source_digests(experiment: Experiment, path: Path) -> dict[str, str]:
    """Return the user's own files relative to the run's folder, with their digests."""
    return {make_relative(file, path): d for file, d in experiment.sources.items()}
