"""What a round costs an agent: against m, d, K and batch, beside what must move at the least.

    python benchmarks/scale.py [--devices cores] [--only m|d|K|batch] [--json FILE]

On one device by default; `--devices cores` cuts the agents over the cores of this machine, `all`
over all devices of JAX. Warm rounds, best of three, compile time apart. Agents hold 256 + 256 rows
of f features; g = mean softplus(-c a.y) + 1/2 mean exp(x) y^2, f the same without the penalty: the
reference work of benchmarks/speed.py with d = f. Beside each time, the least it can take: the bytes
a round must move (rows of every product once, the vectors of the update and of the mixing once) at
the speed with which this machine copies memory, or its operations at the speed of its products,
whichever is longer. Both ceilings are measured first.
"""

import argparse
import json
import os
import sys
import time

if "cores" in sys.argv:
    os.environ["JAX_NUM_CPU_DEVICES"] = str(len(os.sched_getaffinity(0)))
elif hasattr(os, "sched_setaffinity") and "all" not in sys.argv:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond import hypergradient as hg
from diamond.core.sampling import key
from diamond.engine.backend_selection import select_backend
from diamond.engine.round_program import initial_progress

ROWS, BATCH, TERMS, FEATURES = 256, 64, 10, 128
GRAPHS = {
    "ring": diamond.network.ring,
    "torus": lambda m: diamond.network.torus(*_sides(m)),
    "random": lambda m: diamond.network.erdos_renyi(m, min(1.0, 8 / max(m - 1, 1)), seed=0),
    "exponential": diamond.network.exponential,
}


def _sides(m):
    side = int(m**0.5)
    while m % side:
        side -= 1
    return side, m // side


def softplus(x, y, rows):
    return jnp.mean(jnp.logaddexp(0.0, -rows["c"] * (rows["a"] @ y)))


def penalized(x, y, rows):
    return softplus(x, y, rows) + 0.5 * jnp.mean(jnp.exp(x) * y**2)


def problem(agents, features, rows):
    random = np.random.default_rng(0)
    a = random.normal(size=(rows, features)).astype(np.float32) / np.float32(features**0.5)
    c = np.sign(a @ random.normal(size=features) + 1e-3).astype(np.float32)
    parts = [{"a": np.roll(a, i % rows, 0), "c": np.roll(c, i % rows)} for i in range(agents)]
    zeros = lambda key: (jnp.zeros(features), jnp.zeros(features))
    return diamond.Problem(softplus, penalized, zeros, parts, parts, shuffle=False)


def best(function, repeats=3):
    function()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - begun)
    return min(times)


def ceilings():
    """Bytes a second read and written in passes over memory, operations a second of products."""
    large = jax.default_backend() == "gpu"
    a, b = jnp.ones(2**27 if large else 2**24), jnp.eye(8192 if large else 1024)
    passes = jax.jit(lambda a, n: jax.lax.fori_loop(0, n, lambda _, a: a + 1.0, a))
    times = jax.jit(lambda b, n: jax.lax.fori_loop(0, n, lambda _, c: c @ b, b))
    copying = 2 * a.nbytes / (best(lambda: passes(a, 20)) / 20)
    return copying, 2 * b.shape[0] ** 3 / (best(lambda: times(b, 10)) / 10)


def measured(network, features=FEATURES, terms=TERMS, batch=BATCH, rows=ROWS, devices=None):
    """Seconds an agent-iteration, its compile time, bytes and operations it cannot do without."""
    m, work = network.agents, problem(network.agents, features, rows)
    alpha = diamond.schedules.power(0.1)
    eta = diamond.schedules.squared(0.1, alpha)
    method = diamond.diamond(alpha, alpha, eta, eta, batch, hg.neumann(terms, 1.0), order="paper")
    algorithm = jax.tree.map(jnp.asarray, method)
    backend = select_backend(work, network, batch, "blocks", devices=devices)
    begin = backend.scatter_progress(initial_progress(algorithm, *work.start(0), m))
    go = lambda until: backend.run_until(algorithm, key(0), begin, until)[0]
    begun = time.perf_counter()
    jax.block_until_ready(go(0))
    compiling, count = time.perf_counter() - begun, 1
    while (took := best(lambda count=count: go(count), 1)) < 0.3 and count < 4000:
        count *= 4
    seconds = min(took, best(lambda: go(count))) / count
    depth = diamond.cost.total(backend.gather(go(count).spent))[0, 2] / (2 * batch * count)
    products = 2 * (2 * (3 + depth) + 4)  # passes over a block of rows, at two points
    degree = len(network.edges) * 2 / m
    moved = 4 * features * (products / 2 * batch + 20 + 4 * (degree + 2))
    return seconds / m, compiling, moved, 2 * products * batch * features


def sizes(only, devices):
    """(what, its value, network, options) of every row of the table."""
    if only in ("", "m"):
        for name, graph in GRAPHS.items():
            for m in (16, 64, 256, 1024, 4096) if name == "ring" else (64, 1024, 4096):
                yield f"m, {name}", m, graph(m), {"rows": 64 + BATCH}
    if only in ("", "d"):
        for d in (10**3, 10**4, 10**5, 10**6, 10**7, 10**8):
            small = {"batch": 4, "rows": 8} if d > 10**5 else {"rows": 128}
            yield "d", d, diamond.network.ring(4 if d < 10**8 else 2), {"features": d, **small}
    if only in ("", "K"):
        for terms in (1, 4, 16, 64):
            yield "K", terms, diamond.network.ring(64), {"terms": terms}
    if only in ("", "batch"):
        for batch in (1, 8, 64, 256):
            yield "batch", batch, diamond.network.ring(64), {"batch": batch, "rows": 512}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--largest", type=float, default=float("inf"))
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    devices = options.devices or None
    devices = int(devices) if devices and devices.isdigit() else devices
    copying, computing = ceilings()
    kind = jax.devices()[0].device_kind
    print(f"JAX {jax.__version__}, {kind}, devices: {devices or 1} of {jax.device_count()}")
    print(f"ceilings: {copying / 1e9:.1f} GB/s, {computing / 1e9:.0f} GFLOP/s\n")
    print("varied           value   us/agent-it   at the least   ratio   compile, s")
    rows = []
    for what, value, network, extra in sizes(options.only, devices):
        if value > options.largest:
            continue
        seconds, compiling, moved, flops = measured(network, devices=devices, **extra)
        least = max(moved / copying, flops / computing)
        rows.append([what, value, seconds, least, compiling])
        left = f"{what:14} {value:9d} {1e6 * seconds:13.2f} {1e6 * least:14.2f}"
        print(f"{left} {seconds / least:7.1f} {compiling:12.1f}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file)


if __name__ == "__main__":
    main()
