"""What a run found, in few numbers: x, where it is small or its entries have names."""

from typing import Any

import jax
import numpy as np

from ..core.tree import Tree, named
from ..problem import Problem
from .run_data import RunData

FEW = 24  # numbers that need no names to be looked at
MANY = 2000  # numbers that a manifest holds


def answer(run: RunData) -> dict[str, Any]:
    """x, the mean over the agents, and which round was the best."""
    names = run.problem.names if run.problem else None
    mean = jax.tree.map(lambda a: np.asarray(a).mean(0), run.x)
    more = entry_names(run.problem) if run.problem else {}
    return shown(mean, names) | more | ({"best": _best(run)} if run.best else {})


def entry_names(problem: Problem) -> dict[str, Any]:
    """What a number of x is, and names of the entries of y by leaf."""
    found: dict[str, Any] = {"meaning": problem.x_meaning} if problem.x_meaning else {}
    return found | ({"y_names": problem.y_names} if problem.y_names else {})


def shown(x: Tree, names: tuple[str, ...] | None) -> dict[str, Any]:
    """x of one agent: its size, and its entries by leaf where they can be looked at."""
    leaves = {name: np.asarray(leaf) for name, leaf in named(x).items()}
    size = sum(leaf.size for leaf in leaves.values())
    found: dict[str, Any] = {"size": size}
    if size <= (FEW if names is None else MANY):
        found["x"] = {name: leaf.tolist() for name, leaf in leaves.items()}
        found |= {} if names is None else {"names": list(names)}
    return found


def _best(run: RunData) -> dict[str, Any]:
    assert run.best is not None
    return {"round": run.best.round, "upper_loss": run.best.upper_loss}
