"""Validation of the losses and metrics of a problem, by evaluating them on a few rows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from ..core.pytrees import Tree
from ..hardware.captured_arrays import HOISTED_BYTES
from ..hardware.compiler import compile_fast, optimized_compilation
from .loss_errors import explain_errors, shapes

TOLERANCE = 1e-3  # relative difference between a loss and its average over single rows
NETWORK_TOLERANCE = 3e-2  # the same for networks, which may compute in bfloat16
DISTANCES = (0.1, 1e-4, 1e-7)  # of the probe from the start; the first with finite losses is used
PROBE = 8  # rows used to compare a loss with the average over single rows


def check_losses(problem: Any) -> int:
    """Check that f, g and the metrics are finite scalars that average over rows.

    Returns the bytes of the arrays that they close over, 0 if these are small.
    """
    x, y = problem.start(0)
    forms = lambda a: jax.tree.map(lambda a: (a.shape, a.dtype.name), a)
    other = problem.start(1)
    for name, first, second in zip("xy", (x, y), other):
        if forms(first) != forms(second):
            raise ValueError(
                f"init(key) gives {name}0 of shapes {forms(first)} with one key and "
                f"{forms(second)} with another; every agent and seed needs the same shapes"
            )
    checked = {"upper": (problem.upper, "valid"), "lower": (problem.lower, "train")}
    checked |= {
        f"metric {name!r}": (metric, problem.measured_part)
        for name, metric in problem.metrics.items()
    }
    checked = {name: entry for name, entry in checked.items() if entry[0] is not None}
    rows = {part: _probe_rows(problem, part) for _, part in checked.values()}

    def evaluate(x: Tree, y: Tree, rows: dict[str, Tree]) -> tuple[dict[str, Any], jax.Array]:
        values_by_name = {
            name: jax.vmap(partial(_evaluate_on_rows, name, loss, x, y))(rows[part])
            for name, (loss, part) in checked.items()
        }
        if problem.lower is None:
            return values_by_name, jnp.bool_(True)
        first = jax.tree.map(lambda a: a[0], rows["train"])
        gradient = jax.grad(problem.lower, argnums=1)(x, y, first)
        return values_by_name, jax.tree.reduce(jnp.logical_or, jax.tree.map(jnp.any, gradient))

    program, start = compile_fast()(evaluate), (x, y)
    captured = program.captured_bytes(x, y, rows)
    program.captured = captured if captured >= HOISTED_BYTES else 0
    for distance in DISTANCES:
        x, y = _perturb(start, distance, problem.is_large)
        with optimized_compilation(problem.is_large):
            values_by_name, has_gradient = jax.device_get(program(x, y, rows))
        if all(np.isfinite(values[0]).all() for values in values_by_name.values()):
            break
    for name, (loss, part) in checked.items():
        _check_average(name, loss, problem, (x, y, rows[part]), values_by_name[name])
    if not has_gradient:
        raise ValueError(
            "lower: its gradient in y is zero at a random point for every agent; it must depend "
            "on y (y_i* = argmin_y g_i is not defined otherwise)"
        )
    if problem.lower is not None:
        _check_coupling(problem, x, y, rows)
    return program.captured


def _perturb(point: Tree, distance: float, is_large: bool) -> Tree:
    """Return a point near the start, where a sum and a mean differ though y be 0 at the start.

    Relative to the largest entry of an array if that is below 1, since x may be in small units.
    """
    generator = np.random.default_rng(7)

    def perturb(a: jax.Array) -> Any:
        if is_large:  # stays on the device
            key = jax.random.key(int(generator.integers(2**31)))
            return a + distance * jax.random.normal(key, a.shape, a.dtype)
        scale = min(np.abs(a).max(initial=0.0), 1.0) or 1.0
        return (np.asarray(a) + scale * distance * generator.normal(size=a.shape)).astype(a.dtype)

    return jax.tree.map(perturb, point)


def _check_coupling(problem: Any, x: Tree, y: Tree, rows: dict[str, Tree]) -> None:
    """Reject levels that do not depend on each other, whatever the numbers are."""
    first = {part: jax.tree.map(lambda a: a[0], values) for part, values in rows.items()}
    if not _depends(problem.upper, 1, (x, y, first["valid"])):
        raise ValueError(
            "upper: it does not depend on y, so the lower level has no effect; use y in the upper "
            "loss, or give lower=None"
        )
    if not _depends(jax.grad(problem.lower, argnums=1), 0, (x, y, first["train"])):
        raise ValueError(
            "lower: its gradient in y does not depend on x, so y* is the same for every x; let x "
            "act on y there, or give lower=None"
        )


def _depends(function: Callable[..., Any], argument: int, arguments: tuple[Tree, ...]) -> bool:
    """Return whether the traced function computes its output from an argument."""
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    is_argument = [i == argument for i, tree in enumerate(arguments) for _ in jax.tree.leaves(tree)]
    return any(_dependent_outputs(program, is_argument))


def _dependent_outputs(program: Any, inputs: Sequence[bool]) -> list[bool]:
    """Return which outputs of a traced program are computed from these inputs."""
    dependent = {variable for variable, is_input in zip(program.invars, inputs) if is_input}
    depends = lambda v: not isinstance(v, Literal) and v in dependent
    for equation in program.eqns:
        inner, inputs = equation.params.get("jaxpr"), [depends(v) for v in equation.invars]
        outputs = [any(inputs)] * len(equation.outvars)
        if equation.primitive.name in ("jit", "pjit") and any(inputs):
            outputs = _dependent_outputs(inner.jaxpr, inputs)
        dependent |= {v for v, is_output in zip(equation.outvars, outputs) if is_output}
    return [depends(v) for v in program.outvars]


def _probe_rows(problem: Any, part: str) -> Tree:
    """Return the first rows of the agents in this process, equally many per agent."""
    first = lambda a: np.take(np.asarray(a), np.arange(PROBE) % len(a), axis=0)
    agent_rows = [problem.rows[part][agent] for agent in problem.loaded_agents]
    return jax.tree.map(lambda *a: np.stack([first(a) for a in a]), *agent_rows)


def _evaluate_on_rows(name: str, loss: Any, x: Tree, y: Tree, rows: Tree) -> tuple[jax.Array, ...]:
    """Return the loss of all rows, and the mean and mean size of the losses of single rows."""
    loss = explain_errors(name, loss)
    value = loss(x, y, rows)
    if jnp.shape(value) != ():
        raise ValueError(
            f"{name} returned shape {jnp.shape(value)} for {PROBE} rows; it must return a "
            f"scalar: use jnp.mean"
        )
    singles = jax.vmap(lambda row: loss(x, y, jax.tree.map(lambda a: a[None], row)))(rows)
    return value, jnp.mean(singles), jnp.mean(jnp.abs(singles))


def _check_average(
    name: str,
    loss: Any,
    problem: Any,
    inputs: tuple[Tree, Tree, Tree],
    values_of_agents: tuple[np.ndarray, ...],
) -> None:
    """Reject a loss that is not finite or not an average over rows."""
    (x, y, rows), agents = inputs, problem.loaded_agents
    tolerance = TOLERANCE if problem.has_lower_solution else NETWORK_TOLERANCE
    for i, (agent, value, average, size) in enumerate(zip(agents, *values_of_agents)):
        if not np.isfinite(value):
            raise ValueError(
                f"{name} is {value} on agent {agent}'s first rows, near the point that init "
                f"gives; check its data and the loss for log(0), 0/0 or overflow"
            )
        if abs(value - average) > tolerance * max(abs(value), size, 1e-6):
            twice = jax.tree.map(lambda a, i=i: np.concatenate([a[i], a[i]]), rows)
            value_twice = float(jax.jit(loss)(x, y, twice))
            is_sum = abs(value_twice - value) > 0.5 * abs(value - average)
            hint = " (it looks like a sum: use jnp.mean)" if is_sum else ""
            broadcast = f" (y is {shapes(y)}; are shapes (n, 1) and (n,) broadcast to (n, n)?)"
            raise ValueError(
                f"{name} is not an average over rows{hint}: on {PROBE} rows of agent {agent} it "
                f"is {value:.6g}, the average over those rows one by one is {average:.6g}. Full "
                f"losses and mini-batch gradients would disagree; terms without rows are fine, "
                f"anything else that ties rows together is not{broadcast * (not is_sum)}"
            )
