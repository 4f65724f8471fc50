"""Demo of five sites: real processes on this machine, one killed and restarted.

Except for the addresses, everything is as between five hospitals: an authority, a bundle and rows
for each site, one process per site, mutual TLS. The result is compared with `diamond.simulate`,
which has all rows in one process.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..config.digits import partition_digits
from ..config.federation_file import Federation, validate
from ..core import pytrees
from ..engine.simulate import simulate
from ..gallery import meta_learning
from ..peers.certificate_authority import create_federation
from ..records import checkpoint
from . import demo_experiment

NAME, SITES, VICTIM = "demo-peers", ("north", "east", "south", "west", "centre"), "south"
ROUNDS, EVERY = 100, 10
CHAIN = {"name": "neumann", "terms": demo_experiment.TERMS}  # the sites estimate L_g
SILENCE = 10.0  # seconds between messages about what is awaited
PARTS = ("train", "valid", "test")
SITE = '''"""What every site of this demo runs: its own rows, the problem of all."""

import numpy as np

import diamond


def make(data: str) -> diamond.Problem:
    rows = np.load(data)
    part = lambda name: [{"a": rows[name + "_a"], "b": rows[name + "_b"]}]
    return diamond.gallery.meta_learning(part("train"), part("valid"), part("test"))
'''


class Levels(NamedTuple):
    """Levels of all agents."""

    x: Any
    y: Any


class Failed(RuntimeError):
    """Error: a site did not finish."""


class Demo:
    """Federation below `out`, and its running processes."""

    def __init__(self, out: Path, say: Callable[[str], None]):
        self.say, self.out, self.folder = say, out, out / NAME
        self.place = self.folder / "federation"
        self.rows = partition_digits(len(SITES))  # training, validation and test rows
        self.federation = _federation()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def lay(self) -> None:
        """Found the federation, and write the files of each site."""
        if (self.place / "bundles").exists():
            shutil.rmtree(self.folder)  # of an earlier demo
        self.place.mkdir(parents=True)
        (self.place / "site.py").write_text(SITE)
        for i, name in enumerate(SITES):
            own = {part: rows[i] for part, rows in zip(PARTS, self.rows)}
            columns = {f"{part}_{k}": rows[k] for part, rows in own.items() for k in "ab"}
            np.savez(self.place / f"{name}.npz", **columns)
        one = self.federation
        create_federation(
            self.place / "bundles", one.name, one.sites, one.build_network(), one.terms()
        )

    def run(self) -> None:
        """Run all sites to the end; kill and restart one of them."""
        try:
            for name in SITES:
                self._start(name)
            half = ROUNDS // 2
            self._until(lambda: self._round(VICTIM) >= half, f"{VICTIM} to come to round {half}")
            self.processes[VICTIM].send_signal(signal.SIGKILL)
            self.processes[VICTIM].wait()
            self.say(f"{VICTIM} killed (kill -9) past round {self._round(VICTIM)}; started again")
            self._start(VICTIM)
            over = lambda: all(one.poll() == 0 for one in self.processes.values())
            self._until(over, "all to finish")
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()

    def difference(self) -> float:
        """Return the largest difference from the simulation, relative to the largest entry."""
        one = self.federation
        fixed = one.build_network(), one.algorithm.build(), one.rounds
        whole = meta_learning(*self.rows)
        run = simulate(whole, *fixed, one.seed, one.rounds, one.sampling)
        ends, gaps = [self._end(site) for site in SITES], []
        for name, wanted in pytrees.named_leaves(Levels(run.x, run.y)).items():
            found = np.stack([end[f".state{name}"] for end in ends])
            gaps.append(np.abs(found - wanted).max() / np.abs(wanted).max())
        return float(max(gaps))

    def _start(self, name: str) -> None:
        words = ["net", "start", str(self.place / "bundles" / name), "--connect", "2", "--json"]
        words += ["--problem", f"{self.place / 'site.py'}:make", "--out", str(self.out)]
        words += ["--data", str(self.place / f"{name}.npz")]
        alone = os.environ | {"JAX_PLATFORMS": "cpu"}  # five processes would compete for a GPU
        with (self.place / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "diamond", *words], stdout=log, stderr=log, env=alone
            )

    def _until(self, done: Callable[[], bool], what: str) -> None:
        """Wait without limit: on a busy machine, compiling alone may take minutes."""
        said = time.monotonic()
        while not done():
            for name, process in self.processes.items():
                if process.poll() not in (None, 0):
                    raise Failed(f"{name} failed; see {self.place / f'{name}.log'}")
            if time.monotonic() - said > SILENCE:
                said = time.monotonic()
                self.say(f"waiting for {what}: {self._standing()}")
            time.sleep(0.05)

    def _standing(self) -> str:
        """Describe the round of each site's last checkpoint."""
        at = {name: self._round(name) for name in SITES}
        return ", ".join(f"{n} {f'round {t}' if t else 'compiling'}" for n, t in at.items())

    def _round(self, name: str) -> int:
        return max(checkpoint.saved_rounds(self.folder / name / "checkpoint"), default=0)

    def _end(self, name: str) -> dict[str, Any]:
        arrays: dict[str, Any] = checkpoint.load(self.folder / name / "checkpoint", ROUNDS).arrays
        return arrays


def _federation() -> Federation:
    ports = _free(len(SITES))
    terms = {
        "name": NAME,
        "rounds": ROUNDS,
        "every": EVERY,
        "network": "ring:5",
        "algorithm": {**demo_experiment.algorithm("DIAMOND"), "hypergradient": CHAIN},
        "sites": {name: f"127.0.0.1:{port}" for name, port in zip(SITES, ports)},
    }
    return validate(terms, "the demo")


def _free(count: int) -> list[int]:
    """Return free ports of this machine."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
