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
from ..records import checkpoint_file
from ..sites.identity.certificate_authority import create_federation
from . import demo_experiment

NAME, SITES, KILLED_SITE = "demo-peers", ("north", "east", "south", "west", "centre"), "south"
ROUNDS, EVERY = 100, 10
CHAIN = {"name": "neumann", "terms": demo_experiment.TERMS}  # the sites estimate L_g
MESSAGE_SECONDS = 10.0  # seconds between messages about what is awaited
PARTS = ("train", "valid", "test")
SITE = '''"""Problem that every site of this demo solves, on its own rows."""

import numpy as np

import diamond


def make(data: str) -> diamond.Problem:
    rows = np.load(data)
    part = lambda name: [{"a": rows[name + "_a"], "b": rows[name + "_b"]}]
    return diamond.gallery.meta_learning(part("train"), part("valid"), part("test"))
'''


class DemoPoint(NamedTuple):
    """Levels of all agents."""

    x: Any
    y: Any


class SiteFailed(RuntimeError):
    """Error: a site did not finish."""


class SitesDemo:
    """Federation below `out`, and its running processes."""

    def __init__(self, out: Path, on_message: Callable[[str], None]):
        self.on_message, self.out, self.folder = on_message, out, out / NAME
        self.federation_folder = self.folder / "federation"
        self.rows = partition_digits(len(SITES))  # training, validation and test rows
        self.federation = _make_federation()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def write_files(self) -> None:
        """Create the federation, and write the files of each site."""
        if (self.federation_folder / "bundles").exists():
            shutil.rmtree(self.folder)  # of an earlier demo
        self.federation_folder.mkdir(parents=True)
        (self.federation_folder / "site.py").write_text(SITE)
        for i, name in enumerate(SITES):
            site_rows = {part: rows[i] for part, rows in zip(PARTS, self.rows)}
            columns = {f"{part}_{k}": rows[k] for part, rows in site_rows.items() for k in "ab"}
            np.savez(self.federation_folder / f"{name}.npz", **columns)
        federation = self.federation
        create_federation(
            self.federation_folder / "bundles",
            federation.name,
            federation.sites,
            federation.build_network(),
            federation.terms(),
        )

    def run(self) -> None:
        """Run all sites to the end; kill and restart one of them."""
        try:
            for name in SITES:
                self._start(name)
            half = ROUNDS // 2
            self._wait_until(
                lambda: self._saved_round(KILLED_SITE) >= half,
                f"{KILLED_SITE} to reach round {half}",
            )
            self.processes[KILLED_SITE].send_signal(signal.SIGKILL)
            self.processes[KILLED_SITE].wait()
            self.on_message(
                f"{KILLED_SITE} killed (kill -9) after round {self._saved_round(KILLED_SITE)}; "
                f"started again"
            )
            self._start(KILLED_SITE)
            all_finished = lambda: all(process.poll() == 0 for process in self.processes.values())
            self._wait_until(all_finished, "all to finish")
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()

    def difference(self) -> float:
        """Return the largest difference from the simulation, relative to the largest entry."""
        federation = self.federation
        problem = meta_learning(*self.rows)
        run = simulate(
            problem,
            federation.build_network(),
            federation.algorithm.build(),
            federation.rounds,
            federation.seed,
            federation.rounds,
            federation.sampling,
        )
        ends, differences = [self._final_arrays(site) for site in SITES], []
        for name, expected in pytrees.named_leaves(DemoPoint(run.last_x, run.last_y)).items():
            values = np.stack([end[f".state{name}"] for end in ends])
            differences.append(np.abs(values - expected).max() / np.abs(expected).max())
        return float(max(differences))

    def _start(self, name: str) -> None:
        folder = self.federation_folder
        options = ["--connect", "2", "--json", "--out", str(self.out)]
        options += [
            "--problem",
            f"{folder / 'site.py'}:make",
            "--data",
            str(folder / f"{name}.npz"),
        ]
        command = [sys.executable, "-m", "diamond", "net", "start", str(folder / "bundles" / name)]
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}  # a GPU serves one process
        with (folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, env=environment
            )

    def _wait_until(self, is_done: Callable[[], bool], awaited: str) -> None:
        """Wait without limit: on a busy machine, compiling alone may take minutes."""
        last_message = time.monotonic()
        while not is_done():
            for name, process in self.processes.items():
                if process.poll() not in (None, 0):
                    raise SiteFailed(f"{name} failed; see {self.federation_folder / f'{name}.log'}")
            if time.monotonic() - last_message > MESSAGE_SECONDS:
                last_message = time.monotonic()
                self.on_message(f"waiting for {awaited}: {self._describe_rounds()}")
            time.sleep(0.05)

    def _describe_rounds(self) -> str:
        """Describe the round of each site's last checkpoint."""
        rounds = {name: self._saved_round(name) for name in SITES}
        return ", ".join(f"{n} {f'round {t}' if t else 'compiling'}" for n, t in rounds.items())

    def _saved_round(self, name: str) -> int:
        return max(checkpoint_file.saved_rounds(self.folder / name / "checkpoint"), default=0)

    def _final_arrays(self, name: str) -> dict[str, Any]:
        arrays: dict[str, Any] = checkpoint_file.load(
            self.folder / name / "checkpoint", ROUNDS
        ).arrays
        return arrays


def _make_federation() -> Federation:
    ports = _free_ports(len(SITES))
    terms = {
        "name": NAME,
        "rounds": ROUNDS,
        "every": EVERY,
        "network": "ring:5",
        "algorithm": {**demo_experiment.algorithm_table("DIAMOND"), "hypergradient": CHAIN},
        "sites": {name: f"127.0.0.1:{port}" for name, port in zip(SITES, ports)},
    }
    return validate(terms, "the demo")


def _free_ports(count: int) -> list[int]:
    """Return free ports of this machine."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports
