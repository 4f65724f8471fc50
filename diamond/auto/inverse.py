"""Which inverse of g_yy a run takes: the chain of eq. (5) where it is right, else a solver.

The chain, of K terms with every agent's own L, is right where it leaves out at most a tenth of the
hypergradient. That is (1 - mu / L)^K at most, and where the bound is larger it is measured: on a
block of its rows each agent compares, at y*(x), the whole sum of K terms, which is the mean of the
chain, with the exact h,

    bias = max_i ||h_i(K terms) - h_i|| / max_i ||h_i||

Where that is more, another inverse is taken, by what a round of it costs. A product on n rows
counts as n + AT_ONCE, the rows that a product of few takes as long as; a round of the chain has
K - 1 of them on average, at its two points.

1. g_yy is solved, at both points and for y: formed and factored for y of up to DENSE numbers, by
   conjugate gradients beyond, to a residual that the condition asks for. The inverse of a sampled
   matrix is not the sampled inverse: with d numbers in y and n rows it is about n / (n - d) times
   too large, so it takes all rows of an agent, or, where these are too many, the mean over MANY d
   of them, as blocks of a mini-batch each. Then y moves along [g_yy]^-1 v by the same solver: in
   all directions at the same rate, however bent g is. It may cost SLOWER times the chain, or any
   time where a chain of another kind does not reach; and as many rows as the longest chain would
   have drawn, or all where they are FEW.
2. Nesterov's chain (`hypergradient.accelerated`) of SHORT terms, on as many rows as the chain. It
   reaches a condition of SHORT^2 / 4, where it leaves out a third of the flattest direction.

An agent looks again wherever it finds its numbers anew, and nobody goes back to the chain.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import tree
from ..core.cost import Cost
from ..core.sampling import Sample
from ..core.tree import Tree
from ..hypergradient.accelerated import nesterov
from ..hypergradient.conditioning import TERMS, block, condition, depth, left_out
from ..hypergradient.conjugate import ConjugateGradient
from ..hypergradient.exact import Dense
from ..hypergradient.implicit import Implicit, jacobian_product
from ..hypergradient.lipschitz import SAFETY, curvatures
from ..hypergradient.neumann import NeumannSum, neumann
from ..machine.compiler import briefly
from ..numbers.open_numbers import Choice, Deferred, Found, Measured, Rows, Setting
from ..problem import Objectives
from . import upper_curvature

CHAIN, FACTORED, ITERATED, ACCELERATED = 0, 1, 2, 3
SOLVED = FACTORED, ITERATED
BIAS = 0.1  # of h that the chain may leave out
SINGULAR = 1e7  # a condition at which float32 has no inverse
DENSE = 48  # numbers in y up to which g_yy is formed
MANY = 10  # rows for each number in y
DRAWN = (TERMS[-1] - 1) / 2 + 2  # blocks that the longest chain draws, with zeta and zeta_0
FEW = 256  # rows of an agent of which all may be taken
STEPS = 64  # of conjugate gradients, at most
RESIDUAL = 1e-3, 1e-1  # of conjugate gradients, relative: 10 / condition within these limits
SHORT = 20  # terms of Nesterov's chain
AT_ONCE = 64  # rows that a product on few rows takes as long as
COLUMNS = 0.25  # of a product, a column of g_yy: all are formed at once
SLOWER = 1.3  # than the chain, that a solver may be where Nesterov's chain would do


def chosen() -> Implicit:
    """The hypergradient by the inverse that the run chooses."""
    return Implicit(Choice("inverse", _inverse, _parts))


def solved() -> Deferred:
    """Whether y moves along [g_yy]^-1 v: wherever g_yy is solved."""
    return Deferred("_solved", _solved)


def _solved(setting: Setting) -> Found:
    return Found(int(solves(setting)))


def solves(setting: Setting) -> bool:
    """Whether g_yy is solved, for x and for y."""
    return inverse(setting) in SOLVED


def inverse(setting: Setting) -> int:
    """CHAIN, FACTORED, ITERATED or ACCELERATED."""
    return int(setting.once("inverse", _inverse))


def said(numbers: dict[str, float]) -> str:
    """What was chosen, and why, in words; empty where nothing was to be chosen."""
    if "inverse" not in numbers or "chain_bias" not in numbers:
        return ""
    bias, many = numbers["chain_bias"], int(numbers.get("hessian_blocks", 0))
    if not numbers["inverse"]:
        few = "at most " if bias <= BIAS else ""
        return f"the chain of eq. (5), which leaves out {few}{bias:.2g} of the hypergradient"
    why = f"at a condition of {numbers['condition']:.3g} a chain leaves out {bias:.2g} of the "
    if numbers["inverse"] == ACCELERATED:
        return f"Nesterov's chain of {SHORT} terms: {why}hypergradient"
    how = "formed and factored" if numbers["inverse"] == FACTORED else "by conjugate gradients"
    rows = f"on {many} mini-batches" if many else "on all rows"
    return f"g_yy solved {how} {rows}, for x and for y: {why}hypergradient"


def _parts(number: int) -> Any:
    if number == CHAIN:
        return neumann().solve
    if number == ACCELERATED:
        return nesterov(SHORT).solve
    links: Any = Deferred("hessian_blocks", hessian_blocks)
    residual: Any = Deferred("residual", _residual)
    return Dense(links) if number == FACTORED else ConjugateGradient(STEPS, links, residual)


def _residual(setting: Setting) -> Found:
    """What conjugate gradients may leave: the flatter a direction, the less shows in it."""
    return Found(float(np.clip(10 / condition(setting), *RESIDUAL)), lasting=True)


def _inverse(setting: Setting) -> Found:
    if setting.problem.lower_level != "personal":
        return Found(CHAIN, lasting=True)
    before = int(setting.before("inverse", CHAIN))
    if before:  # what it was chosen by is remembered
        setting.once("chain_bias", lambda setting: Found(setting.before("chain_bias", math.nan)))
    if before in SOLVED:
        setting.once("condition", lambda setting: Found(setting.before("condition", math.nan)))
        return Found(before)
    if not before and (_bias(setting) <= BIAS or condition(setting) >= SINGULAR):
        return Found(CHAIN)
    solver = FACTORED if size(setting) <= DENSE else ITERATED
    drawn = setting.once("hessian_blocks", hessian_blocks) * setting.batch
    rows, reached = drawn or _most(setting), SAFETY * condition(setting) <= SHORT**2 / 4
    slow = _products(setting, solver, rows) > SLOWER * _products(setting, CHAIN, setting.batch)
    too_many = rows > max(DRAWN * setting.batch, 0 if drawn else FEW)
    return Found(ACCELERATED if too_many or (slow and reached) else solver)


def _products(setting: Setting, kind: int, rows: int) -> float:
    """What a round takes for products with g_yy on so many rows, in rows."""
    numbers = size(setting)
    if kind == CHAIN:
        return (TERMS[-1] - 1) * (rows + AT_ONCE)
    if kind == FACTORED:
        return 3 * numbers * (COLUMNS * rows + AT_ONCE)
    residual = setting.once("residual", _residual)
    steps = math.ceil(math.sqrt(condition(setting)) / 2 * math.log(2 / residual))
    return 3 * min(numbers, steps, STEPS) * (rows + AT_ONCE)


def size(setting: Setting) -> int:
    """Numbers in y."""
    return sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(setting.point[1]))


def _most(setting: Setting) -> int:
    """Training rows of the agent that has most."""

    def compute(setting: Setting) -> Found:
        counts = np.asarray(setting.problem.counts("train")).astype(jnp.zeros(()).dtype)
        (found,), cost = setting.talk.largest("rows", lambda: (counts[:, None], Cost()))
        return Found(int(found), cost, agreed=1, talks=1, lasting=True)

    return int(setting.once("_rows", compute))


def hessian_blocks(setting: Setting) -> Found:
    """Mini-batches that g_yy is the mean of, MANY rows for each number in y; 0: of all rows."""
    wanted = math.ceil(MANY * size(setting) / setting.batch)
    most = _most(setting)
    whole = most <= max(DRAWN * setting.batch, wanted * setting.batch, FEW)
    return Found(0 if whole else wanted, lasting=True)


def _bias(setting: Setting) -> float:
    """What the chain leaves out of h; only a bound where that is small."""

    def compute(setting: Setting) -> Found:
        long = depth(setting)
        if (bound := left_out(setting, long)) <= BIAS:
            return Found(bound)
        bounds = SAFETY * curvatures(setting)

        def measure() -> Measured:
            def look(rows: Rows, at: Any, numbers: Any) -> Any:
                return _compared(block(rows(1)), *at, long)

            off, size, cost = setting.each(look, (*setting.point, np.asarray(bounds)))
            return np.stack([off, size], 1), Cost(*(np.asarray(c, np.int64) for c in cost))

        (off, size), cost = setting.talk.largest("chain_bias", measure)
        return Found(float(off / max(size, 1e-30)), cost, agreed=2, talks=1)

    return float(setting.once("chain_bias", compute))


@briefly("terms")
def _compared(few: Objectives, x: Tree, y: Tree, bounds: jax.Array, terms: int) -> Any:
    """||h(K terms) - h|| and ||h|| of every agent at y*(x), and what they cost."""

    def alone(few: Objectives, x: Tree, y: Tree, bound: jax.Array) -> Any:
        exact, cost = upper_curvature.hypergradient(few, x, y)
        point, everything = (x, exact.y), Sample(None, None, None, None, None)
        f_y = jax.grad(few.f, 1)(*point, None)
        (z,), more = NeumannSum(bound, terms)(few, [point], [f_y], everything)
        off = jacobian_product(few, point, None, tree.sub(z, exact.z))
        return tree.norm(off), tree.norm(exact.h), tree.add(cost, more)

    return jax.vmap(alone)(few, x, y, bounds)
