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

`--hidden` instead: a ring of five of which two neighbours accept no connections, so that they dial
the others, and each other through a relay; in turns with open ports, through a relay without keys
(a process more) and through a site that relays. The bits at the end must be the same.
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
HIDDEN_SITES, HIDDEN = 5, (2, 3)  # a ring of five, of which these two accept no connections
WAYS = ("open", "relay", "site")  # open ports; a relay without keys; site 0 relays
COLUMNS = ("simulate", "rehearse", "floor", "sites", "by floor", "processor", "waits")
ROUNDS = {4_000: 400, 100_000: 200, 10_000_000: 40}  # by bytes of a message
HERE = Path(__file__).parents[1]
PARTS = 10  # checkpoints, and measurements, of a run
METHOD = diamond.gt_sgd(0.05, 0.2, 16, diamond.hypergradient.neumann(3, 1.6), order="paper")
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


def time_simulation(sites: int, size: int, rounds: int) -> float:
    """Seconds a round in one process."""
    space: dict = {}
    exec(PROBLEM, space)
    problem = space["make"](list(range(sites)), size // 8)
    method = jax.tree.map(jnp.asarray, METHOD)
    fixed = method, problem.objectives(16), mixer(diamond.network.ring(sites)), key(0)
    progress = initial_progress(method, *problem.start(0), sites)
    run = lambda until: run_rounds(*fixed, progress, jnp.int32(until), sampling="blocks")
    jax.block_until_ready(run(1))
    started = time.perf_counter()
    jax.block_until_ready(run(rounds))
    return (time.perf_counter() - started) / rounds


def time_rehearsal(sites: int, size: int, rounds: int) -> float:
    """Seconds a round of all sites in one process; the second run, when all is compiled."""
    problems_of_sites = problems(sites, size)
    for _ in range(2):
        started = time.perf_counter()
        rehearse(problems_of_sites, diamond.network.ring(sites), METHOD, rounds)
    return (time.perf_counter() - started) / rounds


def make_bundles(
    root: Path,
    folder: Path,
    sites: int,
    rounds: int,
    version: Path,
    way: str = "open",
    more: str = "",
) -> list[Path]:
    """The bundles of a federation on this machine; `more` lines of its file."""
    folder.mkdir()
    places = [f'"127.0.0.1:{port}"' for port in ports(sites + 1)]
    relay = places.pop()
    if way != "open":
        for i in HIDDEN:
            places[i] = '""'
    if way == "site":
        places[0] = f"{{ address = {places[0]}, relay = true }}"
    names = "\n".join(f"site{i} = {place}" for i, place in enumerate(places))
    names += f"\n[relays]\nhub = {relay}" if way == "relay" else ""
    terms = f'rounds = {rounds}\nevery = {max(1, rounds // PARTS)}\nnetwork = "ring:{sites}"\n'
    terms += more
    (folder / "trial.toml").write_text(f"{terms}{ALGORITHM}\n[sites]\n{names}\n")
    arguments = ["-m", "diamond", "net", "init", folder / "trial.toml", "--out", folder / "bundles"]
    with (folder / "init.txt").open("wb") as log:
        assert start_process(root, arguments, log, version).wait() == 0, (
            folder / "init.txt"
        ).read_text()
    return [folder / "bundles" / f"site{i}" for i in range(sites)]


def peers(
    root: Path, sites: int, size: int, rounds: int, version: Path = HERE
) -> tuple[float, float, float]:
    """Of real sites: seconds a round, of these what each works, and the share that it waits."""
    return run_sites(root, sites, size, rounds, version)[0]


def run_sites(
    root: Path,
    sites: int,
    size: int,
    rounds: int,
    version: Path = HERE,
    way: str = "open",
    more: str = "",
) -> tuple[tuple[float, float, float], list[str]]:
    """The times of `sites`, and the ends of the sites, with the digests of x."""
    folder, processes = Path(tempfile.mkdtemp(dir=root)) / "run", []
    bundles = make_bundles(root, folder, sites, rounds, version, way, more)
    relay = None
    if way == "relay":
        with (folder / "relay.txt").open("wb") as log:
            arguments = ["-m", "diamond", "net", "relay", folder / "bundles" / "hub"]
            relay = start_process(root, arguments, log, version)
    for i, bundle in enumerate(bundles):
        path = folder / f"site{i}.py"
        path.write_text(PROBLEM + f"\n\ndef own():\n    return make({i}, {size // 8})\n")
        arguments = ["net", "start", bundle, "--problem", f"{path}:own", "--out", folder, "--quiet"]
        with (folder / f"site{i}.txt").open("wb") as log:
            processes.append(start_process(root, ["-m", "diamond", *arguments], log, version))
    metrics = folder / "trial" / "site0" / "metrics.jsonl"
    seconds, worked, waited = measure_second_half(metrics, rounds, processes)
    assert [process.wait() for process in processes] == [0] * sites
    if relay is not None:
        relay.terminate()
        relay.wait()
    logs = [(folder / f"site{i}.txt").read_text() for i in range(sites)]
    digests = [log.rsplit("sha256 of x ", 1)[1].strip() for log in logs]
    shutil.rmtree(folder)
    times = seconds / (rounds - rounds // 2), worked / sites / (rounds - rounds // 2), waited
    return times, digests


def hidden_row(root: Path, size: int, repeats: int) -> str:
    """One line of the table of `--hidden`: milliseconds a round, and beside open ports."""
    case, times, digests = (HIDDEN_SITES, size, ROUNDS[size]), {way: [] for way in WAYS}, set()
    for turn in range(repeats):
        for way in WAYS[turn % 3 :] + WAYS[: turn % 3]:
            measured, ends = run_sites(root, *case, way=way)
            times[way].append(measured)
            digests.add(tuple(ends))
    assert len(digests) == 1, "the sites end in other bits"
    label = f"{size // 1000} kB" if size < 10**6 else f"{size // 10**6} MB"
    best = {way: min(times[way]) for way in WAYS}
    middle = {way: np.median([seconds for seconds, *_ in times[way]]) for way in WAYS}
    text = f"{label:>10}" + "".join(f"{1000 * best[way][0]:>10.3g}" for way in WAYS)
    text += "".join(f"{best[way][0] / best['open'][0]:>10.3f}" for way in WAYS[1:])
    text += "".join(f"{middle[way] / middle['open']:>10.3f}" for way in WAYS[1:])
    return text + "".join(f"{1000 * min(t[1] for t in times[way]):>10.3g}" for way in WAYS)


def measure_second_half(path: Path, rounds: int, processes: list) -> tuple[float, float, float]:
    """Seconds of the second half of the rounds, processor seconds of all, and the share waited."""
    evaluations: dict[int, tuple[float, float, dict]] = {}
    while not evaluations or max(evaluations) < rounds:
        assert all(process.poll() in (None, 0) for process in processes), path.parent
        lines = path.read_text().splitlines() if path.exists() else []
        lines = [line for line in lines if line.endswith("}")]
        for line in map(json.loads, lines[len(evaluations) :]):
            evaluations[line["round"]] = time.perf_counter(), sum(map(processor, processes)), line
        time.sleep(0.005)
    (started, first, middle), (ended, last, end) = evaluations[rounds // 2], evaluations[rounds]
    share = (end["waited"] - middle["waited"]) / (end["seconds"] - middle["seconds"])
    return ended - started, last - first, share


def processor(process: subprocess.Popen) -> float:
    """Seconds that it has worked so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def floor(root: Path, sites: int, size: int, rounds: int) -> float:
    """Seconds a round of bare streams and the compiled round."""
    folder = Path(tempfile.mkdtemp(dir=root)) / "floor"
    script = Path(__file__).with_name("peers_floor.py")
    processes = [
        start_process(root, [script, bundle, size, rounds], subprocess.PIPE)
        for bundle in make_bundles(root, folder, sites, rounds, HERE)
    ]
    results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    return np.mean([result["seconds"] for result in results]) / (rounds - rounds // 2)


def start_process(
    root: Path, arguments: list, output: Any, version: Path = HERE
) -> subprocess.Popen:
    """A process of one site."""
    command = [sys.executable, *map(str, arguments)]
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
    case = sites, size, ROUNDS[size]
    simulate_times, rehearse_times, floor_times, site_times, before_times = [], [], [], [], []
    for _ in range(repeats):
        simulate_times.append(time_simulation(*case))
        rehearse_times.append(time_rehearsal(*case))
        floor_times.append(floor(root, *case))
        site_times.append(peers(root, *case))
        if before:
            before_times.append(peers(root, *case, before))
    seconds, worked, waits = min(site_times)
    label = f"{size // 1000} kB" if size < 10**6 else f"{size // 10**6} MB"
    times = (min(simulate_times), min(rehearse_times), min(floor_times), seconds)
    text = f"{sites:>5}{label:>10}" + "".join(f"{1000 * seconds:>10.3g}" for seconds in times)
    text += f"{seconds / min(floor_times):>10.2f}{1000 * worked:>10.3g}{waits:>10.0%}"
    if before:
        text += f"{1000 * min(before_times)[0]:>10.3g}{1000 * min(before_times)[1]:>10.3g}"
    return text


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sites", type=int, nargs="*", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(ROUNDS))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--hidden", action="store_true")
    options = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}; ms a round")
    if options.hidden:
        columns = (*WAYS, "relay/open", "site/open", "median", "median", *(["processor"] * 3))
        print(f"{'message':>10}" + "".join(f"{name:>10}" for name in columns))
        with tempfile.TemporaryDirectory() as folder:
            for size in options.sizes:
                print(hidden_row(Path(folder), size, options.repeats), flush=True)
        return
    columns = COLUMNS + (("before", "processor") if options.before else ())
    print(f"{'sites':>5}{'message':>10}" + "".join(f"{name:>10}" for name in columns))
    with tempfile.TemporaryDirectory() as folder:
        for sites in options.sites or (QUICK if options.quick else SITES):
            for size in options.sizes:
                print(row(Path(folder), sites, size, options.repeats, options.before), flush=True)


if __name__ == "__main__":
    main()
