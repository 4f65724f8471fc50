"""The gradient work of a round with learned steps: sampled directions, and local work if y lags."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...auto.local_solver import run_if, solve_locally
from ...auto.step_rule import FIRST, GROWTH, TINY, TRUST
from ...core import tree
from ...core.cost import Cost
from ...core.sampling import Sample
from ...core.tree import Tree
from ...numbers.schedule import Number
from ...problem import Objectives
from .point import Point

MARGIN = 1.5  # between 1 / curvature and the steps of y and z
POWER_STEPS_AT_START = 4
FORGETTING = 0.99  # of the largest curvature seen, a round
SMOOTHING, LEAST_WEIGHT = 10.0, 0.3  # of the moving average of the direction of x
LAGGING = 10.0  # rounds in which z relaxes, from which on local work is tried
USELESS, USEFUL = 0.8, 0.5  # similarity of the hypergradient before and after local work
LONGEST_REST = 63.0  # rounds between two local solutions
UNSETTLED, EXPLODED = 2.0, 10.0  # times its norm at the start: a lower gradient that stops the
# growth of steps, and that asks for local work
BATCHES_AT_START, BATCHES = 8, 64  # mini-batches that local work uses, at most
MOST_PROBES = 30  # of a step that shifts the lower gradient too far
BUDGET = 30.0  # local work, of the gradient work of the rounds that it is done for, at most


class Memory(NamedTuple):
    """What an agent keeps for itself."""

    power_vector: Tree  # about the eigenvector of g_yy to its largest eigenvalue
    curvature: jax.Array  # the largest eigenvalue of g_yy
    lag: jax.Array  # rounds in which gradient steps of z relax, along z
    reference: jax.Array  # ||g_y|| at the start
    residual: jax.Array  # ||g_y|| on the last mini-batch
    rest: jax.Array  # rounds to the next local solution,
    wait: jax.Array  # and how many of them are left


class Estimate(NamedTuple):
    """The gradient work of a round."""

    direction: Point
    y: Tree
    z: Tree
    trusted_length: jax.Array
    memory: Memory


def estimate_directions(
    problem: Objectives,
    state: Any,
    t: Number,
    sample: Sample,
    first_move: int,
    lower_step: Callable[[jax.Array], jax.Array],
) -> tuple[Estimate, Cost]:
    """Directions of x, y and z on mini-batches; y and z of one agent are moved along theirs.

    Args:
        first_move: the round in which x moves for the first time.
        lower_step: the step size of y and z at this curvature of g_yy.
    """
    memory, x = state.memory, state.x
    y, z, spent = state.y, state.z, Cost(*(0 * memory.rest.astype(jnp.int32) for _ in range(4)))
    if problem.lower_level == "personal":
        y, z, memory, spent = _work_locally(problem, state, t, sample)
    f_x, f_y = jax.grad(problem.f, (0, 1))(x, y, sample.upper)
    lower_gradient = lambda x, y: jax.grad(problem.g, 1)(x, y, sample.cross)
    v, transposed = jax.vjp(lower_gradient, x, y)
    cross, product = transposed(z)
    w = tree.sub(product, f_y)
    p = _averaged(state, tree.sub(f_x, cross), t)

    power_vector, powers = _power_steps(lower_gradient, x, y, memory, v, t)
    along_z = tree.norm(z) + TINY
    seen = jnp.maximum(tree.norm(power_vector), tree.norm(product) / along_z)
    curvature = jnp.maximum(FORGETTING * memory.curvature, seen)
    bend = jnp.abs(tree.dot(z, product)) / along_z**2
    lag = jnp.where(tree.norm(z) > 0, MARGIN * curvature / (bend + TINY), 1.0)
    lag = jnp.where(t == 0, lag, 0.9 * memory.lag + 0.1 * lag)
    residual = tree.norm(v)
    reference = jnp.where(t == 0, jnp.maximum(memory.reference, residual), memory.reference)
    reference = _sound_reference(reference, curvature, y)
    memory = memory._replace(
        power_vector=unit_vector(power_vector),
        curvature=curvature,
        lag=lag,
        reference=reference,
        residual=residual,
    )
    ramping = state.step.ramping > 0.5
    moves_first = jnp.asarray(t <= first_move)
    along = unit_vector(p)
    slope = lambda: tree.norm(jax.jvp(lambda x: lower_gradient(x, y), (x,), (along,))[1])
    change = run_if(tree.mapped_with(moves_first, residual), slope, jnp.zeros_like(residual))
    far = _finite_or(FIRST * reference / (change + TINY), 1 + tree.norm(state.start))
    longest = jnp.where(moves_first, far, GROWTH * state.step.length)
    shift = lambda s: tree.norm(tree.sub(lower_gradient(tree.axpy(-s, along, x), y), v))
    length, probes = _backtrack(shift, longest, TRUST * reference, ramping)
    direction = Point(p)
    if problem.lower_level == "common":
        direction = Point(p, v, w)
    else:
        step, solved = lower_step(curvature), memory.wait == memory.rest
        y = tree.select(solved, y, tree.axpy(-step, v, y))
        z = tree.select(solved, z, tree.axpy(-step, w, z))

    upper, rows = problem.valid.size(sample.upper), problem.train.size(sample.cross)
    gradients = upper + rows * (1 + probes)
    cost = Cost(upper + rows, gradients, (1 + powers) * rows, rows * (1 + moves_first))
    return Estimate(direction, y, z, length, memory), tree.add(cost, spent)


def _work_locally(problem: Objectives, state: Any, t: Number, sample: Sample) -> Any:
    """y and z solved for where they lag, the memory after that, and the cost.

    Local work has paid off where it changes the hypergradient, on the same rows. Where it did
    not, the agent rests for twice as many rounds before it tries again.
    """
    memory, x = state.memory, state.x

    def hypergradient(y: Tree, z: Tree) -> Tree:
        f_x = jax.grad(problem.f, 0)(x, y, sample.upper)
        g_y = lambda x: jax.grad(problem.g, 1)(x, y, sample.cross)
        return tree.sub(f_x, jax.vjp(g_y, x)[1](z)[0])

    def work(batches: int, at_start: bool) -> Any:
        found = solve_locally(problem, x, state.y, state.z, sample, batches, at_start)
        if at_start:
            kept = memory._replace(reference=found.reference)
            return found.y, found.z, kept, found.cost
        before, after = hypergradient(state.y, state.z), hypergradient(found.y, found.z)
        larger = jnp.maximum(tree.dot(before, before), tree.dot(after, after))
        similarity = tree.dot(before, after) / (larger + TINY)
        longer = jnp.minimum(2 * memory.rest + 1, LONGEST_REST)
        rest = jnp.where(similarity < USEFUL, 0.0, memory.rest)
        rest = jnp.where(similarity > USELESS, longer, rest)
        upper, batch = problem.valid.size(sample.upper), problem.train.size(sample.cross)
        rounds = (found.cost.gradients + found.cost.hvps) // (BUDGET * (upper + 3 * batch))
        rest = jnp.maximum(rest, rounds.astype(rest.dtype))
        kept = memory._replace(rest=rest, wait=rest)
        return found.y, found.z, kept, tree.add(found.cost, Cost(0, upper, 0, batch))

    zero = 0 * memory.rest.astype(jnp.int32)
    nothing = state.y, state.z, memory._replace(wait=memory.wait - 1), Cost(*[zero] * 4)
    lagging = (memory.lag > LAGGING) & (memory.wait <= 0)
    needed = lagging | (memory.residual > EXPLODED * memory.reference)
    started = tree.mapped_with(jnp.asarray(t == 0), memory.rest)
    first = run_if(started, lambda: work(BATCHES_AT_START, True), nothing)
    return run_if(needed & ~started, lambda: work(BATCHES, False), first)


def _power_steps(
    lower_gradient: Any, x: Tree, y: Tree, memory: Memory, v: Tree, t: Number
) -> tuple[Tree, Any]:
    """g_yy times a unit vector that turns to its steepest direction; how many products.

    The residual v is mixed in: where y becomes unstable, it grows along the new direction.
    """
    times = jnp.where(t == 0, POWER_STEPS_AT_START, 1)
    first = unit_vector(tree.axpy(0.5, unit_vector(v), memory.power_vector))
    product = lambda q: jax.jvp(lambda y: lower_gradient(x, y), (y,), (q,))[1]
    return jax.lax.fori_loop(0, times, lambda _, q: product(unit_vector(q)), first), times


def _averaged(state: Any, new: Tree, t: Number) -> Tree:
    """The moving average of the direction of x."""
    weight = jnp.where(t == 0, 1.0, average_weight(t))
    return tree.axpy(weight, tree.sub(new, state.direction.x), state.direction.x)


def estimate_without_lower_level(
    problem: Objectives, state: Any, t: Number, sample: Sample
) -> tuple[Estimate, Cost]:
    """The gradient of f, and the length of Newton's step along it."""
    f_x = lambda x: jax.grad(problem.f)(x, None, sample.upper)
    new = f_x(state.x)
    p = _averaged(state, new, t)
    along, size = unit_vector(p), tree.norm(p)
    ramping, moves_first = state.step.ramping > 0.5, jnp.asarray(t == 0)
    slope = lambda: tree.norm(jax.jvp(f_x, (state.x,), (along,))[1])
    change = run_if(tree.mapped_with(moves_first, size), slope, jnp.zeros_like(size))
    far = _finite_or(FIRST * size / (change + TINY), 1 + tree.norm(state.start))
    longest = jnp.where(moves_first, far, GROWTH * state.step.length)
    shift = lambda s: tree.norm(tree.sub(f_x(tree.axpy(-s, along, state.x)), new))
    length, probes = _backtrack(shift, longest, size, ramping)
    rows = problem.valid.size(sample.upper)
    cost = Cost(rows, rows * (1 + probes), rows * moves_first)
    return Estimate(Point(p), None, None, length, state.memory), cost


