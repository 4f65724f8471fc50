"""Digits at five sites: real processes on this machine, one killed and started again.

Everything is as it would be between five hospitals, but for the addresses: an authority, a bundle
and rows for each site, one process a site, mutual TLS. What they come to is compared with
`diamond.simulate`, which has all rows in one process.
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
from ..config.federation import Federation, read
from ..core import tree
from ..engine.simulate import simulate
from ..peers.authority import found_federation
from ..problems import meta_learning
from ..runs import checkpoint
from . import demo

NAME, SITES, VICTIM = "demo-peers", ("north", "east", "south", "west", "centre"), "south"
ROUNDS, EVERY = 100, 10
CHAIN = {"name": "neumann", "terms": demo.TERMS}  # L_g is found by the sites
SILENCE = 10.0  # seconds between words on what is waited for
PARTS = ("train", "valid", "test")
SITE = '''"""What every site of this demo runs: its own rows, the problem of all."""

import numpy as np

import diamond


def make(data: str) -> diamond.Problem:
    rows = np.load(data)
    part = lambda name: [{"a": rows[name + "_a"], "b": rows[name + "_b"]}]
    return diamond.problems.meta_learning(part("train"), part("valid"), part("test"))
'''


class Levels(NamedTuple):
    """Of all agents."""

    x: Any
    y: Any


class Failed(RuntimeError):
    """A site that did not come to its end."""


class Demo:
    """The federation below `out`, and its processes while they run."""

    def __init__(self, out: Path, say: Callable[[str], None]):
        self.say, self.out, self.folder = say, out, out / NAME
        self.place = self.folder / "federation"
        self.rows = partition_digits(len(SITES))  # of training, validation and test
        self.federation = _federation()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def lay(self) -> None:
        """Found the federation; write what each site has of its own."""
        if (self.place / "bundles").exists():
            shutil.rmtree(self.folder)  # of the last time
        self.place.mkdir(parents=True)
        (self.place / "site.py").write_text(SITE)
        for i, name in enumerate(SITES):
            own = {part: rows[i] for part, rows in zip(PARTS, self.rows)}
            columns = {f"{part}_{k}": rows[k] for part, rows in own.items() for k in "ab"}
            np.savez(self.place / f"{name}.npz", **columns)
        one = self.federation
        found_federation(self.place / "bundles", one.name, one.sites, one.graph(), one.terms())

    def run(self) -> None:
        """All sites to their end, one of them by way of a kill."""
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
        """The largest difference of any array's entry from the simulated one, by the largest."""
        one = self.federation
        fixed = one.graph(), one.algorithm.build(), one.rounds
        whole = meta_learning(*self.rows)
        run = simulate(whole, *fixed, one.seed, one.rounds, one.sampling)
        ends, gaps = [self._end(site) for site in SITES], []
        for name, wanted in tree.named(Levels(run.x, run.y)).items():
            found = np.stack([end[f".state{name}"] for end in ends])
            gaps.append(np.abs(found - wanted).max() / np.abs(wanted).max())
        return float(max(gaps))

    def _start(self, name: str) -> None:
        words = ["net", "start", str(self.place / "bundles" / name), "--connect", "2", "--json"]
        words += ["--problem", f"{self.place / 'site.py'}:make", "--out", str(self.out)]
        words += ["--data", str(self.place / f"{name}.npz")]
        alone = os.environ | {"JAX_PLATFORMS": "cpu"}  # five processes would fight over a GPU
        with (self.place / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "diamond", *words], stdout=log, stderr=log, env=alone
            )

    def _until(self, done: Callable[[], bool], what: str) -> None:
        """Wait as long as it takes: on a busy machine compiling alone may take minutes."""
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
        """Where each site stands, by its last checkpoint."""
        at = {name: self._round(name) for name in SITES}
        return ", ".join(f"{n} {f'round {t}' if t else 'compiling'}" for n, t in at.items())

    def _round(self, name: str) -> int:
        return max(checkpoint.rounds(self.folder / name / "checkpoint"), default=0)

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
        "algorithm": {**demo.algorithm("DIAMOND"), "hypergradient": CHAIN},
        "sites": {name: f"127.0.0.1:{port}" for name, port in zip(SITES, ports)},
    }
    return read(terms, "the demo")


def _free(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
