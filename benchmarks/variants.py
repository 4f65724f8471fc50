"""Other ways to write the round of the reference work, beside the one it has, in one run.

    python benchmarks/variants.py [AGENTS] [--small]

The hand-written round of `handwritten.py` with one thing changed at a time: processor time a round,
best of several, taken in turns, and the thunks (operations that XLA runs one after another) of a
round outside the chain and of a link of it. What is changed is said by each function. One core.
"""

import os
import re
import sys
import time

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import handwritten
import jax
import jax.numpy as jnp
import numpy as np
from handwritten import K, alpha, lower, upper
from jax import lax
from speed import BATCH, FEATURES, LIPSCHITZ, ROUNDS, ROWS, SMALL, part

from diamond.core import sampling

REPEATS = 1 if SMALL else 7
g_y = jax.grad(lower, 1)


def cut(rows, start):
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, BATCH), rows)


def twice(train, x, y, w, starts, depth):
    """Each point has a chain of its own."""

    def chain(x, y, w):
        product = lambda rows, w: jax.jvp(lambda y: g_y(x, y, rows), (y,), (w,))[1]
        link = lambda j, w: w - product(cut(train, starts[3 + j]), w) / LIPSCHITZ
        return lax.fori_loop(0, depth, link, w)

    return [chain(*point) for point in zip(x, y, w)]


def together(train, x, y, w, starts, depth):
    """One chain for both points: each block is cut out once. As the library has it."""

    def link(j, both):
        rows = cut(train, starts[3 + j])
        product = lambda x, y, w: jax.jvp(lambda y: g_y(x, y, rows), (y,), (w,))[1]
        return [w - product(x, y, w) / LIPSCHITZ for x, y, w in zip(x, y, both)]

    return lax.fori_loop(0, depth, link, list(w))


def stacked(train, x, y, w, starts, depth):
    """Both points as one array: products of two columns."""
    x, y = jnp.stack(x), jnp.stack(y)

    def link(j, both):
        rows = cut(train, starts[3 + j])
        product = lambda x, y, w: jax.jvp(lambda y: g_y(x, y, rows), (y,), (w,))[1]
        return both - jax.vmap(product)(x, y, both) / LIPSCHITZ

    return list(lax.fori_loop(0, depth, link, jnp.stack(w)))


def _curved(train, x, y, w, starts, depth, products):
    """The chain with g_yy w written out: A'(s (1 - s) A w) / B + exp(x) w / p, s = sigma(c A y)."""

    def link(j, both):
        rows = cut(train, starts[3 + j])
        a = rows["a"].astype(jnp.float32)
        forward, back = products(a)
        seen = forward([*y, *both])
        s = [jax.nn.sigmoid(rows["c"] * v) for v in seen[:2]]
        bent = [s * (1 - s) * v / BATCH for s, v in zip(s, seen[2:])]
        moved = zip(both, back(bent), x)
        return [w - (h + jnp.exp(x) * w / FEATURES) / LIPSCHITZ for w, h, x in moved]

    return lax.fori_loop(0, depth, link, list(w))


def written(*arguments):
    """g_yy w written out, six products of one column."""
    return _curved(
        *arguments, lambda a: (lambda vs: [a @ v for v in vs], lambda rs: [r @ a for r in rs])
    )


def four(*arguments):
    """g_yy w written out, one product of four columns and one of two."""

    def products(a):
        forward = lambda vs: list((a @ jnp.stack(vs, 1)).T)
        return forward, lambda rs: list(jnp.stack(rs) @ a)

    return _curved(*arguments, products)


def summed(*arguments):
    """g_yy w written out, products as sums of elementwise products."""

    def products(a):
        forward = lambda vs: [(a * v).sum(1) for v in vs]
        return forward, lambda rs: [(a * r[:, None]).sum(0) for r in rs]

    return _curved(*arguments, products)


def in_one(key, t, agents, rows):
    """The same draws by threefry written out, in place of JAX's loop. As the library has it."""
    draw = lambda i: sampling.draw(key, t, i, (rows, rows), K, BATCH, "blocks")
    sample = jax.vmap(draw)(jnp.arange(agents))
    first = jnp.stack([sample.upper, sample.lower, sample.cross], 1)
    return jnp.concatenate([first, sample.chain], 1), (sample.bits[0] % K).astype(jnp.int32)


def counted(key, t, agents, rows):
    """Draws by a hash of a counter instead of threefry: other draws."""
    n = jnp.uint32(t) * jnp.uint32(agents * (K + 3) + 1) + jnp.arange(
        agents * (K + 3) + 1, dtype=jnp.uint32
    )
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        n = (n ^ (n >> shift)) * jnp.uint32(factor)
    n ^= n >> 16
    starts = (n[1:] % jnp.uint32(rows)).astype(jnp.int32).reshape(agents, K + 3)
    return starts, (n[0] % jnp.uint32(K)).astype(jnp.int32)


