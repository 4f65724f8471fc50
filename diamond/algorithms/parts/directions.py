"""Directions of x, y and z: functions of points and of ONE sample for all points.

    gradient   x: f_x                                there is no lower level
    implicit   x: f_x - g_xy [g_yy]^-1 f_y           y: g_y
    carried    x: f_x - g_xy z                       y: g_y       z: g_yy z - f_y
    penalty    x: f_x(z) + lam (g_x(z) - g_x(y))     y: g_y(y)    z: f_y(z) / lam + g_y(z)

z of `carried` converges to [g_yy]^-1 f_y, z of `penalty` to argmin f / lam + g.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import LargeBatch, Sample
from ...core.suggestions import did_you_mean
from ...hypergradient import Hypergradient
from ...problem import LARGE, Objectives
from ...schedules.step_schedules import Schedule, schedule
from .gradient_estimators import RowCounts
from .variables import STATIC, Point

DirectionsAndCost = tuple[list[Point], Cost]


class Directions:
    """Directions of x, y and z: gradients of f and g, by default as sums of two parts."""

    upper_variables: ClassVar[str] = "xz"  # variables whose directions use rows of f
    needs_strong_convexity: ClassVar[bool] = False
    allows_solved_lower_level: ClassVar[bool] = True  # y may be replaced by y*(x) during the run
    splits_levels: ClassVar[bool] = True  # into parts of f and of g
    solves_for_z: ClassVar[bool] = False  # whether z solves g_yy z = f_y
    variables: ClassVar[str] = "xyz"
    calls: ClassVar[str] = "its own"  # per point, as the table of methods names them
    hessian_batches: Any = 0
    hypergradient: Any = None

    @property
    def uses_all_rows(self) -> bool:
        """Whether all rows of g are used, regardless of the sample."""
        return False

    def start(self, x: Tree, y: Tree) -> Point:
        """Return the variables at the start."""
        raise NotImplementedError

    def __call__(
        self, problem: Objectives, points: Sequence[Point], sample: Sample, names: str, t: Number
    ) -> DirectionsAndCost:
        parts = [self.upper_and_lower_parts(problem, p, sample, names, t) for p in points]
        cost = self._cost(problem, sample, names, len(points))
        return [pytrees.add(upper, lower) for upper, lower, _ in parts], cost

    def upper_and_lower_parts(
        self, problem: Objectives, point: Point, sample: Sample, names: str, t: Number
    ) -> tuple[Point, Point, Cost]:
        """Return the parts of f and of g, and their cost."""
        raise NotImplementedError

    def _cost(self, problem: Objectives, sample: Sample, names: str, points: int) -> Cost:
        raise NotImplementedError


@pytrees.pytree
@dataclass(frozen=True)
class Gradient(Directions):
    """Direction f_x(xi) of x."""

    variables: ClassVar[str] = "x"
    calls = "f"

    def start(self, x: Tree, y: Tree) -> Point:
        return Point(x)

    def __call__(
        self, problem: Objectives, points: Sequence[Point], sample: Sample, names: str, t: Number
    ) -> DirectionsAndCost:
        rows = problem.valid.size(sample.upper)
        directions = [Point(jax.grad(problem.f)(point.x, None, sample.upper)) for point in points]
        return directions, Cost(rows, len(points) * rows)

    def upper_and_lower_parts(
        self, problem: Objectives, point: Point, sample: Sample, names: str, t: Number
    ) -> tuple[Point, Point, Cost]:
        (f,), cost = self(problem, [point], sample, names, t)
        return f, pytrees.zeros(f), cost


@pytrees.pytree
@dataclass(frozen=True)
class Implicit(Directions):
    """Direction h(x, y) of x, the hypergradient, and g_y(zeta) of y."""

    hypergradient: Hypergradient = field()
    variables: ClassVar[str] = "xy"
    needs_strong_convexity = True
    splits_levels: ClassVar[bool] = False
    calls = "f, g, chain, g_xy"

    @property
    def uses_all_rows(self) -> bool:
        return self.hypergradient.uses_all_rows

    @property
    def hessian_batches(self) -> int:
        return self.hypergradient.hessian_batches

    def start(self, x: Tree, y: Tree) -> Point:
        return Point(x, y)

    def __call__(
        self, problem: Objectives, points: Sequence[Point], sample: Sample, names: str, t: Number
    ) -> DirectionsAndCost:
        directions, cost = [Point() for _ in points], Cost()
        if "x" in names:
            h, cost = self.hypergradient(problem, [(point.x, point.y) for point in points], sample)
            directions = [Point(h) for h in h]
        if "y" in names:
            v = [jax.grad(problem.g, 1)(point.x, point.y, sample.lower) for point in points]
            directions = [direction.with_values(y=v) for direction, v in zip(directions, v)]
            rows = problem.train.size(sample.lower)
            cost = pytrees.add(cost, Cost(rows, len(points) * rows))
        elif sample.lower is None:  # all training rows, for the hypergradient alone
            cost = pytrees.add(cost, Cost(problem.train.count))
        return directions, cost


@pytrees.pytree
@dataclass(frozen=True)
class Carried(Directions):
    """Directions f_x(xi) - g_xy(zeta_0) z of x, g_y(zeta) of y, g_yy(zeta_0) z - f_y(xi) of z.

    With `differences` both products are differences of gradients of g at y + r z and y - r z.
    """

    differences: bool = field(default=False, metadata=STATIC)
    needs_strong_convexity = True
    solves_for_z = True
    calls = "f, g, g_yy, g_xy"

    def start(self, x: Tree, y: Tree) -> Point:
        return Point(x, y, pytrees.zeros(y))

    def _upper(self, problem: Objectives, point: Point, where: Any) -> Point:
        """Return f_x, 0, -f_y."""
        f_x, f_y = jax.grad(problem.f, (0, 1))(point.x, point.y, where)
        return Point(f_x, pytrees.zeros(point.y), pytrees.scale(-1, f_y))

    def _products(self, problem: Objectives, point: Point, where: Any) -> tuple[Tree, Tree]:
        """Return g_xy z and g_yy z."""
        if not self.differences:
            g_y = lambda x, y: jax.grad(problem.g, 1)(x, y, where)
            cross, hessian = jax.vjp(g_y, point.x, point.y)[1](
                point.z
            )  # one pass: g_yy is symmetric
            return cross, hessian
        size = pytrees.norm(point.z)
        eps = float(jnp.finfo(size.dtype).eps)
        r = eps ** (1 / 3) * (1 + pytrees.norm(point.y)) / (size + eps)
        gradient_at = lambda s: jax.grad(problem.g, (0, 1))(
            point.x, pytrees.axpy(s * r, point.z, point.y), where
        )
        cross, hessian = pytrees.scale(
            1 / (2 * r), pytrees.sub(gradient_at(1.0), gradient_at(-1.0))
        )
        return cross, hessian

    def _cost(
        self,
        problem: Objectives,
        sample: Sample,
        names: str,
        points: int,
        *,
        shares_rows: bool = False,
    ) -> Cost:
        """Count rows of xi, zeta and zeta_0; the last two may coincide."""
        f, g = problem.valid.size(sample.upper), problem.train.size(sample.lower)
        upper, y = "x" in names or "z" in names, "y" in names
        cost = Cost(g * y, points * g * y)
        if upper:
            fresh = 0 if shares_rows else problem.train.count_fresh_rows(sample.cross)
            rows = f + (fresh if y else g)
            cost = pytrees.add(cost, Cost(rows, points * f))
        if self.differences:
            return pytrees.add(cost, Cost(0, 2 * points * g * upper))
        return pytrees.add(
            cost, Cost(0, 0, points * g * ("z" in names), points * g * ("x" in names))
        )

    def __call__(
        self, problem: Objectives, points: Sequence[Point], sample: Sample, names: str, t: Number
    ) -> DirectionsAndCost:
        def directions_at(point: Point) -> Point:
            if is_large(point.y):
                return self._in_turn(problem, point, sample, names, t=t)
            upper = self._upper(problem, point, sample.upper)
            cross, hessian = self._products(problem, point, sample.cross)
            v = jax.grad(problem.g, 1)(point.x, point.y, sample.lower)
            return Point(pytrees.sub(upper.x, cross), v, pytrees.add(upper.z, hessian)).only(names)

        in_turn = is_large(points[0].y)
        cost = self._cost(problem, sample, names, len(points), shares_rows=in_turn)
        return [directions_at(point) for point in points], cost

    def _in_turn(
        self, problem: Objectives, point: Point, sample: Sample, names: str, *, t: Number
    ) -> Point:
        """Return the directions of a large y, one pass after another.

        g_y is a by-product of the products, so both have the rows of zeta_0.
        """
        if "x" not in names and "z" not in names:
            lower = gradients(problem.g, False, True)
            return Point(y=one_pass(lambda rows: lower(point.x, point.y, rows), sample.lower, t)[1])
        upper = gradients(problem.f, "x" in names, "z" in names)

        def subtract(f: tuple[Tree, Tree], where: Any) -> Point:
            v, cross, hessian = self._gradient_and_products(problem, point, where)
            p = pytrees.sub(f[0], cross) if "x" in names else None
            return Point(p, v, pytrees.sub(hessian, f[1]) if "z" in names else None).only(names)

        f = one_pass(lambda where: upper(point.x, point.y, where), sample.upper, t)
        return one_pass(lambda where: subtract(f, where), sample.cross, t, after=f)

    def _gradient_and_products(
        self, problem: Objectives, point: Point, where: Any
    ) -> tuple[Tree, Tree, Tree]:
        """Return g_y, g_xy z and g_yy z."""
        if self.differences:
            v = jax.grad(problem.g, 1)(point.x, point.y, where)
            return (v, *self._products(problem, point, where))
        gradient = lambda y: jax.grad(problem.g, (0, 1))(point.x, y, where)
        (_, v), (cross, hessian) = jax.jvp(gradient, (point.y,), (point.z,))
        return v, cross, hessian

    def upper_and_lower_parts(
        self, problem: Objectives, point: Point, sample: Sample, names: str, t: Number
    ) -> tuple[Point, Point, Cost]:
        upper = self._upper(problem, point, sample.upper)
        cross, hessian = self._products(problem, point, sample.cross)
        v = jax.grad(problem.g, 1)(point.x, point.y, sample.lower)
        lower = Point(pytrees.scale(-1, cross), v, hessian)
        return upper.only(names), lower.only(names), self._cost(problem, sample, names, 1)


@pytrees.pytree
@dataclass(frozen=True)
class Penalty(Directions):
    """First-order directions of x, y and z with the lower level as a penalty.

    x: f_x(z) + lam (g_x(z) - g_x(y)), y: g_y, z: f_y / lam + g_y. The difference uses the same
    rows, so its noise shrinks with y - z = O(1 / lam).
    """

    lam: Schedule
    calls = "f, 2 g"

    def start(self, x: Tree, y: Tree) -> Point:
        return Point(x, y, y)

    def _cost(self, problem: Objectives, sample: Sample, names: str, points: int) -> Cost:
        f, g = self._upper(problem, sample.upper)[1], problem.train.size(sample.lower)
        f = f if "x" in names or "z" in names else 0
        copies = 2 if "x" in names else len(names)  # points at which g is evaluated
        return Cost(f + g, points * (f + copies * g))

    def _upper(self, problem: Objectives, where: Any) -> tuple[Callable[..., Any], Any]:
        """Return f, and the number of rows of `where` that it takes."""
        return problem.f, problem.valid.size(where)

    def __call__(
        self, problem: Objectives, points: Sequence[Point], sample: Sample, names: str, t: Number
    ) -> DirectionsAndCost:
        if not is_large(points[0].y):
            return super().__call__(problem, points, sample, names, t)
        cost = self._cost(problem, sample, names, len(points))
        return [self._in_turn(problem, p, sample, names, t=t) for p in points], cost

    def _in_turn(
        self, problem: Objectives, point: Point, sample: Sample, names: str, *, t: Number
    ) -> Point:
        """Return the directions of a large y, one pass after another.

        Two gradients exist at a time: the direction of z replaces its two parts before y's pass.
        """
        lam, x_moves, z_moves = self.lam(t), "x" in names, "z" in names
        losses = self._upper(problem, sample.upper)[0], problem.g
        at_z = [gradients(loss, x_moves, z_moves) for loss in losses]
        at_y = gradients(problem.g, x_moves, "y" in names)

        def add_lower_part(f: tuple[Tree, Tree], where: Any) -> tuple[Tree, Tree]:
            g_x, g_z = at_z[1](point.x, point.z, where)
            return pytrees.axpy(lam, g_x, f[0]), pytrees.axpy(1 / lam, f[1], g_z)

        p = v = w = None
        if x_moves or z_moves:
            f = one_pass(lambda where: at_z[0](point.x, point.z, where), sample.upper, t)
            p, w = one_pass(lambda where: add_lower_part(f, where), sample.lower, t, after=f)
        if x_moves or "y" in names:
            at = lambda where: at_y(point.x, point.y, where)
            g_x, v = one_pass(at, sample.lower, t, after=(p, w))
            p = pytrees.axpy(-lam, g_x, p) if x_moves else None
        return Point(p, v, w)

    def upper_and_lower_parts(
        self, problem: Objectives, point: Point, sample: Sample, names: str, t: Number
    ) -> tuple[Point, Point, Cost]:
        lam, both = self.lam(t), jax.grad(problem.g, (0, 1))
        upper_loss, _ = self._upper(problem, sample.upper)
        f_x, f_y = jax.grad(upper_loss, (0, 1))(point.x, point.z, sample.upper)
        y_x, y_y = both(point.x, point.y, sample.lower)
        z_x, z_y = both(point.x, point.z, sample.lower)
        upper = Point(f_x, pytrees.zeros(point.y), pytrees.scale(1 / lam, f_y))
        lower = Point(pytrees.scale(lam, pytrees.sub(z_x, y_x)), y_y, z_y)
        return upper.only(names), lower.only(names), self._cost(problem, sample, names, 1)


@pytrees.pytree
@dataclass(frozen=True)
class PenaltyOnHalf(Penalty):
    """The same with f on the first half of its mini-batch.

    A pass over f costs as much as one over g, but f moves z by 1 / lam only.
    """

    def _upper(self, problem: Objectives, where: Any) -> tuple[Callable[..., Any], Any]:
        if where is None or isinstance(where, LargeBatch):  # all rows, or rows that stand for all
            return super()._upper(problem, where)
        half = -(-problem.valid.size(where) // 2)
        first_half = lambda rows: jax.tree.map(lambda a: a[:half], rows)
        on_half = lambda x, y, rows: problem.upper(x, y, first_half(rows))
        return replace(problem, upper=on_half).f, half


class BoundDirections(NamedTuple):
    """Directions of some variables of one agent in round t, as an estimator calls them."""

    directions: Directions
    problem: Objectives
    names: str
    t: Number

    @property
    def rows(self) -> RowCounts:
        problem = self.problem
        return RowCounts(problem.train.batch, problem.valid.count, problem.train.count)

    def __call__(self, points: Sequence[Point], sample: Sample) -> tuple[list[Point], Cost]:
        return self.directions(self.problem, points, sample, self.names, self.t)

    def upper_and_lower_parts(self, point: Point, sample: Sample) -> tuple[Point, Point, Cost]:
        return self.directions.upper_and_lower_parts(
            self.problem, point, sample, self.names, self.t
        )


def is_large(y: Tree) -> bool:
    """Return whether the gradients of an agent's y are computed one after another."""
    return bool(sum(leaf.size for leaf in jax.tree.leaves(y)) > LARGE)


