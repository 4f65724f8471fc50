"""Loading of runs and comparisons from their folders."""

import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import networkx as nx
import numpy as np

from ..config import experiment_file as config
from ..core import pytrees
from ..core.pytrees import Tree
from ..engine.compare_alone import compare_alone
from ..interface.round_interface import state_part
from ..network import Network, from_graph
from ..network.mixing.lost_messages import MessageCounts
from ..network.mixing_weights import RULES
from ..problem import Problem
from ..records import best_point, checkpoint_file
from ..records.best_point import BestPoint
from ..records.checkpoint_content import Snapshot, restore_snapshot
from ..records.checkpoint_file import Checkpoint
from ..records.cooperation import read_cooperation
from ..records.folder_reader import StoredRun, find_runs, open_run, sort_by_start
from ..records.folder_recovery import read_manifest
from ..records.folder_writer import Writer
from ..records.manifest import data_digests
from ..records.run import Run
from ..records.run_inputs import describe
from ..records.solution import summarize_solution
from ..records.stored_arrays import add_agent_axis, rebuild_tree
from ..records.stored_models import stored_predictor
from .comparison import COMPARISON_NAME, Comparison
from .execution import changed_inputs
from .jobs import build_problem, use_precision
from .plans import COMPARISON_FILE, RUN_FILE


def load(folder: str | Path, problem: Problem | None = None) -> Any:
    """Load the run or the comparison in `folder`.

    To continue it, use `diamond.simulate(problem, network, algorithm, rounds, resume=run)` or
    `diamond.compare(..., resume=comparison)`; `run.snapshot` is the `Snapshot`.

    Args:
        folder: Folder of a run, finished or not, or a folder of such folders.
        problem: Problem of a run saved from Python. Other problems are rebuilt from config.toml.
            Without a problem, x and y are dicts, lists and named tuples by the names of their
            leaves.

    Returns:
        A `Run` as of its newest checkpoint, or a `Comparison`. x, y and `best` have the problem's
        own structure, with NumPy arrays.

    Examples:
        >>> problem = diamond.gallery.quadratic(agents=4, upper=3, lower=3, rows=20)
        >>> network = diamond.network.ring(4)
        >>> run = diamond.simulate(problem, network, diamond.dsgd(batch=4), rounds=2)
        >>> folder = run.save("runs/mine")
        >>> diamond.load(folder, problem).rounds
        2
    """
    path = Path(folder)
    if (path / "manifest.json").is_file():
        return _load_run(path, problem)
    runs_inside = sort_by_start(run for run in find_runs(path) if run.path.parent == path)
    from_python = all(run.manifest["experiment"] == COMPARISON_NAME for run in runs_inside)
    if runs_inside and (from_python or (path / COMPARISON_FILE).is_file()):
        return _load_comparison(path, runs_inside, problem)
    raise FileNotFoundError(
        f"{path}: no run found, and no comparison; a run's folder contains manifest.json"
    )


def add_cooperation(folder: Path, progress: bool) -> None:
    """Train the agents of the run in `folder` alone and on all rows; add the scores to its answer.

    Raises:
        ValueError: The run cannot be compared.
    """
    run = compare_alone(load(folder), progress=progress)
    with Writer(folder) as writer:
        writer.update_manifest(answer=summarize_solution(run))


def _load_comparison(
    path: Path, runs_inside: list[StoredRun], problem: Problem | None
) -> Comparison:
    """Load the comparison whose runs are in the folder `path`."""
    manifests = [stored.manifest for stored in runs_inside]
    run_keys = [(manifest["algorithm"]["label"], manifest["seed"]) for manifest in manifests]
    if len({*run_keys}) < len(run_keys):
        raise ValueError(
            f"{path}: several runs have the same algorithm and seed, on other networks perhaps; "
            f"load each run by its own folder"
        )
    runs: dict[tuple[str, int], Run] = {}
    for run_key, stored in zip(run_keys, runs_inside):
        runs[run_key] = _load_run(stored.path, problem)
        problem = problem or runs[run_key].problem
    has_file = (path / COMPARISON_FILE).is_file()
    experiment = _load_experiment(path, COMPARISON_FILE) if has_file else None
    return Comparison(
        problem,
        next(iter(runs.values())).network,
        {part.label: part.build() for part in experiment.algorithm} if experiment else {},
        runs,
        {run_key: run.message for run_key, run in runs.items() if run.status == "diverged"},
        {key: known.get("wall_seconds", 0.0) for key, known in zip(run_keys, manifests)},
        max(manifest["rounds"] for manifest in manifests),
        manifests[0]["every"],
        dict(experiment.stop) if experiment else manifests[0].get("stop", {}),
    )


