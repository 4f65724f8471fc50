"""Sites as real processes beside what they could be: `python benchmarks/peers.py [SITES ...]`.

Rings of 2, 3, 5 and 9 sites with messages of 4 kB, 100 kB and 10 MB, GT-SGD in the paper's order.
Milliseconds of a round, in one run:

    simulate   all agents in one process, one compiled program
    rehearse   all sites in one process, with the messages and the checks, without TLS
    floor      a process a site, TLS streams and the compiled round, nothing else
    sites      a process a site, as `diamond net start` runs it: checkpoints and measuring among it

and the share of a site's time that it waits. The second half of the rounds counts, when all is
warm.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond.core.sampling import key
from diamond.network.mixer import mixer
from diamond.peers import authority
from diamond.runtimes._round import advance, start
from diamond.runtimes.peers import rehearse

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from faulting import ports

SITES = (2, 3, 5, 9)
ROUNDS = {4_000: 400, 100_000: 200, 10_000_000: 10}  # by bytes of a message
PARTS = 10  # checkpoints, and measurements, of a run
GIVEN = diamond.gt_sgd(0.05, 0.2, 16, diamond.hypergradient.neumann(3, 1.6), order="paper")
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


def problems(sites: int, size: int) -> list:
    """Each with one site's rows."""
    space: dict = {}
    exec(PROBLEM, space)
    return [space["make"](i, size // 8) for i in range(sites)]


def simulated(sites: int, size: int, rounds: int) -> float:
    """Seconds a round in one process."""
    space: dict = {}
    exec(PROBLEM, space)
    problem = space["make"](list(range(sites)), size // 8)
    given = jax.tree.map(jnp.asarray, GIVEN)
    fixed = given, problem.objectives(16), mixer(diamond.network.ring(sites)), key(0)
    begin = start(given, *problem.start(0), sites)
    go = lambda until: advance(*fixed, begin, jnp.int32(until), sampling="blocks")
    jax.block_until_ready(go(1))
    begun = time.perf_counter()
    jax.block_until_ready(go(rounds))
    return (time.perf_counter() - begun) / rounds


def rehearsed(sites: int, size: int, rounds: int) -> float:
    """Seconds a round of all sites in one process; the second run, when all is compiled."""
    own = problems(sites, size)
    for _ in range(2):
        begun = time.perf_counter()
        rehearse(own, diamond.network.ring(sites), GIVEN, rounds)
    return (time.perf_counter() - begun) / rounds


def founded(place: Path, sites: int, rounds: int) -> list[Path]:
    """The bundles of a federation on this machine."""
    place.mkdir()
    names = {f"site{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports(sites))}
    chain = {"name": "neumann", "terms": 3, "lipschitz": 1.6}
    steps = {"alpha": 0.05, "beta": 0.2, "batch": 16, "order": "paper", "hypergradient": chain}
    terms = {"rounds": rounds, "every": max(1, rounds // PARTS)}
    terms |= {"algorithm": {"name": "gt_sgd", **steps}}
    terms |= {"network": {"graph": "ring", "agents": sites}}
    given = names, diamond.network.ring(sites), terms
    return list(authority.found_federation(place / "trial", "trial", *given).values())


def peers(root: Path, sites: int, size: int, rounds: int) -> tuple[float, float]:
    """Seconds a round of real sites, and the share of the time in which they wait."""
    place, processes = root / f"{sites}-{size}", []
    for i, bundle in enumerate(founded(place, sites, rounds)):
        path = place / f"site{i}.py"
        path.write_text(PROBLEM + f"\n\ndef own():\n    return make({i}, {size // 8})\n")
        words = ["net", "start", bundle, "--problem", f"{path}:own", "--out", place, "--quiet"]
        with (place / f"site{i}.txt").open("wb") as log:
            processes.append(spawned(root, ["-m", "diamond", *words], log))
    assert [process.wait() for process in processes] == [0] * sites
    halves = [half(place / "trial" / f"site{i}" / "metrics.jsonl") for i in range(sites)]
    seconds, waited = np.mean(halves, axis=0)
    return seconds / (rounds / 2), waited / seconds


def floor(root: Path, sites: int, size: int, rounds: int) -> float:
    """Seconds a round of bare streams and the compiled round."""
    place = root / f"floor-{sites}-{size}"
    script = Path(__file__).with_name("peers_floor.py")
    processes = [
        spawned(root, [script, bundle, size, rounds], subprocess.PIPE)
        for bundle in founded(place, sites, rounds)
    ]
    told = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    return np.mean([one["seconds"] for one in told]) / (rounds - rounds // 2)


def spawned(root: Path, words: list, output: Any) -> subprocess.Popen:
    """A process of one site."""
    command = [sys.executable, *map(str, words)]
    errors = None if output is subprocess.PIPE else output
    return subprocess.Popen(command, stdout=output, stderr=errors, env=environment(root))


def half(path: Path) -> tuple[float, float]:
    """Seconds of the second half of the rounds, and what of them was waiting."""
    *_, middle, last = map(json.loads, path.read_text().splitlines())
    return last["seconds"] - middle["seconds"], last["waited"] - middle["waited"]


def environment(root: Path) -> dict[str, str]:
    """One compilation cache for all processes, and one thread each for their computing."""
    flags = "--xla_cpu_multi_thread_eigen=false"
    cache = {"XDG_CACHE_HOME": str(root / "cache"), "XLA_FLAGS": flags}
    return {**os.environ, "JAX_PLATFORMS": "cpu", **cache}


def main(counts: tuple[int, ...]) -> None:
    """The table."""
    print(f"{len(os.sched_getaffinity(0))} cores; milliseconds a round")
    columns = ("simulate", "rehearse", "floor", "sites", "by floor", "waits")
    print(f"{'sites':>5}{'message':>10}" + "".join(f"{name:>10}" for name in columns))
    with tempfile.TemporaryDirectory() as place:
        for sites in counts:
            for size, rounds in ROUNDS.items():
                given = sites, size, rounds
                alone, trial = simulated(*given), rehearsed(*given)
                bare = floor(Path(place), *given)
                real, waits = peers(Path(place), *given)
                label = f"{size // 1000} kB" if size < 10**6 else f"{size // 10**6} MB"
                took = "".join(f"{1000 * one:>10.3g}" for one in (alone, trial, bare, real))
                print(f"{sites:>5}{label:>10}{took}{real / bare:>10.2f}{waits:>10.0%}", flush=True)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or SITES)