def gradients(loss: Callable[..., Any], of_x: bool, of_y: bool) -> Callable[..., Any]:
    """Return the function (x, y, rows) -> (loss_x, loss_y), None for a part not asked for."""
    wanted = tuple(k for k, is_wanted in enumerate((of_x, of_y)) if is_wanted)

    def evaluate(x: Tree, y: Tree, where: Any) -> tuple[Tree, Tree]:
        parts = dict(zip(wanted, jax.grad(loss, wanted)(x, y, where) if wanted else ()))
        return parts.get(0), parts.get(1)

    return evaluate


def one_pass(work: Callable[[Any], Any], where: Any, t: Number, after: Tree = None) -> Any:
    """Return work(where), computed apart from all other passes, and after those that gave `after`.

    XLA may run independent passes at the same time, and then holds the activations of all of them.
    A loop of one iteration holds its own: XLA does not know that there is one iteration, nor that
    the rows do not depend on its number and on `after`. Loops that do not depend on each other
    share no memory.
    """
    start = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(work, where))
    once = jnp.where(t >= 0, 1, 2)

    def shift(k: jax.Array) -> Any:
        """Return `where` shifted by k = 0."""
        is_number = lambda a: jnp.issubdtype(a.dtype, jnp.number)
        return jax.tree.map(lambda a: a + k.astype(a.dtype) if is_number(a) else a, where)

    if results := jax.tree.leaves(after):
        where = shift((t < 0) & (jnp.ravel(results[-1])[0] > 0))

    def body(carry: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
        k = carry[0]  # 0
        return k + 1, work(shift(k))

    return jax.lax.while_loop(lambda carry: carry[0] < once, body, (0 * once, start))[1]


def gradient() -> Gradient:
    """Make directions without a lower level."""
    return Gradient()


def implicit(hypergradient: Any) -> Implicit:
    """Make directions with any estimator of `diamond.hypergradient` for x."""
    return Implicit(hypergradient)


def carried(differences: bool = False) -> Carried:
    """Make directions with z, the solution of g_yy z = f_y, as a variable."""
    return Carried(differences)


def penalty(lam: Schedule | Number = 20.0) -> Penalty:
    """Make first-order directions: the lower level as a penalty, with a bias of order 1 / lam."""
    return Penalty(schedule(lam, "lam"))


def penalty_on_half(lam: Schedule | Number = 20.0) -> Penalty:
    """Make the same directions with f on half of its mini-batch."""
    return PenaltyOnHalf(schedule(lam, "lam"))


def directions_by_name(name: str, hypergradient: Any, lam: Schedule | Number) -> Any:
    """Return directions by name."""
    makers: dict[str, Callable[[], Any]] = {
        "implicit": lambda: implicit(hypergradient),
        "carried": carried,
        "penalty": lambda: penalty(lam),
        "gradient": gradient,
    }
    if name not in makers:
        raise ValueError(f"no directions {name!r}; {did_you_mean(name, makers)}")
    return makers[name]()
