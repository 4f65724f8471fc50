"""Losses that count, at run time, how often which derivative of them is taken.

`mark(x, y)` is the identity, and a primitive of its own. Its tangents pass a `tick`, and a marked
pair that was differentiated once is marked with one prime more; transposing a tick appends a T. A
gradient of g in y then executes one tick "g y T", a product with g_yy one "g' y" (forward) or
"g' y T" (reverse), one with g_xy "g' x T". A tick calls back and counts the rows that pass it;
work that the compiler drops is not counted.
"""

from collections import Counter
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diamond.problem import Problem

SIZE = 3
counts: Counter = Counter()
tick_p, mark_p = Primitive("tick"), Primitive("mark")
mark_p.multiple_results = True


def tick(value, point, tag):
    """value; `at` is the point, handed over so that no tick looks constant to the compiler."""
    return tick_p.bind(value, point, tag=tag)


def _run(value, point, *, tag):
    def count(value, point):
        counts[tag] += value.size // SIZE
        return np.asarray(value)

    return jax.pure_callback(count, jax.ShapeDtypeStruct(value.shape, value.dtype), value, point)


def _tick_jvp(primals, tangents, tag):
    (value, point), (tangent, _) = primals, tangents
    zero = type(tangent) is ad.Zero
    return tick(value, point, tag), tangent if zero else tick(tangent, point, tag + " J")


def _tick_batch(args, dims, tag):
    (value, point), (dim, _) = args, dims
    if dim is None:
        size = point.shape[dims[1]]
        value, dim = jnp.broadcast_to(value[None], (size, *value.shape)), 0
    return tick(value, point, tag), dim


tick_p.def_abstract_eval(lambda value, point, tag: value)
tick_p.def_impl(lambda value, point, tag: value)  # outside of compiled programs, nothing is counted
ad.primitive_jvps[tick_p] = _tick_jvp
ad.primitive_transposes[tick_p] = lambda ct, _, point, tag: [tick(ct, point, tag + " T"), None]
batching.primitive_batchers[tick_p] = _tick_batch
mlir.register_lowering(tick_p, mlir.lower_fun(_run, multiple_results=False))


def _mark_jvp(primals, tangents, level):
    passed = [
        t if type(t) is ad.Zero else tick(t, point, f"{level} {name}")
        for name, t, point in zip("xy", tangents, primals)
    ]
    return mark_p.bind(*primals, level=level + "'"), passed


def _mark_batch(args, dims, level):
    return mark_p.bind(*args, level=level), dims


mark_p.def_abstract_eval(lambda x, y, level: [x, y])
mark_p.def_impl(lambda x, y, level: [x, y])
ad.primitive_jvps[mark_p] = _mark_jvp
batching.primitive_batchers[mark_p] = _mark_batch
mlir.register_lowering(mark_p, lambda context, x, y, level: [x, y])


def _spread(x, y, rows, level):
    """x and y, marked, once for each row."""
    return mark_p.bind(x[None] + 0.0 * rows, y[None] + 0.0 * rows, level=level)


def upper(x, y, rows):
    x, y = _spread(x, y, rows, "f")
    return jnp.mean(jnp.cosh(y - rows) + 0.5 * x**2 + x * y)


def lower(x, y, rows):
    x, y = _spread(x, y, rows, "g")
    return jnp.mean(jnp.logaddexp(y - rows, rows - y) + 0.5 * jnp.exp(0.1 * x) * y**2 + x * y)


@cache  # its losses are checked once, for all methods
def problem(train=7, valid=5, lower_level="personal"):
    random = np.random.default_rng(2)
    init = lambda key: (jnp.full(SIZE, 0.1), jnp.full(SIZE, 0.2))
    rows = [random.normal(size=(n, SIZE)) for n in (train, valid)]
    if lower_level == "none":
        alone = lambda x, rows: upper(x, jnp.full(SIZE, 0.2), rows)
        return Problem(alone, None, lambda key: init(key)[0], rows[:1])
    return Problem(upper, lower, init, rows[:1], rows[1:], lower_level=lower_level)


def counted(f_apart=False, g_together=False):
    """Rows of gradients, Hessian-products and Jacobian-products so far.

    Both blocks of a gradient of f are taken at once, unless they are wanted at different points;
    those of g one by one, unless both are wanted at one.
    """
    of_f, of_g = ([counts[f"{name} {block} T"] for block in "xy"] for name in "fg")
    of_f, of_g = sum(of_f) if f_apart else max(of_f), max(of_g) if g_together else sum(of_g)
    return {
        "gradients": of_g + of_f,
        "hvps": counts["g' y"] + counts["g' y T"],
        "jvps": counts["g' x"] + counts["g' x T"],
    }