def _load_run(path: Path, problem: Problem | None) -> Run:
    """Load the run in the folder `path`."""
    stored = open_run(path)
    newest = checkpoint_file.load_newest(path / "checkpoint")
    config_values = tomllib.loads((path / RUN_FILE).read_text(encoding="utf-8"))
    is_experiment = "problem" in config_values and "site" not in stored.manifest
    experiment = _load_experiment(path) if is_experiment else None
    if problem is None and experiment is not None:
        problem = _rebuild_problem(path, experiment)
    arrays = add_agent_axis(stored.manifest, newest.arrays)
    state_tree = rebuild_tree(arrays)
    state = state_tree.state
    x, y = state.x, state_part(state, "y")  # no arrays, so no field, without a lower level
    if problem is not None:
        start = dict(zip("xy", problem.start(stored.manifest["seed"])))
        x, y = (_restore_structure(start[name], f".state.{name}", arrays) for name in "xy")
        state = state._replace(**{k: v for k, v in [("x", x), ("y", y)] if hasattr(state, k)})
        if experiment is None:
            _check_rows(path, stored.manifest, problem)
    manifest = stored.manifest
    names = "resolved", "sampling", "seed", "status", "message"
    fields = {name: manifest[name] for name in names}
    network, inputs = _network_and_inputs(manifest, experiment)
    run = Run(
        last_x=x,
        last_y=y,
        history=_as_columns([{k: v for k, v in e.items() if k != "agents"} for e in stored.lines]),
        per_agent=_as_columns([line["agents"] for line in stored.lines]),
        state=state,
        rounds=newest.round,
        network=network,
        costs={name: np.array(spent) for name, spent in manifest.get("costs", {}).items()},
        traffic={(i, j): sent for i, j, sent in manifest.get("traffic", [])},
        messages=manifest.get("messages", 0),
        compile_seconds=manifest.get("compile_seconds", 0.0),
        best=_best_point(problem, stored, arrays, state_part(state_tree, "best")),
        config=config_values,
        problem=problem,
        snapshot=_snapshot(stored, newest),
        inputs=inputs,
        cooperation=read_cooperation(manifest.get("answer")),
        stored_predictor=stored_predictor(stored) if problem is None else None,
        **fields,
    )
    lost_counts = {(i, j): MessageCounts(*counts) for i, j, *counts in manifest.get("losses", [])}
    vars(run)["lost_messages"] = lost_counts  # as counted, rather than drawn again
    return run


def _network_and_inputs(
    manifest: Mapping[str, Any], experiment: Any
) -> tuple[Network, dict[str, dict[str, str]]]:
    """Return the network of a run and the description of its inputs, empty if not saved."""
    if experiment is None:
        return _rebuild_network(manifest["network"]), manifest.get("inputs", {})
    network = experiment.network[0].build()
    try:
        return network, describe(network, experiment.algorithm[0].build())
    except (ImportError, OSError, ValueError):
        return network, {}  # a user's method that no longer exists


def _snapshot(stored: StoredRun, newest: Checkpoint) -> Snapshot | None:
    """Return the snapshot of a checkpoint; None if it has the state only, or that of one site."""
    if "found" not in newest.notes or "site" in stored.manifest:
        return None
    lines = [line for line in stored.lines if line["round"] <= newest.round]
    return restore_snapshot(newest.arrays, newest.notes, lines)


