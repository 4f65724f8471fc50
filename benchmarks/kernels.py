"""The round of the reference work with kernels of its own in C++, beside the library's way.

    python benchmarks/kernels.py [--anchor CLONE] [AGENTS ...]

`kernels.cc`, built here by `c++`, is called by XLA's foreign-function interface. "Passes": A V for
four vectors, and A' R for two, each in one pass over a block that is read where it lies, while the
middle stays XLA's: of g = h(x, y, A y) any h will do, its derivatives are JAX's. "A whole chain":
both passes and the second derivative of the logistic loss in C++, which no other loss can use. One
core; processor time a round and agent, best of several, in turns. All must agree to rounding.
"""

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import variants
from handwritten import K
from jax import lax
from speed import BATCH, FEATURES, LIPSCHITZ, ROUNDS, ROWS, part, public

HERE = Path(__file__).parent
FLAGS = ["-O3", "-march=native", "-ffast-math", "-std=c++17", "-shared", "-fPIC", "-w"]
REPEATS = 7


def build():
    """Compile and register the kernels; seconds that took."""
    compiler = shutil.which("c++")
    if compiler is None:
        sys.exit("there is no c++ to build kernels.cc with: install g++ or clang")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "kernels.so")
        source = [str(HERE / "kernels.cc"), "-I", jax.ffi.include_dir(), "-o", library]
        subprocess.run([compiler, *FLAGS, *source], check=True)
        compiled = ctypes.CDLL(library)
    for name in ("forward_pass", "back_pass", "whole_chain"):
        jax.ffi.register_ffi_target(
            name, jax.ffi.pycapsule(getattr(compiled, name)), platform="cpu"
        )
    return time.perf_counter() - begun


def call(name, width, data, agent, start, vectors):
    """A pass: of every array (columns, n) of `given`, its products (columns, width)."""
    shapes = [jax.ShapeDtypeStruct((*a.shape[:-1], width), a.dtype) for a in vectors]
    return jax.ffi.ffi_call(name, shapes, vmap_method="expand_dims")(data, agent, start, *vectors)


def forward(rows, agent, start, *vectors):
    return call("forward_pass", BATCH, rows["a"], agent, start, vectors)


def back(rows, agent, start, vector):
    return call("back_pass", FEATURES, rows["a"], agent, start, [vector])[0]


def labels(rows, agent, start):
    return lax.dynamic_slice(rows["c"], (agent, start), (1, BATCH))[0]


def f(x, y, u, c):
    """The upper loss, u = A y."""
    return jnp.mean(jax.nn.softplus(-c * u))


def g(x, y, u, c):
    """The lower loss, u = A y."""
    return f(x, y, u, c) + 0.5 * jnp.mean(jnp.exp(x) * y**2)


g_yu = jax.grad(g, (1, 2))


def by_jax(x, y, u, w, s, c):
    """The middle of a link for any h: the change of (h_y, h_u) along (w, A w)."""
    return jax.jvp(lambda y, u: g_yu(x, y, u, c), (y, u), (w, s))[1]


def by_hand(x, y, u, w, s, c):
    """The same, written out for this loss."""
    sigma = jax.nn.sigmoid(c * u)
    return jnp.exp(x) * w / FEATURES, sigma * (1 - sigma) * s / BATCH


def passes(middle):
    """A chain whose links are two passes with `middle` between them."""

    def chain(train, agent, x, y, w, starts, depth):
        def link(j, w):
            start = starts[3 + j]
            u, s = forward(train, agent, start, y, w)
            every = jax.vmap(middle, (0, 0, 0, 0, 0, None))
            t_y, t_u = every(x, y, u, w, s, labels(train, agent, start))
            return w - (back(train, agent, start, t_u) + t_y) / LIPSCHITZ

        return lax.fori_loop(0, depth, link, w)

    return chain


def whole_chain(train, agent, x, y, w, starts, depth):
    """The chain as one call."""
    shape = jax.ShapeDtypeStruct(w.shape, w.dtype)
    go = jax.ffi.ffi_call("whole_chain", shape, vmap_method="expand_dims")
    about = {"lipschitz": np.float32(LIPSCHITZ), "block": np.int64(BATCH)}
    return go(train["a"], train["c"], agent, starts[3:], depth, x, y, w, **about)


def by_blocks(chain):
    """Gradients as the library has them, of blocks cut out; z by `chain`."""

    def estimate(train, valid, agent, x, y, starts, depth):
        def cut(rows, start):
            block = lambda a: lax.dynamic_slice(
                a, (agent, start, *[0] * (a.ndim - 2)), (1, BATCH, *a.shape[2:])
            )
            return jax.tree.map(lambda a: block(a)[0], rows)

        map_pairs = lambda function, *lists: [function(*arguments) for arguments in zip(*lists)]
        rows, others, more = (cut(a, starts[k]) for k, a in enumerate((valid, train, train)))
        upper = map_pairs(lambda x, y: jax.grad(variants.upper, (0, 1))(x, y, rows), x, y)
        f_y = jnp.stack([f_y for _, f_y in upper])
        z = K / LIPSCHITZ * chain(train, agent, x, y, f_y, starts, depth)
        cross = lambda x, y, z: jax.vjp(lambda x: variants.g_y(x, y, more), x)[1](z)[0]
        h = [f_x - back for (f_x, _), back in zip(upper, map_pairs(cross, x, y, z))]
        slopes = map_pairs(lambda x, y: variants.g_y(x, y, others), x, y)
        return jnp.stack(h), jnp.stack(slopes)

    return estimate


