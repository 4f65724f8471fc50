"""Standard errors of measures on a sample of a stream.

To first order, a row r of the sample changes a measure by its influence. For a number q with

    dq = alpha df + v dh + u dy*,     h = f_x - g_xy z,  g_yy z = f_y,  g_y(x, y*) = 0

the influence is, with D the derivative along (v, -a), a = g_yy^-1 g_yx v,

    alpha f_r + D f_r               of a validation row,
    -z D (g_r)_y - b (g_r)_y        of a training row, b = g_yy^-1 (alpha f_y + D(f_y - g_yy z) + u)

with z fixed in D. The variance of q is that of the mean of the influences, added up over the
agents. A squared norm |q + e|^2 whose error e is not small compared to q has the variance of 2 q e,
and a mean square of |e|^2 of at most 3 (E |e|^2)^2, estimated along random directions: its standard
error here is the root mean square error, including bias.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.linear_solvers import conjugate_gradient
from ..core.pytrees import Tree
from ..core.sampling import key
from ..problem import Loss, Objectives, Rows
from .lower_solution import CG_STEPS, Oracle, Own, tolerance

SUFFIX = "_se"
PROBES = 4  # number of random directions


class Found(NamedTuple):
    """Points of the agents, and the measured values there."""

    x: Tree  # of all agents
    y: Tree
    mean: Tree  # xbar
    mine: Tree  # y*(x_i) of all agents, or the common y*
    there: Tree  # y*(xbar), likewise
    gradient: Tree  # the mean hypergradient
    shown: Callable[[Tree], Tree]  # stationarity is the squared norm of its result


class Asked(NamedTuple):
    """Coefficients of dq = alpha df + v dh + u dy*, for several q along a first axis."""

    alpha: jax.Array
    v: Tree
    u: Tree


class Adjoint(NamedTuple):
    """Adjoint solutions from which the influences of rows on q are computed."""

    z: Tree = None
    a: Tree = None
    b: Tree = None


@dataclass(frozen=True)
class Agents:
    """Operations over all agents."""

    each: Callable[[Callable[..., Any]], Callable[..., Any]]  # maps over all agents
    total: Callable[[jax.Array], jax.Array]  # sum over the agents
    count: int
    pooled: Oracle | None  # oracle of a common lower level

    def everywhere(self, problem: Objectives, a: Tree) -> Tree:
        """Repeat `a` per agent; once for a common lower level."""
        if self.pooled is not None:
            return a
        many = problem.train.count.shape[0]
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (many, *a.shape)), a)

    def variances(self, problem: Objectives, x: Tree, y: Tree, asked: Asked) -> jax.Array:
        """Return the variance of each q, summed over the agents whose rows are samples."""
        pooled = self.pooled
        if pooled is not None:
            known = jax.vmap(lambda one: _adjoint(pooled, x, y, one))(asked)
            each = self.each(lambda own: _variances(own, x, y, asked, known))(problem)
        else:
            each = self.each(_alone)(problem, x, y, asked)
        return self.total(each)


def standard_errors(
    problem: Objectives,
    rows: Rows,
    metrics: Sequence[tuple[str, Loss]],
    at: Found,
    agents: Agents,
) -> dict[str, jax.Array]:
    """Return the standard errors of the results of `measure`, by name and "_se"."""
    spread = agents.each(partial(averages, metrics))(problem, rows, at.x, at.y)
    found = {name: jnp.sqrt(agents.total(v)) / agents.count for name, v in spread.items()}
    found |= _upper(problem, at, agents) | {"lower_error": jnp.zeros(())}
    if problem.lower is not None:
        found["lower_error"] = _lower(problem, at, agents)
    found["metric"] = found["stationarity"] + found["lower_error"]  # upper bound
    return {name + SUFFIX: value for name, value in found.items()}


def averages(
    metrics: Sequence[tuple[str, Loss]], problem: Objectives, rows: Rows, x: Tree, y: Tree
) -> dict[str, jax.Array]:
    """Return the variances of averages over one agent's rows: its loss, and the metrics."""
    found = {name: rows.variance(loss, x, y) for name, loss in metrics}
    return found | {"local_loss": problem.valid.variance(problem.upper, x, y)}


def _upper(problem: Objectives, at: Found, agents: Agents) -> dict[str, jax.Array]:
    """Variances of upper_loss = 1/m sum_i f_i and stationarity = |shown(1/m sum_i h_i)|^2."""
    value, pull = jax.vjp(at.shown, at.gradient)
    along = [pytrees.scale(2.0, value), *_directions(0, at.mean)]
    nothing, y = pytrees.zeros(at.mean), _zeros(at.y)
    asked = [Asked(jnp.ones(()), nothing, y)]
    asked += [Asked(jnp.zeros(()), pull(one)[0], y) for one in along]
    here = agents.everywhere(problem, (at.mean, _stack(asked)))
    loss, steep, *floor = agents.variances(problem, here[0], at.there, here[1]) / agents.count**2
    return {"upper_loss": jnp.sqrt(loss), "stationarity": _squared(steep, floor)}


