"""A federation of real sites whose members change while sites are killed and started again."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from federations import PROBLEM as SAME_ROWS
from tls_sites import ports

import diamond
from diamond.config.federation_file import load
from diamond.records import checkpoint_file

PROBLEM = SAME_ROWS.replace("rows[::-1].copy()", "2 * rows[::-1]")  # whose solution is not x = 0
FEDERATION = """
name = "trial"
rounds = {rounds}
every = {every}
precision = "float64"
{more}
network = {network}
[algorithm]
{algorithm}
[sites]
{sites}
"""
INTERACT = """name = "interact"
alpha = 0.5
beta = 0.5"""
NAMES = ["north", "south", "west", "east", "centre"]
JOINS, LEAVES = "centre", "south"


class ChurningSites:
    """Four sites; the fifth joins at one round, the second leaves at another."""

    def __init__(
        self,
        folder,
        rounds,
        join,
        leave,
        every=10,
        algorithm=INTERACT,
        more="",
        network='"ring:{agents}"',
    ):
        self.folder, self.rounds, self.join, self.leave = Path(folder), rounds, join, leave
        self.processes, self.results, self.kills = {}, {}, 0
        self.wrappers = {}  # commands by which a site is run, once
        self.options = []  # more words of `net start`
        places = dict(zip(NAMES, (f"127.0.0.1:{port}" for port in ports(5))))
        members = {"trial": NAMES[:4], "joined": NAMES, "left": [n for n in NAMES if n != LEAVES]}
        for name, sites in members.items():
            listed = "\n".join(f'{site} = "{places[site]}"' for site in sites)
            fixed = {"rounds": rounds, "every": every, "algorithm": algorithm, "more": more}
            fixed["network"] = network.replace("{agents}", str(len(sites)))
            (self.folder / f"{name}.toml").write_text(FEDERATION.format(**fixed, sites=listed))
        (self.folder / "mine.py").write_text(PROBLEM)
        for i, name in enumerate(NAMES):
            rows = np.random.default_rng(i).normal(i, 1, (20, 3))
            np.save(self.folder / f"{name}.npy", rows)
        self.command("init", self.folder / "trial.toml", "--out", self.authority)
        self.bundles = {name: self.folder / "bundles" / name for name in NAMES}
        for name in NAMES[:4]:
            shutil.copytree(self.authority / name, self.bundles[name])

    @property
    def authority(self):
        return self.folder / "authority"

    def command(self, *words, check=True):
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            [sys.executable, "-m", "diamond", "net", *map(str, words)],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def start(self, name):
        words = ["net", "start", self.bundles[name], "--problem", f"{self.folder / 'mine.py'}:make"]
        words += ["--data", self.folder / f"{name}.npy", "--out", self.folder / "runs", "--json"]
        words += self.options
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        environment["XDG_CACHE_HOME"] = str(self.folder / "cache")
        with (self.folder / f"{name}.txt").open("ab") as log:
            command = [*self.wrappers.pop(name, ()), sys.executable, "-m", "diamond"]
            self.processes[name] = subprocess.Popen(
                [*map(str, [*command, *words]), "--connect", "2"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )

    def sign(self, file, from_round):
        """Sign a change; return its roster, for `deliver`."""
        options = "--from-round", from_round, "--json"
        done = self.command("change", self.authority, self.folder / f"{file}.toml", *options)
        for name in json.loads(done.stdout)["bundles"]:
            shutil.copytree(self.authority / name, self.bundles[name])
        return {
            name: (self.authority / name).read_bytes() for name in ("roster.json", "roster.sig")
        }

    def deliver(self, roster, site):
        """Copy the files of a roster into the bundle of one site."""
        for name, content in roster.items():
            (self.bundles[site] / name).write_bytes(content)

    def round_of(self, name):
        """The last round in the site's measurements."""
        try:
            lines = (self.folder / "runs" / "trial" / name / "metrics.jsonl").read_text()
            return json.loads(lines.splitlines()[-1])["round"]
        except (OSError, IndexError, ValueError, KeyError):
            return -1

    def kill(self, name):
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].communicate()
        self.kills += 1
        self.start(name)

    def wait(self, seconds, every_kill=None, actions=(), seed=0):
        """Wait for all sites to end; kill one whenever the run has made that many rounds more.

        `actions` are (round, function), called once when a site has measured that round.
        """
        generator, limit, next_kill = random.Random(seed), time.monotonic() + seconds, every_kill
        actions = list(actions)
        while len(self.results) < len(self.processes):
            for name, process in self.processes.items():
                if name not in self.results and process.poll() == -signal.SIGKILL:
                    process.communicate()
                    self.kills += 1  # by its wrapper
                    self.start(name)
                elif name not in self.results and process.poll() is not None:
                    assert process.returncode == 0, (
                        name,
                        (self.folder / f"{name}.txt").read_text()[-2000:],
                    )
                    self.results[name] = json.loads(process.communicate()[0])
            now = max(self.round_of(name) for name in self.processes)
            while actions and now >= actions[0][0]:
                actions.pop(0)[1]()
            running = [n for n in self.processes if n not in self.results]
            if next_kill is not None and now >= next_kill and now < self.rounds and running:
                self.kill(generator.choice(running))
                next_kill = now + every_kill
            if time.monotonic() > limit:
                raise TimeoutError(f"still running: {running}")
            time.sleep(0.02)

    def stop(self):
        for name, process in self.processes.items():
            if name not in self.results:
                process.kill()
                process.communicate()

    def simulate(self):
        """The same run in one process."""
        members = {0: [0, 1, 2, 3], self.join: [0, 1, 2, 3, 4], self.leave: [0, 2, 3, 4]}
        files = ("trial.toml", "joined.toml", "left.toml")
        networks = dict(zip(members, (load(self.folder / f).build_network() for f in files)))
        return self.run_alone(
            range(5), diamond.network.changing(networks, members=members), self.rounds
        )

    def least_loss(self):
        """The least objective of the sites that stay."""
        run = self.run_alone([0, 2, 3, 4], diamond.network.ring(4), 1000)
        return float(run.history["upper_loss"][-1])

    def run_alone(self, agents, network, rounds):
        """A run of these sites in one process."""
        space = {}
        exec(PROBLEM, space)
        rows = [np.load(self.folder / f"{NAMES[i]}.npy") for i in agents]
        algorithm = load(self.folder / "trial.toml").algorithm.build()
        with jax.enable_x64(True):
            start = lambda key: (jnp.zeros(3), jnp.zeros(3))
            valid = [2 * part[::-1] for part in rows]
            problem = diamond.Problem(space["f"], space["g"], start, rows, valid)
            return diamond.simulate(problem, network, algorithm, rounds, every=rounds)

    def x(self, name):
        """The last x of a site."""
        first = self.join if name == LEAVES else self.leave
        place = self.folder / "runs" / "trial" / name / f"epoch-{first}" / "checkpoint"
        return checkpoint_file.load_newest(place).arrays[".state.x"]

    def tracker_gaps(self):
        """|sum u - sum p| over the members after the last round of every epoch."""
        gaps = {}
        for first, end in ((0, self.join), (self.join, self.leave), (self.leave, self.rounds)):
            names = [
                n for n in NAMES if (n != JOINS or first) and (n != LEAVES or first < self.leave)
            ]
            folders = [self.folder / "runs" / "trial" / name for name in names]
            places = [folder / f"epoch-{first}" if first else folder for folder in folders]
            arrays = [checkpoint_file.load(place / "checkpoint", end).arrays for place in places]
            u, p = (sum(a[f".state.{key}.x"] for a in arrays) for key in ("memory", "old"))
            gaps[end] = float(np.abs(u - p).max())
        return gaps

    def digests(self, run):
        """The digest of x of each site."""
        x = np.asarray(run.last_x)
        return {name: hashlib.sha256(x[i].tobytes()).hexdigest() for i, name in enumerate(NAMES)}