def by_passes(chain):
    """Gradients by passes as well; g_xy z is the slope in x of <h_y, z> + <h_u, A z>."""

    def estimate(train, valid, agent, x, y, starts, depth):
        (u,), c = forward(valid, agent, starts[0], y), labels(valid, agent, starts[0])
        f_u = jax.vmap(jax.grad(f, 2), (0, 0, 0, None))(x, y, u, c)
        f_y = back(valid, agent, starts[0], f_u)
        z = K / LIPSCHITZ * chain(train, agent, x, y, f_y, starts, depth)
        (u, s), c = forward(train, agent, starts[2], y, z), labels(train, agent, starts[2])
        along = lambda x, y, u, z, s: sum(a @ b for a, b in zip(g_yu(x, y, u, c), (z, s)))
        cross = jax.vmap(jax.grad(along))(x, y, u, z, s)
        (u,), c = forward(train, agent, starts[1], y), labels(train, agent, starts[1])
        h_y, h_u = jax.vmap(g_yu, (0, 0, 0, None))(x, y, u, c)
        return -cross, h_y + back(train, agent, starts[1], h_u)

    return estimate


def rounds(estimate, count):
    """`count` rounds from zero as a function of the rows and M."""

    def advance(train, valid, mixing, key):
        agents, _, features = train["a"].shape

        def body(carry, t):
            x, y, x_last, y_last, p, v, u = carry
            starts, depth = variants.in_one(key, t, agents, ROWS)
            every = jax.vmap(estimate, (None, None, 0, 0, 0, 0, None))
            points = jnp.stack([x, x_last], 1), jnp.stack([y, y_last], 1)
            directions = every(train, valid, jnp.arange(agents), *points, starts, depth)
            step = variants.alpha(jnp.maximum(t - 1, 0))
            eta = jnp.where(t == 0, 1.0, jnp.clip(0.1 * step**2, 0, 1))
            p_new, v_new = (a[:, 0] + (1 - eta) * (b - a[:, 1]) for a, b in zip(directions, (p, v)))
            u = mixing @ u + p_new - p
            alpha = variants.alpha(t)
            return (mixing @ x - alpha * u, y - alpha * v_new, x, y, p_new, v_new, u), None

        zero = jnp.zeros((agents, features))
        return lax.scan(body, (zero,) * 7, jnp.arange(count))[0][:2]

    return advance


def measure(agents, third):
    """Microseconds an agent's round of each way; all agree to rounding."""
    count = max(100, ROUNDS // agents)
    stack = lambda odd: jax.tree.map(
        lambda *a: jnp.asarray(np.stack([np.r_[a, a[: BATCH - 1]] for a in a])),
        *(part(2 * i + odd, ROWS) for i in range(agents)),
    )
    arguments = stack(0), stack(1), jnp.full((agents, agents), 1 / agents), jax.random.key(0)
    ways = {
        "as the library": variants.rounds(variants.together, variants.in_one, count),
        "passes in the chain": rounds(by_blocks(passes(by_jax)), count),
        "passes in the chain, g_yy by hand": rounds(by_blocks(passes(by_hand)), count),
        "a whole chain": rounds(by_blocks(whole_chain), count),
        "passes everywhere": rounds(by_passes(passes(by_jax)), count),
        "passes everywhere, g_yy by hand": rounds(by_passes(passes(by_hand)), count),
        "passes everywhere, a whole chain": rounds(by_passes(whole_chain), count),
    }
    ready = {name: jax.jit(way).lower(*arguments).compile() for name, way in ways.items()}
    right = ready["as the library"](*arguments)
    for name, program in ready.items():
        for values, expected in zip(program(*arguments), right):
            np.testing.assert_allclose(
                values, expected, rtol=0, atol=1e-3 * abs(expected).max(), err_msg=name
            )
    turns = {name: (lambda p=p: p(*arguments), count * agents) for name, p in ready.items()}
    turns |= {"SUSTAIN": (third, ROUNDS)} if third else {}
    best = dict.fromkeys(turns, np.inf)
    for _ in range(REPEATS):
        for name, (go, agent_rounds) in turns.items():
            begun = time.process_time()
            jax.block_until_ready(go())
            best[name] = min(best[name], 1e6 * (time.process_time() - begun) / agent_rounds)
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--anchor", type=Path, metavar="CLONE", help="of benchmark_bilevel")
    parser.add_argument("agents", nargs="*", type=int, default=[1, 5, 9, 15])
    options = parser.parse_args()
    print(f"JAX {jax.__version__}, one core, best of {REPEATS}; kernels built in {build():.1f} s\n")
    third = public(options.anchor.resolve()) if options.anchor else None
    times_by_agents = {agents: measure(agents, third) for agents in options.agents}
    print(
        "| us an agent's round (times as fast as the library) |",
        *(f"m = {m} |" for m in times_by_agents),
    )
    print("| --- |" + " --- |" * len(times_by_agents))
    for name in next(iter(times_by_agents.values())):
        cells = (
            f"{b[name]:.1f} ({b['as the library'] / b[name]:.2f})" for b in times_by_agents.values()
        )
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
