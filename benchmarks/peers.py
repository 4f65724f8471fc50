"""Sites as real processes beside what they could be: `python benchmarks/peers.py [SITES ...]`.

Rings of 2, 3, 5 and 9 sites with messages of 4 kB, 100 kB and 10 MB, GT-SGD in the paper's order.
Milliseconds of a round, in one run:

    simulate   all agents in one process, one compiled program
    rehearse   all sites in one process, with the messages and the checks, without TLS
    floor      a process a site, TLS streams and the compiled round, nothing else
    sites      a process a site, as `diamond net start` runs it: checkpoints and measuring among it

and of a site the processor time a round, and the share of its time that it waits. The second half
of the rounds counts, when all is warm; of sites, the time between two lines of their metrics as
whoever reads the file sees it. `--quick`: 2 and 5 sites only. `--before CHECKOUT`: another version
too, in turns, as `before`; `--sizes` and `--repeats`, of which the quickest counts.
"""

import argparse
import json
import os
import shutil
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
from diamond.engine.round_program import initial_progress, run_rounds
from diamond.engine.site_rehearsal import rehearse
from diamond.network.mixing.mixer import mixer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from site_faults import ports

SITES, QUICK = (2, 3, 5, 9), (2, 5)
COLUMNS = ("simulate", "rehearse", "floor", "sites", "by floor", "processor", "waits")
ROUNDS = {4_000: 400, 100_000: 200, 10_000_000: 40}  # by bytes of a message
HERE = Path(__file__).parents[1]
PARTS = 10  # checkpoints, and measurements, of a run
GIVEN = diamond.gt_sgd(0.05, 0.2, 16, diamond.hypergradient.neumann(3, 1.6), order="paper")
ALGORITHM = """
[algorithm]
name = "gt_sgd"
alpha = 0.05
beta = 0.2
batch = 16
order = "paper"
hypergradient = { name = "neumann", terms = 3, lipschitz = 1.6 }
"""
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
    begin = initial_progress(given, *problem.start(0), sites)
    go = lambda until: run_rounds(*fixed, begin, jnp.int32(until), sampling="blocks")
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


def founded(root: Path, place: Path, sites: int, rounds: int, version: Path) -> list[Path]:
    """The bundles of a federation on this machine."""
    place.mkdir()
    names = "\n".join(f'site{i} = "127.0.0.1:{port}"' for i, port in enumerate(ports(sites)))
    terms = f'rounds = {rounds}\nevery = {max(1, rounds // PARTS)}\nnetwork = "ring:{sites}"\n'
    (place / "trial.toml").write_text(f"{terms}{ALGORITHM}\n[sites]\n{names}\n")
    words = ["-m", "diamond", "net", "init", place / "trial.toml", "--out", place / "bundles"]
    with (place / "init.txt").open("wb") as log:
        assert spawned(root, words, log, version).wait() == 0, (place / "init.txt").read_text()
    return [place / "bundles" / f"site{i}" for i in range(sites)]


