"""Sites as real processes beside `simulate` on the same cores: `python benchmarks/peers.py`.

A ring of 5 and of 9 sites, one process each, mutual TLS on loopback, GT-SGD with messages of 100 kB
and of 10 MB. Prints rounds a second, the share of a site's time that it waits for neighbours (the
mean of all sites), and both again with `order="atc"`, where a message cannot leave before the
gradients are there. The second half of the rounds counts, when everything is warm.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond.core.sampling import key
from diamond.network.mixer import mixer
from diamond.peers import authority
from diamond.runtimes._round import advance, start

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from faulting import ports

SITES = (5, 9)
ROUNDS = {100_000: 200, 10_000_000: 10}  # by bytes of a message
PROBLEM = """
import jax.numpy as jnp
import numpy as np
import diamond


def f(x, y, rows):
    return jnp.mean((y - rows) ** 2) + 0.1 * jnp.mean(x**2)


def g(x, y, rows):
    return jnp.mean(0.5 * (y - rows) ** 2 * (1 + 0.1 * jnp.tanh(x[:3]))) + 0.1 * y @ x[-3:]


def rows(site):
    return np.random.default_rng(site).normal(site, 1, (64, 3)).astype(np.float32)


def make(site: int | list, size: int):
    own = [rows(one) for one in (site if isinstance(site, list) else [site])]
    start = lambda key: (jnp.linspace(-1, 1, size), jnp.zeros(3))
    return diamond.Problem(f, g, start, own, own)
"""


def algorithm(order: str) -> dict:
    """GT-SGD with numbers throughout."""
    chain = {"name": "neumann", "terms": 3, "lipschitz": 1.6}
    steps = {"alpha": 0.05, "beta": 0.2, "batch": 16}
    return {"name": "gt_sgd", **steps, "order": order, "hypergradient": chain}


def simulated(sites: int, size: int, rounds: int) -> float:
    """Rounds a second in one process."""
    space: dict = {}
    exec(PROBLEM, space)
    problem = space["make"](list(range(sites)), size // 8)
    chain = diamond.hypergradient.neumann(3, 1.6)
    given = diamond.gt_sgd(0.05, 0.2, 16, chain, order="paper")
    given = jax.tree.map(jnp.asarray, given)
    fixed = given, problem.objectives(16), mixer(diamond.network.ring(sites)), key(0)
    begin = start(given, *problem.start(0), sites)
    go = lambda until: advance(*fixed, begin, jnp.int32(until), sampling="blocks")
    jax.block_until_ready(go(1))
    begun = time.perf_counter()
    jax.block_until_ready(go(rounds))
    return rounds / (time.perf_counter() - begun)


def peers(root: Path, sites: int, size: int, rounds: int, order: str) -> tuple[float, float]:
    """Rounds a second of real processes, and the share of the time in which they wait."""
    names = {f"site{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports(sites))}
    terms = {"rounds": rounds, "every": rounds // 2, "algorithm": algorithm(order)}
    terms["network"] = {"graph": "ring", "agents": sites}
    place = root / f"{sites}-{size}-{order}"
    place.mkdir()
    bundles = authority.found_federation(
        place / "trial", "trial", names, diamond.network.ring(sites), terms
    )
    processes = []
    for i, bundle in enumerate(bundles.values()):
        path = place / f"site{i}.py"
        path.write_text(PROBLEM + f"\n\ndef own():\n    return make({i}, {size // 8})\n")
        words = ["net", "start", bundle, "--problem", f"{path}:own", "--out", place, "--quiet"]
        command = [sys.executable, "-m", "diamond", *map(str, words)]
        with (place / f"site{i}.txt").open("wb") as log:
            processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=environment(root))
            )
    assert [process.wait() for process in processes] == [0] * sites
    halves = [half(place / "trial" / name / "metrics.jsonl") for name in names]
    seconds, waited = np.mean(halves, axis=0)
    return rounds / 2 / seconds, waited / seconds


def half(path: Path) -> tuple[float, float]:
    """Seconds of the second half of the rounds, and what of them was waiting."""
    *_, middle, last = map(json.loads, path.read_text().splitlines())
    return last["seconds"] - middle["seconds"], last["waited"] - middle["waited"]


def environment(root: Path) -> dict[str, str]:
    """One compilation cache for all processes, and one thread each for their computing."""
    flags = "--xla_cpu_multi_thread_eigen=false"
    cache = {"XDG_CACHE_HOME": str(root / "cache"), "XLA_FLAGS": flags}
    return {**os.environ, "JAX_PLATFORMS": "cpu", **cache}


def main() -> None:
    """The table."""
    print(f"{len(os.sched_getaffinity(0))} cores; rounds/s, and share of the time spent waiting")
    print(f"{'sites':>5}{'message':>10}{'simulate':>10}{'early':>8}{'waits':>7}", end="")
    print(f"{'after gradients':>17}{'waits':>7}")
    with tempfile.TemporaryDirectory() as place:
        for sites in SITES:
            for size, rounds in ROUNDS.items():
                alone = simulated(sites, size, rounds)
                found = [peers(Path(place), sites, size, rounds, o) for o in ("paper", "atc")]
                (rate, waits), (late, idle) = found
                label = f"{size // 1000} kB" if size < 10**6 else f"{size // 10**6} MB"
                print(f"{sites:>5}{label:>10}{alone:>10.3g}{rate:>8.3g}{waits:>7.0%}", end="")
                print(f"{late:>17.3g}{idle:>7.0%}", flush=True)


if __name__ == "__main__":
    main()
