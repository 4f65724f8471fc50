"""Short form of a run's solution: x, if it is small or its entries have names."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..core.pytrees import Tree, named_leaves
from ..problem import Problem
from .predictor import Predictor
from .result_table import name_entry

if TYPE_CHECKING:
    from .run import Run

MAX_UNNAMED = 24  # at most this many numbers are shown without names
MAX_NAMED = 2000  # at most this many numbers are stored in a manifest


def summarize_solution(run: "Run") -> dict[str, Any]:
    """Return x, the mean over the agents, and the best round."""
    names, best = run.problem.names if run.problem else None, run.best
    mean = jax.tree.map(lambda a: np.asarray(a).mean(0), run.x)
    names_and_meaning = entry_names(run.problem) if run.problem else {}
    return (
        summarize_x(mean, names)
        | names_and_meaning
        | (summarize_coefficients(run.predictor, run.y) or summarize_y(run.y, run.problem))
        | ({"best": {"round": best.round, "upper_loss": best.upper_loss}} if best else {})
        | ({"scores": run.cooperation.to_json()} if run.cooperation else {})
    )


def summarize_coefficients(predictor: Predictor | None, y: Tree) -> dict[str, Any]:
    """Return the coefficients of all agents in units of the table, if the model has them."""
    if predictor is None or not predictor.has_coefficients:
        return {}
    leaves, agents = jax.tree.leaves(y), len(predictor.agents)
    has_all_agents = all(len(leaf) == agents for leaf in leaves)  # some may have left
    if not has_all_agents or sum(np.size(leaf) for leaf in leaves) > MAX_NAMED * agents:
        return {}
    values = predictor.coefficient_table(y)
    return {"coefficients": {"meaning": predictor.coefficient_meaning, "values": values}}


def summarize_y(y: Tree, problem: Problem | None) -> dict[str, Any]:
    """Return the entries of y of all agents by name, if they are few or have names."""
    leaves = {name: np.asarray(leaf) for name, leaf in named_leaves(y).items()}
    names = problem.y_names if problem is not None and problem.y_names else {}
    if sum(leaf[0].size for leaf in leaves.values()) > (MAX_NAMED if names else MAX_UNNAMED):
        return {}
    entries = {
        name_entry(f"y{name}", index, names.get(name)): leaf[(slice(None), *index)].tolist()
        for name, leaf in leaves.items()
        for index in np.ndindex(leaf.shape[1:])
    }
    return {"y": entries} if entries else {}


def entry_names(problem: Problem) -> dict[str, Any]:
    """Return the meaning of x and names of the entries of y by leaf."""
    names: dict[str, Any] = {"meaning": problem.x_meaning} if problem.x_meaning else {}
    return names | ({"y_names": problem.y_names} if problem.y_names else {})


def summarize_x(x: Tree, names: tuple[str, ...] | None) -> dict[str, Any]:
    """Describe x of one agent: its size, and its entries by leaf if they can be shown."""
    leaves = {name: np.asarray(leaf) for name, leaf in named_leaves(x).items()}
    size = sum(leaf.size for leaf in leaves.values())
    summary: dict[str, Any] = {"size": size}
    if size <= (MAX_UNNAMED if names is None else MAX_NAMED):
        summary["x"] = {name: leaf.tolist() for name, leaf in leaves.items()}
        summary |= {} if names is None else {"names": list(names)}
    return summary