def unit_vector(a: Tree) -> Tree:
    """a / ||a||, or 0."""
    return tree.scale(1 / (tree.norm(a) + TINY), a)


def average_weight(t: Number) -> jax.Array:
    """The weight of the newest direction in the moving average of that of x."""
    return jnp.maximum((1 + t / SMOOTHING) ** (-2 / 3), LEAST_WEIGHT)


def _backtrack(shift: Any, length: jax.Array, most: jax.Array, needed: jax.Array) -> Any:
    """The length divided by 4 until a gradient shifts by no more than `most`; how many probes."""

    def too_far(carry: Any) -> jax.Array:
        _, shifted, probes = carry
        return needed & (probes < MOST_PROBES) & ~(shifted <= most)

    def probe(carry: Any) -> Any:
        length, _, probes = carry
        length = jnp.where(probes == 0, length, length / 4)
        return length, shift(length), probes + 1

    begin = length, jnp.full_like(length, jnp.inf), 0 * length.astype(jnp.int32)
    length, _, probes = jax.lax.while_loop(too_far, probe, begin)
    return length, probes


def _finite_or(length: jax.Array, otherwise: jax.Array) -> jax.Array:
    """`length`, unless x does not enter the gradient at all."""
    return jnp.where((length > 0) & (length < 1e20), length, otherwise)


def _sound_reference(reference: jax.Array, curvature: jax.Array, y: Tree) -> jax.Array:
    """||g_y|| at the start; where y started at its solution, that of a y that is a tenth off."""
    size = tree.norm(y)
    rounding = 1e-6 * curvature * size
    off = 0.1 * curvature * jnp.where(size > 0, size, 1.0)
    return jnp.where(reference > rounding, reference, off)