def peers(
    root: Path, sites: int, size: int, rounds: int, version: Path = HERE
) -> tuple[float, float, float]:
    """Of real sites: seconds a round, of these what each works, and the share that it waits."""
    place, processes = Path(tempfile.mkdtemp(dir=root)) / "run", []
    for i, bundle in enumerate(founded(root, place, sites, rounds, version)):
        path = place / f"site{i}.py"
        path.write_text(PROBLEM + f"\n\ndef own():\n    return make({i}, {size // 8})\n")
        words = ["net", "start", bundle, "--problem", f"{path}:own", "--out", place, "--quiet"]
        with (place / f"site{i}.txt").open("wb") as log:
            processes.append(spawned(root, ["-m", "diamond", *words], log, version))
    metrics = place / "trial" / "site0" / "metrics.jsonl"
    seconds, worked, waited = watched(metrics, rounds, processes)
    assert [process.wait() for process in processes] == [0] * sites
    shutil.rmtree(place)
    return seconds / (rounds - rounds // 2), worked / sites / (rounds - rounds // 2), waited


def watched(path: Path, rounds: int, processes: list) -> tuple[float, float, float]:
    """Seconds of the second half of the rounds, processor seconds of all, and the share waited."""
    seen: dict[int, tuple[float, float, dict]] = {}
    while not seen or max(seen) < rounds:
        assert all(process.poll() in (None, 0) for process in processes), path.parent
        lines = path.read_text().splitlines() if path.exists() else []
        lines = [line for line in lines if line.endswith("}")]
        for line in map(json.loads, lines[len(seen) :]):
            seen[line["round"]] = time.perf_counter(), sum(map(processor, processes)), line
        time.sleep(0.005)
    (begun, first, middle), (ended, last, end) = seen[rounds // 2], seen[rounds]
    share = (end["waited"] - middle["waited"]) / (end["seconds"] - middle["seconds"])
    return ended - begun, last - first, share


def processor(process: subprocess.Popen) -> float:
    """Seconds that it has worked so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def floor(root: Path, sites: int, size: int, rounds: int) -> float:
    """Seconds a round of bare streams and the compiled round."""
    place = Path(tempfile.mkdtemp(dir=root)) / "floor"
    script = Path(__file__).with_name("peers_floor.py")
    processes = [
        spawned(root, [script, bundle, size, rounds], subprocess.PIPE)
        for bundle in founded(root, place, sites, rounds, HERE)
    ]
    told = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    return np.mean([one["seconds"] for one in told]) / (rounds - rounds // 2)


def spawned(root: Path, words: list, output: Any, version: Path = HERE) -> subprocess.Popen:
    """A process of one site."""
    command = [sys.executable, *map(str, words)]
    errors = None if output is subprocess.PIPE else output
    env = environment(root, version)
    return subprocess.Popen(command, stdout=output, stderr=errors, env=env, cwd=root)


def environment(root: Path, version: Path) -> dict[str, str]:
    """One compilation cache for all processes, and one thread each for their computing."""
    flags = "--xla_cpu_multi_thread_eigen=false"
    cache = {"XDG_CACHE_HOME": str(root / "cache"), "XLA_FLAGS": flags}
    path = os.pathsep.join([str(version), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path, **cache}


def row(root: Path, sites: int, size: int, repeats: int, before: Path | None) -> str:
    """One line of the table."""
    given = sites, size, ROUNDS[size]
    alone, trial, bare, real, old = [], [], [], [], []
    for _ in range(repeats):
        alone.append(simulated(*given))
        trial.append(rehearsed(*given))
        bare.append(floor(root, *given))
        real.append(peers(root, *given))
        if before:
            old.append(peers(root, *given, before))
    took, worked, waits = min(real)
    label = f"{size // 1000} kB" if size < 10**6 else f"{size // 10**6} MB"
    times = (min(alone), min(trial), min(bare), took)
    text = f"{sites:>5}{label:>10}" + "".join(f"{1000 * seconds:>10.3g}" for seconds in times)
    text += f"{took / min(bare):>10.2f}{1000 * worked:>10.3g}{waits:>10.0%}"
    if before:
        text += f"{1000 * min(old)[0]:>10.3g}{1000 * min(old)[1]:>10.3g}"
    return text


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sites", type=int, nargs="*", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(ROUNDS))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--before", type=Path)
    given = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}; ms a round")
    columns = COLUMNS + (("before", "processor") if given.before else ())
    print(f"{'sites':>5}{'message':>10}" + "".join(f"{name:>10}" for name in columns))
    with tempfile.TemporaryDirectory() as place:
        for sites in given.sites or (QUICK if given.quick else SITES):
            for size in given.sizes:
                print(row(Path(place), sites, size, given.repeats, given.before), flush=True)


if __name__ == "__main__":
    main()
