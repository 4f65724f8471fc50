"""K of eq. (5): as many terms as the conditioning of the lower level asks for."""

import math
import warnings
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..core import host, linear_solvers, sampling, tree
from ..core.cost import Cost
from ..core.tree import Tree
from ..machine.compiler import briefly
from ..numbers.open_numbers import Deferred, Found, Measured, Setting
from ..problem import Objectives, Rows
from .implicit import hessian
from .lipschitz import SAFETY, curvatures

ROWS = 256  # of each agent, at most
BIAS = 0.05  # (1 - mu / L)^K: what the truncated series may leave out
TERMS = (4, 8, 16, 32)  # few, because each is compiled
POOR = 0.1  # left out by the longest chain: worth a warning
LONG = 1000  # terms that are worth proposing
BENT = 1e-3  # -mu / L from which the lower level is not convex, and not only by rounding
FLAT = 1e-9  # mu / L that counts as none


def block(objectives: Objectives) -> Objectives:
    """The first rows of every agent, as if these were all; of a stream, rows drawn for it."""

    def cut(rows: Any, part: int) -> Rows:
        if rows.stored is None:
            return rows.looked_at(part, ROWS)
        data = jax.tree.map(lambda a: a[:, :ROWS], rows.data)
        return Rows(data, host.put(np.minimum(rows.count, ROWS)), 1)

    return replace(objectives, train=cut(objectives.train, 0), valid=cut(objectives.valid, 1))


def smallest(setting: Setting) -> np.ndarray:
    """mu of each agent: the smallest eigenvalue of its g_yy where it stands, on a block of rows."""

    def compute(setting: Setting) -> Found:
        def measure() -> Measured:
            key = sampling.key(setting.seed)
            look = lambda rows, point, _: _tridiagonals(block(rows(1)), *point, key)
            found, counts = setting.each(look, setting.point)
            rows = np.asarray(counts, np.int64)
            each = map(linear_solvers.Tridiagonal, *map(np.asarray, found))
            ends = [linear_solvers.ends(one, np).smallest for one in each]
            return np.array(ends)[:, None], Cost(samples=rows, hvps=linear_solvers.LANCZOS * rows)

        found, cost = setting.talk.alone("mu", measure)
        return Found(found[:, 0], cost)

    return setting.once("mu", compute)


def condition(setting: Setting) -> float:
    """L / mu of the lower level, the worst of the agents."""

    def compute(setting: Setting) -> Found:
        largest, least = curvatures(setting), smallest(setting)
        if "condition" not in setting.past and (least < -BENT * largest).any():
            i = int(np.argmin(least / largest))
            warnings.warn(
                f"the lower level is not convex in y: g_yy of agent {int(setting.numbers[i])} has "
                f"the eigenvalue {least[i]:.2g} where it stands, so y* = argmin g is not defined "
                f"there; add a term such as 0.01 ||y||^2 to it",
                RuntimeWarning,
                stacklevel=2,
            )
        each = largest / np.maximum(least, FLAT * largest)
        (found,), cost = setting.talk.largest("condition", lambda: (each[:, None], Cost()))
        return Found(float(found), cost, agreed=1, talks=1)

    return setting.once("condition", compute)


@briefly()
def _tridiagonals(
    few: Objectives, x: Tree, y: Tree, key: jax.Array
) -> tuple[linear_solvers.Tridiagonal, jax.Array]:
    """What Lanczos' method makes of each agent's g_yy, and how many rows that is of."""

    def alone(problem: Objectives, x: Tree, y: Tree) -> linear_solvers.Tridiagonal:
        return linear_solvers.tridiagonal(hessian(problem, (x, y), None), tree.normal(key, y))

    return jax.vmap(alone)(few, x, y), few.train.count


def left_out(setting: Setting, terms: int) -> float:
    """(1 - mu / L)^K of the worst agent: what a chain of so many terms leaves out, at most."""
    return (1 - 1 / (SAFETY * condition(setting))) ** terms


def depth(setting: Setting) -> int:
    """K: the first of TERMS that leaves out less than BIAS, or the last."""
    return next((k for k in TERMS if left_out(setting, k) < BIAS), TERMS[-1])


def _terms(setting: Setting) -> Found:
    found = depth(setting)
    if (bias := left_out(setting, found)) > POOR and "inverse" not in setting.memory:
        wanted = math.log(BIAS) / math.log(min(1 - 1 / (SAFETY * condition(setting)), 1 - 1e-9))
        warnings.warn(
            f"the lower level has a condition of {condition(setting):.3g}: a chain of K = {found} "
            f"terms leaves out up to (1 - mu/L)^K = {bias:.2g} of the inverse of g_yy, and biases "
            f"the hypergradient by as much; leave out steps and `hypergradient` to have a better "
            f"one chosen, or use hypergradient.conjugate_gradient() or exact()"
            + f", or give neumann(terms={math.ceil(wanted)})"
            * (wanted < LONG),
            RuntimeWarning,
            stacklevel=2,
        )
    return Found(found, lasting=True)


chosen = Deferred("terms", _terms)  # stands for K until the run begins
