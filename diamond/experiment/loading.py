"""Runs from their folders, as objects."""

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

from ..core import tree
from ..core.tree import Tree
from ..network import Network, from_graph
from ..network.losses import Losses
from ..network.mixing import RULES
from ..problem import Problem
from ..runs import best_point, checkpoint
from ..runs.best_point import Best
from ..runs.reader import Stored, open_run
from ..runs.recovery import manifest as written
from ..runs.run import Run
from . import config
from .execute import other_inputs
from .jobs import build, precision
from .runner import RUN

STEP = re.compile(r"""\.(?P<field>\w+)|\[(?P<key>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\]""")


def load(folder: str | Path, problem: Problem | None = None) -> Run:
    """The run in `folder`, finished or not, as it stands at its newest checkpoint.

    x, y and `best` have the problem's own structure, in arrays of NumPy. The problem is made again
    from config.toml; a run saved in Python is given it, or has dicts, lists and named tuples by the
    names of the leaves instead, and no `problem`.
    """
    path = Path(folder)
    if not (path / "manifest.json").is_file():
        raise FileNotFoundError(f"{path}: no run there; a run's folder holds manifest.json")
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
    found = stored.manifest
    kind = {name: found[name] for name in ("resolved", "sampling", "seed", "status", "message")}
    run = Run(
        x=state.x,
        y=state.y,
        history=_columns([{k: v for k, v in e.items() if k != "agents"} for e in stored.lines]),
        agents=_columns([line["agents"] for line in stored.lines]),
        state=state,
        rounds=kept.round,
        network=experiment.network[0].build() if experiment else _network(found["network"]),
        costs={name: np.array(spent) for name, spent in found.get("costs", {}).items()},
        traffic={(i, j): sent for i, j, sent in found.get("traffic", [])},
        messages=found.get("messages", 0),
        compile_seconds=found.get("compile_seconds", 0.0),
        best=_best(problem, stored, arrays, getattr(plain, "best", None)),
        config=asked,
        problem=problem,
        **kind,
    )
    lost = {(i, j): Losses(*counts) for i, j, *counts in found.get("losses", [])}
    vars(run)["losses"] = lost  # as they were counted, rather than drawn again
    return run


def unnamed(leaves: Mapping[str, Any]) -> Tree:
    """The tree that `tree.named` named, its own classes being named tuples here."""
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
    """A key as it was written: text, or a number."""
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _experiment(path: Path) -> Any:
    """What config.toml says; None, with a warning, if it cannot be read any more."""
    try:
        return config.load(path / RUN)
    except ValueError as cause:
        _warn(path, cause)
        return None


def _remade(path: Path, experiment: Any) -> Problem | None:
    """The problem of the run, unless it is not what it was."""
    try:
        with precision(experiment):
            problem = build(experiment, str(path))
        manifest, _ = written(path / "manifest.json")
        if manifest and (changes := other_inputs(experiment, problem, path, manifest)):
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
    """The arrays of x, y and the rest of the state; those of one site get the axis of agents."""
    levels = {k: v for k, v in arrays.items() if k.startswith((".state", best_point.PLACE + "."))}
    return {k: v[None] for k, v in levels.items()} if "site" in manifest else levels


def _like(part: Tree, place: str, arrays: Mapping[str, Any]) -> Tree:
    """The arrays below `place` in the structure of `part`, that of one agent."""
    expected = {f"{place}{name}": leaf.shape for name, leaf in tree.named(part).items()}
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
    """One array a name, of those that every entry has."""
    names = [name for name in (entries[0] if entries else ()) if all(name in e for e in entries)]
    return {name: np.array([entry[name] for entry in entries]) for name in names}


def _network(about: Mapping[str, Any]) -> Network:
    """The graph of a run made in Python, with the weights of its rule or those it was given."""
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
