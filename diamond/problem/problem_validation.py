"""Validation of problems before anything is compiled; errors name the agent and a remedy."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..hardware.compiler import compile_fast
from .loss_errors import explain_errors, shapes

TAKEN = frozenset(  # names that every evaluation uses
    "round stationarity consensus y_consensus z_consensus lower_error metric definition1 "
    "upper_loss local_loss "
    "solver_error curvature disagreement samples gradients hvps jvps bytes seconds waited agents "
    "network_seconds joules "
    "upper_loss_se local_loss_se stationarity_se lower_error_se metric_se "
    "run algorithm network seed seeds diverged status digest started".split()
)
PROBE = 8  # rows used to compare a loss with the average over single rows


class Form(NamedTuple):
    """Structure, types and shapes of rows, which must be equal for all agents."""

    structure: str
    kinds: dict[str, str]  # type and shape of a row, for each leaf


def listed(name: str, parts: Sequence[Any]) -> list[Any]:
    """Check that `parts` has one entry per agent."""
    if isinstance(parts, Mapping) or not isinstance(parts, Sequence):
        raise TypeError(
            f"the {name} rows must be a list with one pytree of arrays per agent, "
            f"not {type(parts).__name__}; wrap the rows of a single agent in a list"
        )
    return list(parts)


def one(name: str, agent: int, given: Any) -> Tree:
    """Return an agent's rows as numpy arrays: at least one row, equal lengths, finite."""
    if callable(given):
        try:
            given = given()
        except Exception as cause:
            raise ValueError(
                f"agent {agent}'s {name} rows cannot be loaded: its function raised "
                f"{type(cause).__name__}: {cause}"
            ) from cause
    rows = jax.tree.map(np.asarray, given)
    leaves = jax.tree_util.tree_leaves_with_path(rows)
    if not leaves:
        raise ValueError(
            f"agent {agent} has no {name} rows: its pytree holds no array; give it some, or "
            f"leave it out of train, valid and network"
        )
    for path, leaf in leaves:
        _no_lists(name, agent, path, leaf)
        _leaf(name, agent, jax.tree_util.keystr(path), leaf, leaves[0][1])
    return rows


def _no_lists(name: str, agent: int, path: Any, leaf: np.ndarray) -> None:
    """Reject numbers in lists, because JAX treats each number as an array."""
    depth = [isinstance(step, jax.tree_util.SequenceKey) for step in path]
    if leaf.ndim == 0 and any(depth):
        place = jax.tree_util.keystr(path[: depth.index(True)])
        raise ValueError(
            f"agent {agent}'s {name} rows{place and f' {place}'} are a list or tuple of numbers, "
            f"which JAX takes for many arrays; make one array of them with the rows first, as by "
            f"np.asarray"
        )


def _leaf(name: str, agent: int, path: str, leaf: np.ndarray, first: np.ndarray) -> None:
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
    if leaf.dtype.itemsize > 4 and leaf.dtype.kind == "f" and not _in_double():
        beyond = np.argwhere(np.abs(leaf) > np.finfo(np.float32).max)
        if len(beyond):
            raise ValueError(
                f"{where} are too large for float32: row {beyond[0][0]} is the first, with "
                f"{leaf[tuple(beyond[0])]:g}; correct or rescale it, or enable jax_enable_x64"
            )


def _in_double() -> bool:
    """Return whether arrays may hold float64."""
    return jnp.zeros(()).dtype == jnp.float64


def form(rows: Tree) -> Form:
    """Return the form of these rows."""
    leaves = jax.tree_util.tree_leaves_with_path(rows)
    kind = lambda leaf: f"{leaf.dtype}{list(leaf.shape[1:])}"
    kinds = {jax.tree_util.keystr(path): kind(leaf) for path, leaf in leaves}
    return Form(str(jax.tree.structure(rows)), kinds)


def alike(name: str, agent: int, mine: Form, first: Form) -> None:
    """Check that the rows of `agent` have the form of the rows of agent 0."""
    if mine.structure != first.structure:
        raise ValueError(
            f"agent {agent}'s {name} rows have the structure {mine.structure}, agent "
            f"0's {first.structure}; all agents need the same"
        )
    for path, kind in mine.kinds.items():
        if kind != first.kinds[path]:
            raise ValueError(
                f"a row of agent {agent}'s {name} rows {path} is {kind}, of agent 0's "
                f"{first.kinds[path]}; bring all agents to the same shape and dtype"
            )