def _lower(problem: Objectives, at: Found, agents: Agents) -> jax.Array:
    """Return the variance of sum_i ||y* - y_i||^2."""
    none, directions = pytrees.zeros(at.mean), _directions(1, _zeros(at.y))
    ask = lambda u: Asked(jnp.zeros(()), none, u)
    wanted = lambda off: _stack([ask(pytrees.scale(2.0, off)), *map(ask, directions)])
    off = jax.tree.map(lambda mine, y: mine - y, at.mine, at.y)
    if agents.pooled is None:
        steep, *floor = agents.variances(problem, at.x, at.mine, jax.vmap(wanted)(off))
        return _squared(steep, floor)
    all_off = wanted(jax.tree.map(agents.total, off))
    steep, *floor = agents.variances(problem, at.mean, at.mine, all_off) / agents.count**2
    return _squared(steep, [agents.count * one for one in floor])


def _squared(steep: jax.Array, floor: Sequence[jax.Array]) -> jax.Array:
    return jnp.sqrt(steep + 3 * (sum(floor) / len(floor)) ** 2)


def _alone(own: Objectives, x: Tree, y: Tree, asked: Asked) -> jax.Array:
    """Return the variances of one agent with a personal lower level or none."""
    if own.lower is None:
        return _variances(own, x, y, asked, Adjoint())
    known = jax.vmap(lambda one: _adjoint(Own(own), x, y, one))(asked)
    return _variances(own, x, y, asked, known)


def _adjoint(oracle: Oracle, x: Tree, y: Tree, asked: Asked) -> Adjoint:
    f_y = lambda x, y: oracle.upper(x, y)[1]
    product = jax.linearize(lambda y: oracle.lower(x, y), y)[1]
    small = tolerance(pytrees.norm(y).dtype)
    solve = lambda b: conjugate_gradient(product, b, CG_STEPS, small)[0]
    z = solve(f_y(x, y))
    a = solve(jax.jvp(lambda x: oracle.lower(x, y), (x,), (asked.v,))[1])

    def slope(x: Tree, y: Tree) -> Tree:
        """Return f_y - g_yy z, with z fixed."""
        bent = jax.jvp(lambda y: oracle.lower(x, y), (y,), (z,))[1]
        return pytrees.sub(f_y(x, y), bent)

    moved = jax.jvp(slope, (x, y), (asked.v, pytrees.scale(-1.0, a)))[1]
    return Adjoint(z, a, solve(pytrees.axpy(asked.alpha, f_y(x, y), pytrees.add(moved, asked.u))))


def _variances(own: Objectives, x: Tree, y: Tree, asked: Asked, known: Adjoint) -> jax.Array:
    """Return, for each q, the variance of the mean of one agent's influences."""

    def one(asked: Asked, known: Adjoint) -> jax.Array:
        if own.lower is None:
            return own.valid.variance(lambda x, y, rows: _along(own.upper, x, y, rows, asked), x, y)
        way = asked.v, pytrees.scale(-1.0, known.a)

        def upper(x: Tree, y: Tree, rows: Tree) -> jax.Array:
            value, change = jax.jvp(lambda x, y: own.upper(x, y, rows), (x, y), way)
            return asked.alpha * value + change

        def lower(x: Tree, y: Tree, rows: Tree) -> jax.Array:
            g_y = lambda x, y: jax.grad(own.lower, 1)(x, y, rows)
            value, change = jax.jvp(g_y, (x, y), way)
            return -pytrees.dot(known.z, change) - pytrees.dot(known.b, value)

        return own.valid.variance(upper, x, y) + own.train.variance(lower, x, y)

    return jax.vmap(one)(asked, known)


def _along(loss: Loss, x: Tree, y: Tree, rows: Tree, asked: Asked) -> jax.Array:
    value, change = jax.jvp(lambda x: loss(x, y, rows), (x,), (asked.v,))
    return asked.alpha * value + change


def _directions(number: int, shape: Tree) -> list[Tree]:
    return [pytrees.normal(k, shape) for k in jax.random.split(key(number), PROBES)]


def _zeros(y: Tree) -> Tree:
    """Return zeros in the shape of one agent's y."""
    return jax.tree.map(lambda a: jnp.zeros_like(a[0]), y)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *a: jnp.stack(a), *trees)
