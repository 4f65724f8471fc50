"""Saving of a run made in Python as a folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import pytrees
from . import best_point, checkpoint_file
from .checkpoint_content import snapshot_notes
from .digest_chain import chain_digest
from .folder_writer import Writer
from .manifest import RunOrigin, final_fields, initial_manifest
from .trajectory_digest import digest_trajectory

if TYPE_CHECKING:
    from .run import Run

PYTHON = "python"  # name of the problem in the manifest of a run made in Python


def save_run(
    run: "Run", path: Path, manifest: dict[str, Any], wall_seconds: float | None = None
) -> Path:
    """Write `run` into the folder `path`, with its initial manifest."""
    with Writer(path) as writer:
        writer.begin(manifest, _config(manifest, run.config.get("description", "")))
        writer.write_preparation(None if run.predictor is None else run.predictor.preparation)
        for line in history_lines(run):
            writer.metrics.append({k: v for k, v in line.items() if k != "agents"}, line["agents"])
        saved_lines = writer.metrics.lines()
        seconds = float(run.history["seconds"][-1]) if wall_seconds is None else wall_seconds
        if snapshot := run.snapshot:
            arrays, notes = (
                snapshot.arrays,
                snapshot_notes(snapshot, seconds) | {"chain": chain_digest(saved_lines)},
            )
        else:
            arrays = {
                f".state{name}": leaf for name, leaf in pytrees.named_leaves(run.state).items()
            }
            arrays, notes = arrays | best_point.to_arrays(run.best), {}
        checkpoint_file.save(writer.checkpoints, run.rounds, arrays, notes)
        trajectory = digest_trajectory(saved_lines, run.last_x, run.last_y)
        writer.update_manifest(
            **final_fields(run, run.status, run.message, seconds, digest=trajectory)
        )
    return path


def make_manifest(
    run: "Run", name: str, label: str = "", experiment: str = PYTHON
) -> dict[str, Any]:
    """Return the manifest of a run made in Python, under that name."""
    if run.problem is None:
        raise ValueError(
            "the run does not know its problem, so its rows cannot be described; copy its "
            "folder instead, or load it by diamond.load(folder, problem)"
        )
    algorithm = run.config.get("algorithm", {})
    label = label or algorithm.get("label", "run")
    options = {"class": algorithm["class"]} if "class" in algorithm else algorithm
    origin = RunOrigin(name, experiment, PYTHON, label, label, options, "", {})
    gaps = np.diff(run.history["round"])
    every = int(gaps.max()) if len(gaps) else max(run.rounds, 1)
    rounds = run.config.get("rounds", run.rounds)
    outcome = {"status": run.status, "stop": stop_to_json(run.config.get("stop", {}))}
    return (
        initial_manifest(
            origin,
            run.problem,
            run.network,
            run.seed,
            rounds,
            every,
            algorithm.get("batch", 1),
            run.sampling,
        )
        | outcome
        | {"inputs": run.inputs}
    )


def stop_to_json(stop: Mapping[str, float | str]) -> dict[str, float | str]:
    """Convert `stop` to JSON types."""
    return {name: v if isinstance(v, str) else float(v) for name, v in stop.items()}


def history_lines(run: "Run") -> list[dict[str, Any]]:
    """Return the evaluations in the form of metrics.jsonl."""
    return [
        {name: np.asarray(values)[i].item() for name, values in run.history.items()}
        | {"agents": {name: np.asarray(values[i]) for name, values in run.per_agent.items()}}
        for i in range(len(run.history["round"]))
    ]


def _config(manifest: dict[str, Any], description: str) -> str:
    """Format the config.toml of a run made in Python: a file cannot name a Python object."""
    import tomli_w

    scalars = {name: manifest[name] for name in ("name", "rounds", "every", "seed", "sampling")}
    scalars |= {"description": description} if description else {}
    note = "# Made in Python; manifest.json describes the run.\n"
    return note + tomli_w.dumps(scalars)
