"""A function with all that does not depend on its argument computed once.

g(x, y) is wanted at many y and one x: what it makes of x and the rows alone, such as the features
of a network on all rows, is the same each time. XLA takes it out of a loop on CPUs, not on GPUs.
"""

from collections.abc import Callable

import jax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from .tree import Tree


def hoisted(f: Callable[[Tree], Tree], y: Tree) -> Callable[[Tree], Tree]:
    """f, for arguments like y; its steps that do not use them are made now, not when it is called.

    What a step inside of `jax.jit` or a loop uses, the whole of it does.
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
