"""Loading of runs and comparisons from their folders."""

import re
import tomllib
import warnings
from ast import literal_eval
from collections import namedtuple
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
from ..network import Network, from_graph
from ..network.mixing.lost_messages import MessageCounts
from ..network.mixing_weights import RULES
from ..problem import Problem
from ..records import best_point, checkpoint
from ..records.best_point import Best
from ..records.checkpoint import Checkpoint
from ..records.folder_reader import Stored, as_begun, below, open_run
from ..records.folder_recovery import manifest as written
from ..records.manifest import data
from ..records.run import Run
from ..records.run_inputs import describe
from ..records.snapshot import Snapshot, restored
from .comparison import TOGETHER, Comparison
from .execution import changed_inputs
from .job_runner import COMPARISON, RUN
from .jobs import build, precision

STEP = re.compile(r"""\.(?P<field>\w+)|\[(?P<key>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\]""")


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
    """
    path = Path(folder)
    if (path / "manifest.json").is_file():
        return _run(path, problem)
    inside = as_begun(one for one in below(path) if one.path.parent == path)
    together = all(one.manifest["experiment"] == TOGETHER for one in inside)
    if inside and (together or (path / COMPARISON).is_file()):
        return _comparison(path, inside, problem)
    raise FileNotFoundError(
        f"{path}: no run there, and no comparison; a run's folder holds manifest.json"
    )


def _comparison(path: Path, inside: list[Stored], problem: Problem | None) -> Comparison:
    """Load the comparison whose runs are in the folder `path`."""
    manifests = [stored.manifest for stored in inside]
    who = [(about["algorithm"]["label"], about["seed"]) for about in manifests]
    if len({*who}) < len(who):
        raise ValueError(
            f"{path}: several runs have the same algorithm and seed, on other networks perhaps; "
            f"load each run by its own folder"
        )
    runs: dict[tuple[str, int], Run] = {}
    for one, stored in zip(who, inside):
        runs[one] = _run(stored.path, problem)
        problem = problem or runs[one].problem
    known = _experiment(path, COMPARISON) if (path / COMPARISON).is_file() else None
    return Comparison(
        problem,
        next(iter(runs.values())).network,
        {part.label: part.build() for part in known.algorithm} if known else {},
        runs,
        {one: run.message for one, run in runs.items() if run.status == "diverged"},
        {one: about.get("wall_seconds", 0.0) for one, about in zip(who, manifests)},
        max(about["rounds"] for about in manifests),
        manifests[0]["every"],
        dict(known.stop) if known else manifests[0].get("stop", {}),
    )


def _run(path: Path, problem: Problem | None) -> Run:
    """Load the run in the folder `path`."""
    stored = open_run(path)
    kept = checkpoint.newest(path / "checkpoint")
    asked = tomllib.loads((path / RUN).read_text(encoding="utf-8"))
    experiment = _experiment(path) if "problem" in asked else None
    if problem is None and experiment is not None:
        problem = _remade(path, experiment)
    arrays = _with_agents(stored.manifest, kept.arrays)
    plain = unnamed(arrays)
    state = plain.state
    if problem is not None:
        x, y = problem.start(stored.manifest["seed"])
        state = state._replace(x=_like(x, ".state.x", arrays), y=_like(y, ".state.y", arrays))
        if experiment is None:
            _check_rows(path, stored.manifest, problem)
    found = stored.manifest
    kind = {name: found[name] for name in ("resolved", "sampling", "seed", "status", "message")}
    network, inputs = _network_and_inputs(found, experiment)
    run = Run(
        x=state.x,
        y=state.y,
        history=_columns([{k: v for k, v in e.items() if k != "agents"} for e in stored.lines]),
        per_agent=_columns([line["agents"] for line in stored.lines]),
        state=state,
        rounds=kept.round,
        network=network,
        costs={name: np.array(spent) for name, spent in found.get("costs", {}).items()},
        traffic={(i, j): sent for i, j, sent in found.get("traffic", [])},
        messages=found.get("messages", 0),
        compile_seconds=found.get("compile_seconds", 0.0),
        best=_best(problem, stored, arrays, getattr(plain, "best", None)),
        config=asked,
        problem=problem,
        snapshot=_snapshot(stored, kept),
        inputs=inputs,
        **kind,
    )
    lost = {(i, j): MessageCounts(*counts) for i, j, *counts in found.get("losses", [])}
    vars(run)["lost_messages"] = lost  # as counted, rather than drawn again
    return run


def _network_and_inputs(
    manifest: Mapping[str, Any], experiment: Any
) -> tuple[Network, dict[str, dict[str, str]]]:
    """Return the network of a run and the description of its inputs, empty if not saved."""
    if experiment is None:
        return _network(manifest["network"]), manifest.get("inputs", {})
    network = experiment.network[0].build()
    try:
        return network, describe(network, experiment.algorithm[0].build())
    except (ImportError, OSError, ValueError):
        return network, {}  # a user's method that no longer exists


def _snapshot(stored: Stored, kept: Checkpoint) -> Snapshot | None:
    """Return the snapshot of a checkpoint; None if it has the state only, or that of one site."""
    if "found" not in kept.notes or "site" in stored.manifest:
        return None
    lines = [line for line in stored.lines if line["round"] <= kept.round]
    return restored(kept.arrays, kept.notes, lines)


def _check_rows(path: Path, manifest: Mapping[str, Any], problem: Problem) -> None:
    """Warn if the rows of `problem` differ from those of the run."""
    then = manifest["problem"].get("data") or {}
    now = data(problem) if then else {}
    if changed := [part for part in then if then[part] != now.get(part)]:
        warnings.warn(
            f"the {' and '.join(changed)} rows of the problem are not those of the run in {path}: "
            f"a run that continues from there is of another problem",
            RuntimeWarning,
            stacklevel=4,
        )


def unnamed(leaves: Mapping[str, Any]) -> Tree:
    """Rebuild the tree that `tree.named` flattened, with named tuples in place of its classes."""
    if set(leaves) == {""}:
        return leaves[""]
    inside: dict[tuple[str, str], dict[str, Any]] = {}
    for name, leaf in leaves.items():
        step = STEP.match(name)
        assert step is not None, f"{name!r} is no name of a leaf"
        kind = "field" if step["field"] is not None else "key"
        inside.setdefault((kind, step[kind]), {})[name[step.end() :]] = leaf
    made = {place: unnamed(rest) for place, rest in inside.items()}
    if all(kind == "field" for kind, _ in made):
        names = [name for _, name in made]
        return namedtuple("Plain", names, rename=True)(*made.values())
    keyed = {_key(key): part for (_, key), part in made.items()}
    numbered = all(i in keyed for i in range(len(keyed)))
    return [keyed[i] for i in range(len(keyed))] if numbered else keyed


def _key(text: str) -> Any:
    """Parse a key as it was written: text, or a number."""
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _experiment(path: Path, name: str = RUN) -> Any:
    """Load config.toml; None, with a warning, if it can no longer be read."""
    try:
        return config.load(path / name)
    except ValueError as cause:
        _warn(path, cause)
        return None


def _remade(path: Path, experiment: Any) -> Problem | None:
    """Rebuild the problem of the run; None if it has changed."""
    try:
        with precision(experiment):
            problem = build(experiment, str(path))
        manifest, _ = written(path / "manifest.json")
        if manifest and (changes := changed_inputs(experiment, problem, path, manifest)):
            raise ValueError("; ".join(changes))
        return problem
    except ValueError as cause:
        _warn(path, cause)
        return None


def _warn(path: Path, cause: Exception) -> None:
    said = " ".join(str(cause).split())
    warnings.warn(
        f"the problem of {path} cannot be made again, so its run comes without ({said})",
        RuntimeWarning,
        stacklevel=4,
    )


def _with_agents(manifest: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of the state; add the axis of agents to those of one site."""
    levels = {k: v for k, v in arrays.items() if k.startswith((".state", best_point.PLACE + "."))}
    return {k: v[None] for k, v in levels.items()} if "site" in manifest else levels


