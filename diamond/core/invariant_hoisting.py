"""Partial evaluation: computes once everything that does not depend on an argument.

g(x, y) is evaluated at many y and one x: parts that depend on x and the rows only, such as the
features of a network, stay the same. XLA hoists them out of loops on CPUs, not on GPUs.
"""

from collections.abc import Callable

import jax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun  # type: ignore[attr-defined, unused-ignore]

from .pytrees import Tree


def hoist_invariants(f: Callable[[Tree], Tree], y: Tree) -> Callable[[Tree], Tree]:
    """Return f for arguments like y, with steps that do not depend on y computed now.

    A `jax.jit` or loop counts as one step, which depends on y if any of its steps does.
    """
    closed, shape = jax.make_jaxpr(f, return_shape=True)(y)
    jaxpr = closed.jaxpr
    dependent = set(jaxpr.invars)
    hoisted_steps, remaining_steps = [], []
    for step in jaxpr.eqns:
        if step.effects or any(not isinstance(v, Literal) and v in dependent for v in step.invars):
            remaining_steps.append(step)
            dependent.update(step.outvars)
        else:
            hoisted_steps.append(step)
    hoisted_values = {v for step in hoisted_steps for v in step.outvars}
    used_values = [v for step in remaining_steps for v in step.invars] + list(jaxpr.outvars)
    hoisted_outputs = list(
        dict.fromkeys(v for v in used_values if not isinstance(v, Literal) and v in hoisted_values)
    )

    hoisted_jaxpr = jaxpr.replace(invars=[], outvars=hoisted_outputs, eqns=hoisted_steps)
    values = jaxpr_as_fun(ClosedJaxpr(hoisted_jaxpr, closed.consts))()
    remaining_jaxpr = jaxpr.replace(
        constvars=[*jaxpr.constvars, *hoisted_outputs], eqns=remaining_steps
    )
    evaluate = jaxpr_as_fun(ClosedJaxpr(remaining_jaxpr, [*closed.consts, *values]))
    return lambda y: jax.tree.unflatten(jax.tree.structure(shape), evaluate(*jax.tree.leaves(y)))