def _check_rows(path: Path, manifest: Mapping[str, Any], problem: Problem) -> None:
    """Warn if the rows of `problem` differ from those of the run."""
    digests_then = manifest["problem"].get("data") or {}
    digests_now = data_digests(problem) if digests_then else {}
    if changed := [part for part in digests_then if digests_then[part] != digests_now.get(part)]:
        warnings.warn(
            f"the {' and '.join(changed)} rows of the problem are not those of the run in {path}: "
            f"a run that continues from there is of another problem",
            RuntimeWarning,
            stacklevel=4,
        )


def _load_experiment(path: Path, name: str = RUN_FILE) -> Any:
    """Load config.toml; None, with a warning, if it can no longer be read."""
    try:
        return config.load(path / name)
    except ValueError as cause:
        _warn_without_problem(path, cause)
        return None


def _rebuild_problem(path: Path, experiment: Any) -> Problem | None:
    """Rebuild the problem of the run; None if it has changed."""
    try:
        with use_precision(experiment):
            problem = build_problem(experiment, str(path))
        manifest, _ = read_manifest(path / "manifest.json")
        if manifest and (changes := changed_inputs(experiment, problem, path, manifest)):
            remedy = "on another processor computed rows differ by rounding: give the problem too"
            raise ValueError("; ".join([*changes, remedy]))
        return problem
    except ValueError as cause:
        _warn_without_problem(path, cause)
        return None


def _warn_without_problem(path: Path, cause: Exception) -> None:
    reason = " ".join(str(cause).split())
    warnings.warn(
        f"the problem of {path} cannot be rebuilt, so its run is loaded without it ({reason})",
        RuntimeWarning,
        stacklevel=4,
    )


def _restore_structure(template: Tree, prefix: str, arrays: Mapping[str, Any]) -> Tree:
    """Return the arrays below `prefix` in the structure of `template`, that of one agent."""
    expected = {
        f"{prefix}{name}": leaf.shape for name, leaf in pytrees.named_leaves(template).items()
    }
    for name, shape in expected.items():
        if name not in arrays or arrays[name].shape[1:] != shape:
            found_shape = arrays[name].shape[1:] if name in arrays else "not there"
            raise ValueError(
                f"{name} of the run is {found_shape}, that of the problem {shape}: the run is of "
                f"another problem; give its own"
            )
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in expected])


def _best_point(
    problem: Problem | None, stored: StoredRun, arrays: Mapping[str, Any], best: Any
) -> BestPoint | None:
    if best is None or "upper_loss" not in stored.last_evaluation:
        return None
    x, y = best.x, state_part(best, "y")
    if problem is not None:
        start = problem.start(stored.manifest["seed"])
        x, y = (
            _restore_structure(part, f"{best_point.PREFIX}.{n}", arrays)
            for n, part in zip("xy", start)
        )
    return BestPoint(int(best.round), float(best.upper_loss), x, y)


def _as_columns(entries: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Collect one array per name that all entries have."""
    names = [name for name in (entries[0] if entries else ()) if all(name in e for e in entries)]
    return {name: np.array([entry[name] for entry in entries]) for name in names}


def _rebuild_network(description: Mapping[str, Any]) -> Network:
    """Rebuild the graph of a run made in Python, with the weights of its rule or the given ones."""
    graph = nx.Graph()
    graph.add_nodes_from(range(description["agents"]))
    graph.add_edges_from(map(tuple, description["edges"]))
    mixing: Any = description["mixing"]
    if mixing not in RULES:
        mixing = np.zeros((description["agents"], description["agents"]))
        for (i, j), weight in zip(description["edges"], description["weights"]):
            mixing[i, j] = mixing[j, i] = weight
        mixing += np.diag(1 - mixing.sum(1))
    for i, position in enumerate(description.get("places", [])):
        graph.nodes[i]["pos"] = tuple(position)
    network = replace(from_graph(graph, mixing), name=description["name"])
    if "links" not in description:
        return network
    network = network.with_links(**description["links"])
    return replace(network, name=network.name.removesuffix(f", {network.links!r}"))
