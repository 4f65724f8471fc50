"""Curvature and noise of the upper level, as an agent finds them on its own rows."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import sampling, tree
from ..core.cost import Cost
from ..core.sampling import Sample
from ..core.tree import Tree
from ..hypergradient import lower_solution
from ..hypergradient.conjugate import ConjugateGradient
from ..hypergradient.implicit import jacobian_product
from ..machine.compiler import briefly
from ..numbers.open_numbers import agent_numbers
from ..problem import Objectives, Rows

PROBES = 3  # differences of hypergradients that find L_l
FAR = 4.0  # by which a step is shortened that led too far
BACKTRACKS = 6  # of the step against h, at most
STEEP = 100.0  # times L_l: a curvature that lies beyond the steps that x takes
RISEN = 1e-3  # of |l|: a rise beyond rounding
NOISY = 16  # mini-batches that tell the noise


@briefly()
def look(
    estimator: Any,
    few: Objectives,
    batches: Objectives,
    x: Tree,
    y: Tree,
    key: jax.Array,
    numbers: jax.Array,
    mu: Any = None,
) -> tuple[jax.Array, jax.Array, jax.Array, Cost, jax.Array]:
    """L_l, r of its own, sigma_L, what they cost, and l_i(x) on these rows, of every agent.

    `mu`: added to the curvature of each g_i where the lower level is common, around where y is.
    """

    def alone(agent: jax.Array, number: jax.Array, few: Any, x: Tree, y: Tree) -> Any:
        few = few if mu is None else Anchored(few, y, mu)
        here, there, curvature, spent = _steepest(few, x, y)
        one = agent_numbers(estimator, number) or Fixed(here.z)
        points = (x, here.y), there
        drawn = jax.random.fold_in(key, number)
        ratio, shaky, noisy = _noise(one, batches.of(agent), points, drawn)
        return curvature, ratio, shaky, tree.add(spent, noisy), here.loss

    agents = jnp.arange(few.train.count.shape[0])
    return jax.vmap(alone)(agents, numbers, few, x, y)


@tree.pytree
@dataclass(frozen=True)
class Anchored:
    """g_i + mu / 2 ||y - anchor||^2 for g_i: one share of a pooled g, made as convex as that."""

    of: Objectives
    anchor: Tree
    mu: Any

    @property
    def train(self) -> Rows:
        return self.of.train

    @property
    def valid(self) -> Rows:
        return self.of.valid

    @property
    def lower(self) -> Any:
        return self.of.lower

    def f(self, x: Tree, y: Tree, where: Any) -> jax.Array:
        return self.of.f(x, y, where)

    def g(self, x: Tree, y: Tree, where: Any) -> jax.Array:
        off = tree.sub(y, self.anchor)
        return self.of.g(x, y, where) + self.mu / 2 * tree.dot(off, off)

    def seen(self, x: Tree) -> Tree:
        return self.of.seen(x)


class Exact(NamedTuple):
    """h = f_x - g_xy z with g_yy z = f_y, at y = y*(x), and f there."""

    h: Tree
    z: Tree
    y: Tree
    loss: jax.Array


def hypergradient(few: Any, x: Tree, y: Tree) -> tuple[Exact, Cost]:
    """h, z and y*(x) on all rows of `few`, and what they cost."""
    if few.lower is None:
        rows = few.valid.count
        loss, h = jax.value_and_grad(few.f)(x, None, None)
        return Exact(h, None, None, loss), Cost(rows, rows)
    solved = lower_solution.solve(few, x, y)
    point, everything = (x, solved.y), Sample(None, None, None, None, None)
    loss, (f_x, f_y) = jax.value_and_grad(few.f, (0, 1))(*point, None)
    (z,), cost = ConjugateGradient(50, tolerance=1e-3)(few, [point], [f_y], everything)
    h = tree.sub(f_x, jacobian_product(few, point, None, z))
    cost = tree.add(cost, Cost(few.valid.count, few.valid.count, 0, few.train.count))
    return Exact(h, z, solved.y, loss), tree.add(solved.cost, cost)


def _steepest(few: Any, x: Tree, y: Tree) -> tuple[Exact, tuple[Tree, Tree], jax.Array, Cost]:
    """L_l: the largest ||h(x + s d) - h(x)|| / s seen.

    First at x itself; then PROBES times with d by power iteration from h; last, one step of length
    s = ||h|| / L_l against h. Where h is not finite, L_l is taken FAR times as large: no step may
    lead there. The last step backtracks in the same way while it finds a curvature above STEEP L_l,
    or l rises by more than the s ||h|| by which it should fall: what lies beyond the steps that
    x takes does not count. One loop, so that h is compiled once. Also what was found at x, the
    point (x + s d, y*) of the last power iteration, and what all of it cost.
    """
    small = 1e-2 * (1 + tree.norm(x))
    tiny = jnp.finfo(small.dtype).tiny
    unit = lambda a: tree.scale(1 / jnp.maximum(tree.norm(a), tiny), a)

    def step(carry: Any) -> Any:
        (k, backtracks), here, there, d, s, largest, spent = carry
        moved = tree.axpy(s, d, x)
        found, cost = hypergradient(few, moved, here.y)
        here = tree.select(k == 0, found, here)
        change = tree.scale(1 / jnp.maximum(s, tiny), tree.sub(found.h, here.h))
        size = tree.norm(change)
        rise = found.loss - here.loss - s * tree.norm(here.h)
        near = (rise <= RISEN * jnp.abs(here.loss)) & (size <= STEEP * largest)
        fine = jnp.isfinite(size) & ((k <= PROBES) | near)
        largest = jnp.where(fine, jnp.maximum(largest, size), FAR * largest)
        there = tree.select(fine & (k <= PROBES), (moved, found.y), there)
        d = tree.select(k == 0, unit(here.h), tree.select(fine, unit(change), d))
        d = tree.select(k >= PROBES, tree.scale(-1, unit(here.h)), d)
        long = jnp.maximum(tree.norm(here.h) / jnp.maximum(largest, tiny), tiny)
        s = jnp.where(k >= PROBES, long, small)
        again = (k == PROBES + 1) & ~fine & (largest > 0) & (backtracks < BACKTRACKS)
        count = jnp.where(again, k, k + 1), backtracks + again
        return count, here, there, d, s, largest, tree.add(spent, cost)

    nothing = Cost(*(jnp.zeros((), jnp.int32) for _ in Cost._fields))
    zero = jnp.zeros_like(small)
    begin = tree.zeros(x), tree.zeros(y), zero, nothing, (jnp.int32(0), jnp.int32(0))
    h, z, zero, nothing, count = tree.mapped_with(begin, small)
    first = count, Exact(h, z, y, zero), (x, y), h, zero, zero, nothing
    unfinished = lambda carry: carry[0][0] < PROBES + 2
    _, here, there, _, _, largest, spent = jax.lax.while_loop(unfinished, step, first)
    return here, there, largest, spent


class Fixed(NamedTuple):
    """f_x(xi) - g_xy(zeta_0) z, as an algorithm has it that carries z along."""

    z: Tree
    links: int = 0

    def __call__(self, problem: Objectives, points: Any, sample: Sample) -> tuple[list[Tree], Cost]:
        def at(x: Tree, y: Tree) -> Tree:
            f_x = jax.grad(problem.f, 0)(x, y, sample.upper)
            if problem.lower is None:
                return f_x
            return tree.sub(f_x, jacobian_product(problem, (x, y), sample.cross, self.z))

        rows = problem.train.batch
        below = 0 if problem.lower is None else rows
        cost = Cost(rows + below, len(points) * rows, 0, len(points) * below)
        return [at(x, y) for x, y in points], cost


def _noise(
    estimator: Any, problem: Objectives, points: Any, key: jax.Array
) -> tuple[jax.Array, jax.Array, Cost]:
    """Of the hypergradient that the algorithm samples: r = ||mean||^2 / variance, and sigma_L, the

    standard deviation of its change between the two points, divided by their distance.
    """
    rows = problem.train.stored, problem.valid.stored

    def sampled(t: Any) -> tuple[Tree, Tree, Cost]:
        batch = problem.train.batch
        drawn = sampling.draw(key, t, 0, rows, estimator.links, batch, "blocks")
        (h, there), cost = estimator(problem, points, drawn)
        return h, tree.sub(there, h), Cost(*(jnp.asarray(c, jnp.int32) for c in cost))

    def variance(each: Tree) -> tuple[Tree, jax.Array]:
        mean = jax.tree.map(lambda a: a.mean(0), each)
        off = jax.vmap(lambda a: tree.sub(a, mean))(each)
        return mean, jax.vmap(lambda a: tree.dot(a, a))(off).sum() / (NOISY - 1)

    each, changes, costs = jax.lax.map(sampled, jnp.arange(NOISY))
    (mean, spread), (_, shaky) = variance(each), variance(changes)
    tiny, most = jnp.finfo(spread.dtype).tiny, float(jnp.finfo(spread.dtype).max) ** 0.5
    distance = jnp.maximum(tree.norm(tree.sub(points[1][0], points[0][0])), tiny)
    ratio = jnp.minimum(tree.dot(mean, mean) / jnp.maximum(spread, tiny), most)  # of no noise
    return ratio, jnp.sqrt(shaky) / distance, jax.tree.map(lambda c: c.sum(), costs)
