"""Saving of a run made in Python as a folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core import pytrees
from . import best_point, checkpoint
from .digest_chain import follow
from .folder_writer import Writer
from .manifest import Origin, closing, opening
from .run_data import RunData
from .snapshot import notes
from .trajectory_digest import digest

PYTHON = "python"  # name of the problem in the manifest of a run made in Python


def keep(run: RunData, path: Path, manifest: dict[str, Any], wall: float | None = None) -> Path:
    """Write `run` into the folder `path`, with its initial manifest."""
    with Writer(path) as writer:
        writer.begin(manifest, _config(manifest))
        for line in lines(run):
            writer.metrics.append({k: v for k, v in line.items() if k != "agents"}, line["agents"])
        written = writer.metrics.lines()
        took = float(run.history["seconds"][-1]) if wall is None else wall
        if saved := run.snapshot:
            arrays, about = saved.arrays, notes(saved, took) | {"chain": follow(written)}
        else:
            arrays = {f".state{name}": leaf for name, leaf in pytrees.named(run.state).items()}
            arrays, about = arrays | best_point.arrays(run.best), {}
        checkpoint.save(writer.checkpoints, run.rounds, arrays, about)
        shown = digest(written, run.x, run.y)
        writer.manifest(**closing(run, run.status, run.message, took, shown))
    return path


def manifest(run: RunData, name: str, label: str = "", experiment: str = PYTHON) -> dict[str, Any]:
    """Return the manifest of a run made in Python, under that name."""
    if run.problem is None:
        raise ValueError(
            "the run does not know its problem, so there is nothing to say of its rows; copy its "
            "folder instead, or load it by diamond.load(folder, problem)"
        )
    about = run.config.get("algorithm", {})
    label = label or about.get("label", "run")
    known = {"class": about["class"]} if "class" in about else about
    origin = Origin(name, experiment, PYTHON, label, label, known, "", {})
    gaps = np.diff(run.history["round"])
    every = int(gaps.max()) if len(gaps) else max(run.rounds, 1)
    rounds = run.config.get("rounds", run.rounds)
    fixed = run.seed, rounds, every, about.get("batch", 1), run.sampling
    more = {"status": run.status, "stop": plain_stop(run.config.get("stop", {}))}
    return opening(origin, run.problem, run.network, *fixed) | more | {"inputs": run.inputs}


def plain_stop(stop: Mapping[str, float | str]) -> dict[str, float | str]:
    """Convert `stop` to JSON types."""
    return {name: v if isinstance(v, str) else float(v) for name, v in stop.items()}


def lines(run: RunData) -> list[dict[str, Any]]:
    """Return the evaluations in the form of metrics.jsonl."""
    return [
        {name: np.asarray(values)[i].item() for name, values in run.history.items()}
        | {"agents": {name: np.asarray(own[i]) for name, own in run.per_agent.items()}}
        for i in range(len(run.history["round"]))
    ]


def _config(manifest: dict[str, Any]) -> str:
    """Format the config.toml of a run made in Python: a file cannot name a Python object."""
    import tomli_w

    scalars = {name: manifest[name] for name in ("name", "rounds", "every", "seed", "sampling")}
    note = "# Made in Python; manifest.json says what is known of it.\n"
    return note + tomli_w.dumps(scalars)