def rounds(chain, draw, count):
    """`count` rounds from zero as a function of the rows and M."""

    def advance(train, valid, mixing, key):
        agents, _, features = train["a"].shape

        def estimate(train, valid, x, y, starts, depth):
            upper_rows = cut(valid, starts[0])
            outer = [jax.grad(upper, (0, 1))(x, y, upper_rows) for x, y in zip(x, y)]
            z = chain(train, x, y, [f_y for _, f_y in outer], starts, depth)
            directions, cross, rows = [], cut(train, starts[2]), cut(train, starts[1])
            for (f_x, _), at, of, w in zip(outer, x, y, z):
                back = jax.vjp(lambda at, of=of: g_y(at, of, cross), at)[1]
                directions.append((f_x - back(K / LIPSCHITZ * w)[0], g_y(at, of, rows)))
            return directions

        def body(carry, t):
            x, y, x_last, y_last, p, v, u = carry
            starts, depth = draw(key, t, agents, ROWS)
            both = jax.vmap(estimate, (0, 0, 0, 0, 0, None))
            new, old = both(train, valid, (x, x_last), (y, y_last), starts, depth)
            eta = jnp.where(t == 0, 1.0, jnp.clip(0.1 * alpha(jnp.maximum(t - 1, 0)) ** 2, 0, 1))
            p_new, v_new = (a + (1 - eta) * (b - c) for a, b, c in zip(new, (p, v), old))
            u = mixing @ u + p_new - p
            return (mixing @ x - alpha(t) * u, y - alpha(t) * v_new, x, y, p_new, v_new, u), None

        zero = jnp.zeros((agents, features))
        return lax.scan(body, (zero,) * 7, jnp.arange(count))[0][:2]

    return advance


def thunks(text):
    """Operations that run one after another in the bodies of the two innermost loops, per body."""
    silent = {"parameter", "tuple", "get-tuple-element", "constant", "bitcast", "iota"}
    bodies = set(re.findall(r"body=%?([\w.\-]+)", text))
    counts = []
    for name, content in re.findall(r"^%?([\w.\-]+) \([^\n]*\{\n(.*?)^\}", text, re.M | re.S):
        if name in bodies:
            kinds = re.findall(r"^  (?:ROOT )?%?[\w.\-]+ = .*?[\]})] ([a-z\-]+)\(", content, re.M)
            counts.append(sum(kind not in silent for kind in kinds))
    return sorted(counts, reverse=True)[:3]


def main():
    agents = next((int(word) for word in sys.argv[1:] if word.isdigit()), 1)
    count = max(100, ROUNDS // agents)
    stack = lambda odd: jax.tree.map(
        lambda *a: jnp.asarray(np.stack([np.r_[a, a[: BATCH - 1]] for a in a])),
        *(part(2 * i + odd, ROWS) for i in range(agents)),
    )
    train, valid = stack(0), stack(1)
    mixing = jnp.full((agents, agents), 1 / agents)
    key = jax.random.key(0)
    wider = lambda rows: rows | {"a": jnp.pad(rows["a"], ((0, 0), (0, 0), (0, 128 - FEATURES)))}
    to_bfloat16 = lambda rows: rows | {"a": rows["a"].astype(jnp.bfloat16)}
    as_is = train, valid
    variants = {
        "two chains": (twice, handwritten.draw, as_is),
        "one chain for both points": (together, handwritten.draw, as_is),
        "both points as one array": (stacked, handwritten.draw, as_is),
        "g_yy w written out": (written, handwritten.draw, as_is),
        "products of four columns": (four, handwritten.draw, as_is),
        "products as sums": (summed, handwritten.draw, as_is),
        "threefry in one": (together, in_one, as_is),
        "a counter for threefry": (together, counted, as_is),
        "rows padded to 128": (together, handwritten.draw, (wider(train), wider(valid))),
        "rows in bfloat16": (written, handwritten.draw, (to_bfloat16(train), valid)),
    }
    print(f"{agents} agents, {count} rounds, JAX {jax.__version__}, one core, best of {REPEATS}\n")
    ready, best = {}, {}
    for name, (chain, draw, rows) in variants.items():
        program = jax.jit(rounds(chain, draw, count)).lower(*rows, mixing, key).compile()
        ready[name] = program, (*rows, mixing, key)
    for _ in range(REPEATS):
        for name, (program, arguments) in ready.items():
            started = time.process_time()
            jax.block_until_ready(program(*arguments))
            best[name] = min(best.get(name, np.inf), time.process_time() - started)
    first = 1e6 * best["one chain for both points"] / count
    for name, seconds in best.items():
        microseconds = 1e6 * seconds / count
        thunk_counts = " + ".join(map(str, thunks(ready[name][0].as_text())))
        speed = f"{microseconds:8.1f} us a round  {first / microseconds:5.2f} times as fast"
        print(f"{name:27} {speed}  thunks {thunk_counts}")


if __name__ == "__main__":
    main()
