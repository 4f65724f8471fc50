"""Validation of the arguments of a problem; errors name a remedy."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import host_transfer
from ..core.pytrees import Tree
from .loss_errors import shapes

RESERVED_NAMES = frozenset(  # columns of histories and tables of runs
    "round stationarity consensus y_consensus z_consensus lower_error metric definition1 "
    "upper_loss local_loss "
    "solver_error curvature disagreement samples gradients hvps jvps bytes seconds waited agents "
    "network_seconds joules "
    "upper_loss_se local_loss_se stationarity_se lower_error_se metric_se "
    "run algorithm network seed seeds diverged status digest started".split()
)


def resolve_lower_level(lower: Any, lower_level: str, valid: Any) -> str:
    """Return the kind of lower level: "personal", "common", or "none"."""
    if lower_level not in ("personal", "common"):
        raise ValueError(
            f"lower_level = {lower_level!r}; there are 'personal' and 'common' (none at all: "
            f"lower=None)"
        )
    if lower is None:
        return "none"
    if valid is None:
        raise TypeError("valid is missing: the upper loss averages over its rows")
    return lower_level


def check_metric_names(metrics: Mapping[str, Any]) -> None:
    """Check that the names of metrics are not taken."""
    for name in metrics:
        is_standard_error = isinstance(name, str) and name.removesuffix("_se") in {*metrics} - {
            name
        }
        if not isinstance(name, str) or not name or name in RESERVED_NAMES or is_standard_error:
            raise ValueError(
                f"a metric cannot be called {name!r}: every evaluation has something of that name; "
                f"call it my_{name}"
            )


def check_start(start: Any) -> tuple[Tree, Tree]:
    """Return (x_0, y_0) as strongly typed floating-point arrays."""
    if not isinstance(start, tuple) or len(start) != 2:
        raise TypeError(f"init(key) must return the tuple (x0, y0), not {type(start).__name__}")

    def as_strong_type(name: str, leaf: Any) -> jax.Array:
        try:
            leaf = jnp.asarray(leaf)
        except TypeError:
            raise TypeError(
                f"init(key) gives {name} with a {type(leaf).__name__} in it; give arrays only: of "
                f"a module of equinox, eqx.partition(module, eqx.is_inexact_array)[0], and "
                f"eqx.combine it with the rest inside the losses"
            ) from None
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(f"init(key) gives {name} of dtype {leaf.dtype}; it must be floating")
        if leaf.dtype.itemsize < 4:
            raise TypeError(
                f"init(key) gives {name} of dtype {leaf.dtype}; give float32 or float64 (losses "
                f"are computed in half precision by precision='bf16' of simulate)"
            )
        return host_transfer.to_device(leaf) if leaf.weak_type else leaf

    x, y = (
        jax.tree.map(lambda leaf, n=n: as_strong_type(n, leaf), part)
        for n, part in zip("xy", start)
    )
    for name, part in (("x0", x), ("y0", y)):
        if part is not None and not jax.tree.leaves(part):
            raise ValueError(f"init(key) gives an {name} without any array; it needs at least one")
        if part is not None and not any(leaf.size for leaf in jax.tree.leaves(part)):
            kind = "an x0" if name == "x0" else "a y0"
            raise ValueError(f"init(key) gives {kind} of size 0; it needs at least one number")
    return x, y


def check_x_names(names: Sequence[str], init: Any) -> tuple[str, ...]:
    """Check that there is one name per entry of x along the first axis."""
    leaves = jax.tree.leaves(jax.eval_shape(init, jax.random.key(0))[0])
    shape = leaves[0].shape if len(leaves) == 1 else ()
    if not shape or shape[0] != len(names):
        shape_text = f"of shape {shape}" if len(leaves) == 1 else f"{len(leaves)} arrays"
        raise ValueError(
            f"there are {len(names)} names for an x that is {shape_text}; give one array, and one "
            f"name for each entry along its first axis"
        )
    return check_distinct("names", names, "every entry of x")


def resolve_y_names(y_names: Any, init: Any) -> dict[str, Any]:
    """Return names of the entries of each array of y along its first axes, by path in y."""
    y = jax.eval_shape(init, jax.random.key(0))[1]
    structure: Any = jax.tree.structure(y)
    try:
        names_of_leaves = structure.flatten_up_to(y_names)
    except (ValueError, TypeError) as cause:
        raise ValueError(f"y_names must have the structure of y, {shapes(y)}") from cause
    names_by_path = {}
    for (path, leaf), leaf_names in zip(jax.tree_util.tree_leaves_with_path(y), names_of_leaves):
        if leaf_names is None:
            continue
        table = np.asarray(leaf_names, dtype=str)
        if table.shape != leaf.shape[: table.ndim]:
            raise ValueError(
                f"y_names{jax.tree_util.keystr(path)} are of shape {table.shape} for an array of "
                f"shape {leaf.shape}; name every entry along its first axes"
            )
        names_by_path[jax.tree_util.keystr(path)] = table.tolist()
    return names_by_path


def check_agent_names(agent_names: Sequence[str] | None, agents: int) -> tuple[str, ...] | None:
    """Check that there is one name per agent."""
    if agent_names is None:
        return None
    if len(agent_names) != agents:
        raise ValueError(
            f"there are {len(agent_names)} agent_names for {agents} agents; give one each"
        )
    return check_distinct("agent_names", agent_names, "every agent")


def check_distinct(argument: str, names: Sequence[str], owner: str) -> tuple[str, ...]:
    """Check that no name occurs twice."""
    as_text = tuple(map(str, names))
    if repeated := [name for name in as_text if as_text.count(name) > 1]:
        raise ValueError(f"{argument} has {repeated[0]!r} twice; give {owner} a name of its own")
    return as_text