def agents(lengths: Mapping[str, int]) -> None:
    """Check that all parts have the same number of agents, at least one."""
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} rows for {count}" for name, count in lengths.items())
        raise ValueError(f"there are {said} agents; give every agent an entry in each list")
    if 0 in lengths.values():
        raise ValueError("there is no agent: the lists of rows are empty; give one entry an agent")


def lower_level(lower: Any, given: str, valid: Any) -> str:
    """Return the kind of lower level: "personal", "common", or "none"."""
    if given not in ("personal", "common"):
        raise ValueError(
            f"lower_level = {given!r}; there are 'personal' and 'common' (none at all: lower=None)"
        )
    if lower is None:
        return "none"
    if valid is None:
        raise TypeError("valid is missing: the upper loss averages over its rows")
    return given


def metrics(metrics: Mapping[str, Any]) -> None:
    """Check that the names of metrics are not taken."""
    for name in metrics:
        error = isinstance(name, str) and name.removesuffix("_se") in {*metrics} - {name}
        if not isinstance(name, str) or not name or name in TAKEN or error:
            raise ValueError(
                f"a metric cannot be called {name!r}: every evaluation has something of that name; "
                f"call it my_{name}"
            )


def point(start: Any) -> tuple[Tree, Tree]:
    """Return (x_0, y_0) as strongly typed floating-point arrays."""
    if not isinstance(start, tuple) or len(start) != 2:
        raise TypeError(f"init(key) must return the tuple (x0, y0), not {type(start).__name__}")

    def strong(name: str, leaf: Any) -> jax.Array:
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
        return leaf.astype(leaf.dtype)

    x, y = (jax.tree.map(lambda leaf: strong(n, leaf), part) for n, part in zip("xy", start))
    for name, part in (("x0", x), ("y0", y)):
        if part is not None and not jax.tree.leaves(part):
            raise ValueError(f"init(key) gives an {name} without any array; it needs at least one")
        if part is not None and not any(leaf.size for leaf in jax.tree.leaves(part)):
            kind = "an x0" if name == "x0" else "a y0"
            raise ValueError(f"init(key) gives {kind} of size 0; it needs at least one number")
    return x, y


def names(given: Sequence[str], init: Any) -> tuple[str, ...]:
    """Check that there is one name per entry of x along the first axis."""
    leaves = jax.tree.leaves(jax.eval_shape(init, jax.random.key(0))[0])
    shape = leaves[0].shape if len(leaves) == 1 else ()
    if not shape or shape[0] != len(given):
        said = f"of shape {shape}" if len(leaves) == 1 else f"{len(leaves)} arrays"
        raise ValueError(
            f"there are {len(given)} names for an x that is {said}; give one array, and one name "
            f"for each entry along its first axis"
        )
    return distinct("names", given, "every entry of x")


def y_names(given: Any, init: Any) -> dict[str, Any]:
    """Return names of the entries of each array of y along its first axes, by path in y."""
    y = jax.eval_shape(init, jax.random.key(0))[1]
    structure: Any = jax.tree.structure(y)
    try:
        each = structure.flatten_up_to(given)
    except (ValueError, TypeError) as cause:
        raise ValueError(f"y_names must have the structure of y, {shapes(y)}") from cause
    found = {}
    for (path, leaf), own in zip(jax.tree_util.tree_leaves_with_path(y), each):
        if own is None:
            continue
        table = np.asarray(own, dtype=str)
        if table.shape != leaf.shape[: table.ndim]:
            raise ValueError(
                f"y_names{jax.tree_util.keystr(path)} are of shape {table.shape} for an array of "
                f"shape {leaf.shape}; name every entry along its first axes"
            )
        found[jax.tree_util.keystr(path)] = table.tolist()
    return found


def agent_names(given: Sequence[str] | None, agents: int) -> tuple[str, ...] | None:
    """Check that there is one name per agent."""
    if given is None:
        return None
    if len(given) != agents:
        raise ValueError(f"there are {len(given)} agent_names for {agents} agents; give one each")
    return distinct("agent_names", given, "every agent")


def distinct(key: str, given: Sequence[str], whose: str) -> tuple[str, ...]:
    """Check that no name occurs twice."""
    found = tuple(map(str, given))
    if twice := [name for name in found if found.count(name) > 1]:
        raise ValueError(f"{key} has {twice[0]!r} twice; give {whose} a name of its own")
    return found


