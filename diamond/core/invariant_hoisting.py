"""Partial evaluation: computes once everything that does not depend on an argument.

g(x, y) is evaluated at many y and one x: parts that depend on x and the rows only, such as the
features of a network, stay the same. XLA hoists them out of loops on CPUs, not on GPUs.
"""

from collections.abc import Callable

import jax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from .pytrees import Tree


def hoist_invariants(f: Callable[[Tree], Tree], y: Tree) -> Callable[[Tree], Tree]:
    """Return f for arguments like y, with steps that do not depend on y computed now.

    A `jax.jit` or loop counts as one step, which depends on y if any of its steps does.
    """
    closed, shape = jax.make_jaxpr(f, return_shape=True)(y)
    whole = closed.jaxpr
    moving = set(whole.invars)
    now, later = [], []
    for step in whole.eqns:
        if step.effects or any(not isinstance(v, Literal) and v in moving for v in step.invars):
            later.append(step)
            moving.update(step.outvars)
        else:
            now.append(step)
    made = {v for step in now for v in step.outvars}
    used = [v for step in later for v in step.invars] + list(whole.outvars)
    kept = list(dict.fromkeys(v for v in used if not isinstance(v, Literal) and v in made))

    first = whole.replace(invars=[], outvars=kept, eqns=now)
    values = jaxpr_as_fun(ClosedJaxpr(first, closed.consts))()
    rest = whole.replace(constvars=[*whole.constvars, *kept], eqns=later)
    play = jaxpr_as_fun(ClosedJaxpr(rest, [*closed.consts, *values]))
    return lambda y: jax.tree.unflatten(jax.tree.structure(shape), play(*jax.tree.leaves(y)))
