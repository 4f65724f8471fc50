"""Sites as real processes whose rounds take a given time, one of them longer.

    python slow_sites.py SECONDS net start ...

runs the command with a computation that takes SECONDS longer in every round.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from site_faults import ports

import diamond
from diamond.engine.site_replay import replay
from diamond.records import checkpoint_file
from diamond.sites.memory.edge_journal import recorded_network, recorded_versions

SIZE, SLOW = 8, 2  # numbers in x, and the slow site
HERE = Path(__file__).parents[2]
STEPS = {"alpha": 0.3, "beta": 0.2, "batch": 16}
TERMS, LIPSCHITZ = 10, 4.0


def rows(site, part, count):
    """Rows of a regression; every site has its own coefficients."""
    shared, own = (np.random.default_rng(seed).normal(size=SIZE) for seed in (99, site))
    truth = shared * (np.arange(SIZE) < SIZE // 2) + 0.3 * own
    random = np.random.default_rng([site, part])
    a = random.normal(size=(count, SIZE))
    b = a @ truth + random.normal(size=count)
    return {"a": a.astype(np.float32), "b": b.astype(np.float32)}


def make(sites):
    """Penalties of each coefficient, chosen on validation rows; problem of these sites."""
    fit = lambda y, rows: 0.5 * jnp.mean((rows["a"] @ y - rows["b"]) ** 2)
    lower = lambda x, y, rows: fit(y, rows) + 0.5 * jnp.mean(jnp.exp(x) * y**2)
    start = lambda key: (jnp.full(SIZE, 2.0), jnp.zeros(SIZE))
    train, valid = ([rows(site, part, 32 * (1 + part)) for site in sites] for part in (0, 1))
    return diamond.Problem(lambda x, y, rows: fit(y, rows), lower, start, train, valid)


def method(order):
    """GT-SGD with given steps."""
    neumann = diamond.hypergradient.neumann(TERMS, LIPSCHITZ)
    return diamond.gt_sgd(**STEPS, hypergradient=neumann, order=order)


def write_federation(folder, count, rounds, every, order, terms):
    """Bundles of a federation on a ring, and a problem for each site."""
    folder.mkdir(parents=True)
    names = "\n".join(f'site{i} = "127.0.0.1:{port}"' for i, port in enumerate(ports(count)))
    steps = "\n".join(f"{name} = {value}" for name, value in STEPS.items())
    (folder / "trial.toml").write_text(
        f'rounds = {rounds}\nevery = {every}\nnetwork = "ring:{count}"\n{terms}\n'
        f'[algorithm]\nname = "gt_sgd"\norder = "{order}"\n{steps}\n'
        f'hypergradient = {{ name = "neumann", terms = {TERMS}, lipschitz = {LIPSCHITZ} }}\n'
        f"[sites]\n{names}\n"
    )
    command = [sys.executable, "-m", "diamond", "net", "init", folder / "trial.toml"]
    env = environment(folder.parent)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*command, "--out", folder / "bundles"], check=True, env=env, **quiet)
    for i in range(count):
        (folder / f"site{i}.py").write_text(
            f"import slow_sites\n\n\ndef own():\n    return slow_sites.make([{i}])\n"
        )


def environment(root):
    """One compilation cache for all processes, the flags of this one, and one thread each."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    path = os.pathsep.join(
        [str(HERE), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    cache = {"XDG_CACHE_HOME": str(root / "cache"), "XLA_FLAGS": flags}
    return {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path, **cache}


def run_sites(folder, seconds, rounds, every, order, terms="", kill=None):
    """Run a site for each of `seconds`, the time of its computation; return what they wrote.

    `kill` is a site, and the round after whose checkpoint its process is killed, then started
    again. The result: seconds since round 0 by round, as each site has them, and their final x.
    """
    count = len(seconds)
    write_federation(folder, count, rounds, every, order, terms)
    folders = [folder / "runs" / "trial" / f"site{i}" for i in range(count)]

    def start(i):
        command = [sys.executable, __file__, str(seconds[i]), "net", "start"]
        command += [folder / "bundles" / f"site{i}", "--problem", f"{folder / f'site{i}.py'}:own"]
        with (folder / f"site{i}.txt").open("ab") as log:
            call = [*map(str, command), "--out", str(folder / "runs"), "--quiet"]
            return subprocess.Popen(call, stdout=log, stderr=log, env=environment(folder.parent))

    processes = [start(i) for i in range(count)]
    if kill is not None:
        victim, round = kill
        while max(checkpoint_file.saved_rounds(folders[victim] / "checkpoint"), default=0) < round:
            assert processes[victim].poll() is None, (folder / f"site{victim}.txt").read_text()
            time.sleep(0.01)
        processes[victim].kill()
        processes[victim].wait()
        processes[victim] = start(victim)
    for i, process in enumerate(processes):
        assert process.wait() == 0, (folder / f"site{i}.txt").read_text()
    lines = [(f / "metrics.jsonl").read_text().splitlines() for f in folders]
    times = [{entry["round"]: entry["seconds"] for entry in map(json.loads, own)} for own in lines]
    places = [folder / "checkpoint" for folder in folders]
    last = [
        checkpoint_file.load(place, checkpoint_file.saved_rounds(place)[-1]) for place in places
    ]
    return folders, times, np.stack([saved.arrays[".state.x"] for saved in last])


def simulate(count, rounds, every, order, folders=None):
    """The same run in one process: of constant links, or of the links in the journals."""
    network = diamond.network.ring(count)
    network = network if folders is None else recorded_network(network, folders)
    run = diamond.simulate(make(range(count)), network, method(order), rounds, every=every)
    return run, network


def read_versions(folders):
    """The versions of messages that asynchronous sites have used."""
    return recorded_versions(diamond.network.ring(len(folders)), folders)


def replay_sites(count, every, order, versions, on_round=None):
    """The same run in one process, of asynchronous rounds."""
    network, problems = diamond.network.ring(count), [make([i]) for i in range(count)]
    return replay(problems, network, method(order), versions, every=every, on_round=on_round)


def objective(x, count):
    """The mean of f_i at x and y_i*(x), in float64."""
    losses = []
    for i in range(count):
        train, valid = (rows(i, part, 32 * (1 + part)) for part in (0, 1))
        a, b = (train[name].astype(float) for name in "ab")
        y = np.linalg.solve(a.T @ a / len(b) + np.diag(np.exp(x)) / SIZE, a.T @ b / len(b))
        losses.append(0.5 * np.mean((valid["a"] @ y - valid["b"]) ** 2))
    return np.mean(losses)


def main(seconds, *words):
    """The command, with a computation that takes longer."""
    from diamond import cli
    from diamond.problem import loss_validation
    from diamond.sites.rounds.site_agent import Agent

    original = Agent.compute

    def compute(self, progress, exchange):
        time.sleep(float(seconds))
        return original(self, progress, exchange)

    Agent.compute = compute
    loss_validation.check_losses = lambda problem: 0
    sys.argv = ["diamond", *words]
    cli.app()


if __name__ == "__main__":
    main(*sys.argv[1:])