def losses(problem: Any) -> None:
    """Check that f, g and the metrics are finite scalars that average over rows."""
    x, y = problem.start(0)
    shapes = lambda a: jax.tree.map(lambda a: (a.shape, a.dtype.name), a)
    again = problem.start(1)
    for name, one, two in zip("xy", (x, y), again):
        if shapes(one) != shapes(two):
            raise ValueError(
                f"init(key) gives {name}0 of shapes {shapes(one)} with one key and {shapes(two)} "
                f"with another; every agent and seed needs the same shapes"
            )
    # Probe near the start, not at the start: where y is 0, a sum and a mean may agree.
    random = np.random.default_rng(7)
    nudge = lambda a: (np.asarray(a) + 0.1 * random.normal(size=a.shape)).astype(a.dtype)
    checked = {"upper": (problem.upper, "valid"), "lower": (problem.lower, "train")}
    checked |= {
        f"metric {name!r}": (metric, problem.measured) for name, metric in problem.metrics.items()
    }
    checked = {name: given for name, given in checked.items() if given[0] is not None}
    rows = {part: _probe(problem, part) for _, part in checked.values()}

    def look(x: Tree, y: Tree, rows: dict[str, Tree]) -> tuple[dict[str, Any], jax.Array]:
        found = {
            name: jax.vmap(partial(_both_ways, name, loss, x, y))(rows[part])
            for name, (loss, part) in checked.items()
        }
        if problem.lower is None:
            return found, jnp.bool_(True)
        first = jax.tree.map(lambda a: a[0], rows["train"])
        slope = jax.grad(problem.lower, argnums=1)(x, y, first)
        return found, jax.tree.reduce(jnp.logical_or, jax.tree.map(jnp.any, slope))

    x, y = jax.tree.map(nudge, (x, y))
    found, moves = jax.device_get(compile_fast()(look)(x, y, rows))
    for name, values in found.items():
        _average(name, problem.here, values, y)
    if not moves:
        raise ValueError(
            "lower: its gradient in y is zero at a random point for every agent; it must depend "
            "on y (y_i* = argmin_y g_i is not defined otherwise)"
        )


def _probe(problem: Any, part: str) -> Tree:
    """Return the first rows of the agents in this process, equally many per agent."""
    first = lambda a: np.take(np.asarray(a), np.arange(PROBE) % len(a), axis=0)
    here = [problem.rows[part][agent] for agent in problem.here]
    return jax.tree.map(lambda *a: np.stack([first(a) for a in a]), *here)


def _both_ways(name: str, loss: Any, x: Tree, y: Tree, rows: Tree) -> tuple[jax.Array, ...]:
    """Return the loss of all rows, the mean and size of single-row losses, and the loss twice."""
    loss = explain_errors(name, loss)
    together = loss(x, y, rows)
    if jnp.shape(together) != ():
        raise ValueError(
            f"{name} returned shape {jnp.shape(together)} for {PROBE} rows; it must return a "
            f"scalar: use jnp.mean"
        )
    singles = jax.vmap(lambda row: loss(x, y, jax.tree.map(lambda a: a[None], row)))(rows)
    twice = loss(x, y, jax.tree.map(lambda a: jnp.concatenate([a, a]), rows))
    return together, jnp.mean(singles), jnp.mean(jnp.abs(singles)), twice


def _average(name: str, agents: Sequence[int], found: tuple[np.ndarray, ...], y: Tree) -> None:
    """Reject a loss that is not finite or not an average over rows."""
    for agent, value, average, size, twice in zip(agents, *found):
        if not np.isfinite(value):
            raise ValueError(
                f"{name} is {value} on agent {agent}'s first rows, near the point that init "
                f"gives; check its data and the loss for log(0), 0/0 or overflow"
            )
        if abs(value - average) > 1e-3 * max(abs(value), size, 1e-6):
            grows = abs(twice - value) > 0.5 * abs(value - average)
            looks = " (it looks like a sum: use jnp.mean)" if grows else ""
            raise ValueError(
                f"{name} is not an average over rows{looks}: on {PROBE} rows of agent {agent} it "
                f"is {value:.6g}, the average over those rows one by one is {average:.6g}. Full "
                f"losses and mini-batch gradients would disagree; terms without rows are fine, "
                f"anything else that ties rows together is not{_broadcast(y) * (not grows)}"
            )


def _broadcast(y: Tree) -> str:
    """Describe the usual cause of a loss that couples rows by accident: broadcasting."""
    return f" (y is {shapes(y)}; are shapes (n, 1) and (n,) broadcast to (n, n)?)"