def _like(part: Tree, place: str, arrays: Mapping[str, Any]) -> Tree:
    """Return the arrays below `place` in the structure of `part`, that of one agent."""
    expected = {f"{place}{name}": leaf.shape for name, leaf in pytrees.named(part).items()}
    for name, shape in expected.items():
        if name not in arrays or arrays[name].shape[1:] != shape:
            there = arrays[name].shape[1:] if name in arrays else "not there"
            raise ValueError(
                f"{name} of the run is {there}, that of the problem {shape}: the run is of another "
                f"problem; give its own"
            )
    return jax.tree.unflatten(jax.tree.structure(part), [arrays[name] for name in expected])


def _best(
    problem: Problem | None, stored: Stored, arrays: Mapping[str, Any], plain: Any
) -> Best | None:
    if plain is None:
        return None
    x, y = plain.x, plain.y
    if problem is not None:
        start = problem.start(stored.manifest["seed"])
        x, y = (_like(part, f"{best_point.PLACE}.{n}", arrays) for n, part in zip("xy", start))
    return Best(int(plain.round), float(plain.upper_loss), x, y)


def _columns(entries: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Collect one array per name that all entries have."""
    names = [name for name in (entries[0] if entries else ()) if all(name in e for e in entries)]
    return {name: np.array([entry[name] for entry in entries]) for name in names}


def _network(about: Mapping[str, Any]) -> Network:
    """Rebuild the graph of a run made in Python, with the weights of its rule or the given ones."""
    graph = nx.Graph()
    graph.add_nodes_from(range(about["agents"]))
    graph.add_edges_from(map(tuple, about["edges"]))
    mixing: Any = about["mixing"]
    if mixing not in RULES:
        mixing = np.zeros((about["agents"], about["agents"]))
        for (i, j), weight in zip(about["edges"], about["weights"]):
            mixing[i, j] = mixing[j, i] = weight
        mixing += np.diag(1 - mixing.sum(1))
    for i, place in enumerate(about.get("places", [])):
        graph.nodes[i]["pos"] = tuple(place)
    found = replace(from_graph(graph, mixing), name=about["name"])
    if "links" not in about:
        return found
    found = found.with_links(**about["links"])
    return replace(found, name=found.name.removesuffix(f", {found.links!r}"))
