"""Validation of the rows of each agent; errors name the agent and a remedy."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core import host_transfer
from ..core.pytrees import Tree


class RowForm(NamedTuple):
    """Structure, types and shapes of rows, which must be equal for all agents."""

    structure: str
    kinds: dict[str, str]  # type and shape of a row, for each leaf


def check_not_torch_data(name: str, value: Any) -> None:
    """Reject a data set or loader of PyTorch where rows belong."""
    if any("torch.utils.data" in kind.__module__ for kind in type(value).__mro__):
        raise TypeError(
            f"{name} are a {type(value).__name__} of PyTorch: read that of each agent into memory "
            f"by diamond.torch.rows, or draw from it by diamond.torch.stream"
        )


def as_agent_list(name: str, parts: Sequence[Any]) -> list[Any]:
    """Check that `parts` has one entry per agent."""
    check_not_torch_data(f"the {name} rows", parts)
    if isinstance(parts, Mapping) or not isinstance(parts, Sequence):
        raise TypeError(
            f"the {name} rows must be a list with one pytree of arrays per agent, "
            f"not {type(parts).__name__}; wrap the rows of a single agent in a list"
        )
    return list(parts)


def load_rows(name: str, agent: int, source: Any) -> Tree:
    """Return an agent's rows as numpy arrays: at least one row, equal lengths, finite."""
    if callable(source):
        try:
            source = source()
        except Exception as cause:
            raise ValueError(
                f"agent {agent}'s {name} rows cannot be loaded: its function raised "
                f"{type(cause).__name__}: {cause}"
            ) from cause
    check_not_torch_data(f"agent {agent}'s {name} rows", source)
    rows = jax.tree.map(np.asarray, host_transfer.without_tensors(source))
    leaves = jax.tree_util.tree_leaves_with_path(rows)
    if not leaves:
        raise ValueError(
            f"agent {agent} has no {name} rows: its pytree holds no array; give it some, or "
            f"leave it out of train, valid and network"
        )
    for path, leaf in leaves:
        _reject_number_lists(name, agent, path, leaf)
        _check_leaf(name, agent, jax.tree_util.keystr(path), leaf, first=leaves[0][1])
    return rows


def _reject_number_lists(name: str, agent: int, path: Any, leaf: np.ndarray) -> None:
    """Reject numbers in lists, because JAX treats each number as an array."""
    depth = [isinstance(step, jax.tree_util.SequenceKey) for step in path]
    if leaf.ndim == 0 and any(depth):
        place = jax.tree_util.keystr(path[: depth.index(True)])
        raise ValueError(
            f"agent {agent}'s {name} rows{place and f' {place}'} are a list or tuple of numbers, "
            f"which JAX takes for many arrays; make one array of them with the rows first, as by "
            f"np.asarray"
        )


def _check_leaf(name: str, agent: int, path: str, leaf: np.ndarray, *, first: np.ndarray) -> None:
    where = f"agent {agent}'s {name} rows{path and f' {path}'}"
    if leaf.ndim == 0:
        raise ValueError(f"{where} are a single number; the first axis must be the rows")
    if len(leaf) == 0:
        raise ValueError(
            f"agent {agent} has 0 {name} rows; give it some, or leave it out of train, valid "
            f"and network"
        )
    if len(leaf) != len(first):
        raise ValueError(
            f"{where} number {len(leaf)}, another leaf's {len(first)}; every leaf needs one "
            f"entry a row"
        )
    if leaf.dtype.kind not in "biuf":
        raise TypeError(f"{where} have dtype {leaf.dtype}; convert them to numbers")
    if np.issubdtype(leaf.dtype, np.inexact) and not np.isfinite(leaf).all():
        bad = int(np.argwhere(~np.isfinite(leaf))[0][0])
        raise ValueError(
            f"{where} are not finite: row {bad} is the first with NaN or infinity; remove or "
            f"repair it"
        )
    is_float32 = host_transfer.default_dtype() != jnp.float64
    if leaf.dtype.itemsize > 4 and leaf.dtype.kind == "f" and is_float32:
        beyond = np.argwhere(np.abs(leaf) > np.finfo(np.float32).max)
        if len(beyond):
            raise ValueError(
                f"{where} are too large for float32: row {beyond[0][0]} is the first, with "
                f"{leaf[tuple(beyond[0])]:g}; correct or rescale it, or enable jax_enable_x64"
            )


def row_form(rows: Tree) -> RowForm:
    """Return the form of these rows."""
    leaves = jax.tree_util.tree_leaves_with_path(rows)
    kind = lambda leaf: f"{leaf.dtype}{list(leaf.shape[1:])}"
    kinds = {jax.tree_util.keystr(path): kind(leaf) for path, leaf in leaves}
    return RowForm(str(jax.tree.structure(rows)), kinds)


def check_same_form(name: str, agent: int, form: RowForm, first: RowForm) -> None:
    """Check that the rows of `agent` have the form of the rows of agent 0."""
    if form.structure != first.structure:
        raise ValueError(
            f"agent {agent}'s {name} rows have the structure {form.structure}, agent "
            f"0's {first.structure}; all agents need the same"
        )
    for path, kind in form.kinds.items():
        if kind != first.kinds[path]:
            raise ValueError(
                f"a row of agent {agent}'s {name} rows {path} is {kind}, of agent 0's "
                f"{first.kinds[path]}; bring all agents to the same shape and dtype"
            )


def check_agent_counts(lengths: Mapping[str, int]) -> None:
    """Check that all parts have the same number of agents, at least one."""
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} rows for {count}" for name, count in lengths.items())
        raise ValueError(f"there are {counts} agents; give every agent an entry in each list")
    if 0 in lengths.values():
        raise ValueError("there is no agent: the lists of rows are empty; give one entry an agent")
