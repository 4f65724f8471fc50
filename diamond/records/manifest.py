"""manifest.json: inputs, environment and outcome of a run."""

import datetime
import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._version import __version__
from ..core import pytrees
from ..network import Network
from ..network.mixing_weights import RULES
from ..problem import Problem
from ..problem.agent_rows import MOST_LABELS, LabelCounts
from .solution import summarize_solution

if TYPE_CHECKING:
    from .run import Run

FORMAT = 1


@dataclass(frozen=True)
class RunOrigin:
    """Origin of a run: names that its objects do not know."""

    name: str
    experiment: str
    problem: str
    algorithm: str
    label: str
    options: dict[str, Any]
    command: str
    sources: dict[str, str]  # the user's own files, with their digests


def initial_manifest(
    origin: RunOrigin,
    problem: Problem,
    network: Network,
    seed: int,
    rounds: int,
    every: int,
    batch: int,
    sampling: str,
) -> dict[str, Any]:
    """Return the initial manifest of a run."""
    return {
        "format": FORMAT,
        "name": origin.name,
        "experiment": origin.experiment,
        "status": "running",
        "message": "",
        "versions": package_versions(),
        "device": jax.devices()[0].device_kind,
        "platform": platform.platform(),
        "precision": "float64" if jax.config.jax_enable_x64 else "float32",  # type: ignore[attr-defined, unused-ignore]
        "command": origin.command,
        "started": current_time(),
        "finished": None,
        "algorithm": {
            "name": origin.algorithm,
            "label": origin.label,
            "options": origin.options,
        },
        "resolved": {},
        "network": _describe_network(network, problem.agent_names or ()),
        "problem": _describe_problem(origin, problem, seed),
        "seed": seed,
        "rounds": rounds,
        "every": every,
        "batch": batch,
        "sampling": sampling,
    }


def _describe_network(network: Network, agent_names: Sequence[str]) -> dict[str, Any]:
    """Describe the graph, its weights unless a rule defines them, and what is special about it."""
    description: dict[str, Any] = {
        "name": network.title,
        "agents": network.agents,
        "edges": [list(edge) for edge in network.edges],
        "lam": network.lam,
        "mixing": network.mixing,
    }
    if network.mixing not in (*RULES, "even", "mixed") and not network.sequence:
        senders, receivers = zip(*network.edges)
        weights = np.asarray(network.weights[receivers, senders]).ravel()
        description["weights"] = weights.tolist()
    if network.kind != "symmetric":
        description |= {"kind": network.kind, "period": len(network.phases)}
    if network.channels:
        description |= {"channels": [channel.name for channel in network.channels]}
    if network.defense is not None:
        description |= {"robust": network.defense[0], "liars": network.defense[1]}
    if network.mask_limit is not None:
        description |= {"mask_limit": network.mask_limit}
    if network.lies:
        description |= {"lies": [liar.name for liar in network.lies]}
    positions = [position for _, position in network.graph.nodes(data="pos")]
    if all(
        isinstance(position, tuple | list | np.ndarray) and len(position) == 2
        for position in positions
    ):
        description["places"] = np.array(positions, float).tolist()
    if network.links is not None:
        description["links"] = network.links.to_options()
    if len(agent_names) == network.agents:
        description["sites"] = list(agent_names)
    return description


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that the numbers depend on."""
    return {
        "diamond": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _describe_problem(origin: RunOrigin, problem: Problem, seed: int) -> dict[str, Any]:
    x, y = problem.start(seed)
    size = lambda level: sum(leaf.size for leaf in jax.tree.leaves(level))
    return {
        "name": origin.problem,
        "agents": problem.agents,
        "x_size": size(x),
        "y_size": size(y),
        "rows": {part: problem.counts(part).tolist() for part in problem.rows},
        "labels": tabulate_labels(problem.rows["train"].label_counts()),
        "sources": origin.sources,
        "data": data_digests(problem),
    } | ({"notes": list(problem.notes)} if problem.notes else {})


def data_digests(problem: Problem) -> dict[str, str]:
    """Return the digest of every part of the rows; none if some are in another process."""
    if len(problem.loaded_agents) < problem.agents:
        return {}
    digests = {}
    for part, rows in problem.rows.items():
        hashed = hashlib.sha256()
        for agent in range(problem.agents):
            for name, leaf in pytrees.named_leaves(rows[agent]).items():
                array = np.asarray(leaf, order="C")
                hashed.update(f"{agent}{name}{array.dtype}{array.shape}".encode())
                hashed.update(array.data if array.size else b"")
        digests[part] = hashed.hexdigest()
    return digests


def tabulate_labels(label_counts: Sequence[LabelCounts]) -> list[list[int]] | None:
    """Count the labels of each agent; None unless one column of the rows looks like labels."""
    if any(tally is None for tally in label_counts):
        return None
    labels = sorted({label for tally in label_counts for label in tally or ()})
    if len(labels) > MOST_LABELS:
        return None
    return [[(tally or {}).get(label, 0) for label in labels] for tally in label_counts]


def final_fields(
    run: "Run", status: str, message: str, wall_seconds: float, *, digest: str
) -> dict[str, Any]:
    """Return the fields that the manifest gains at the end of the run."""
    return {
        "status": status,
        "message": message,
        "finished": current_time(),
        "resolved": run.resolved,
        "answer": summarize_solution(run),
        "costs": {name: np.asarray(spent).tolist() for name, spent in run.costs.items()},
        "traffic": [[i, j, int(sent)] for (i, j), sent in run.traffic.items()],
        "messages": run.messages,
        "losses": [[*edge, *counts] for edge, counts in run.lost_messages.items()],
        "compile_seconds": run.compile_seconds,
        "wall_seconds": wall_seconds,
        "digest": digest,
    }


def current_time() -> str:
    """Return the current time in ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
