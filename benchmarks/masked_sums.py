"""Masked sums beside plain messages: `python benchmarks/masked_sums.py [--repeats N] [--sites N]`.

Sites as real processes over mutual TLS, on a ring, GT-SGD in the paper's order:

    time       milliseconds of a round and processor time of a site, with and without, in turns
    bytes      that pass between the sites, counted by forwarders on every connection
    result     relative distance of the final x, with and without; of fixed point by itself too
    kill       kill -9 of a site in the middle, again and again: digests of x are those without

and in one process, with the frames that a receiver gets: a chi-square test of the bytes of single
messages, masked and not, and the error of fixed-point sums beside their bound.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from peers import HERE, METHOD, environment, make_bundles, ports, problems, run_sites
from scipy.stats import chisquare

import diamond
from diamond.core.sampling import ExchangeId, key
from diamond.engine.site_rehearsal import rehearse
from diamond.network.mixing.lossy_mixer import make_mixer
from diamond.records import checkpoint_file
from diamond.sites.transport.in_process_transport import InProcessNetwork
from diamond.sites.transport.wire_format import unpack

PROBLEM = """
import jax.numpy as jnp
import numpy as np
import diamond


def f(x, y, rows):
    target = jnp.mean(rows) * jnp.sin(jnp.arange(x.size))  # another one at every site
    return jnp.mean((y - rows) ** 2) + 0.5 * x @ x - target @ x


def g(x, y, rows):
    return jnp.mean(0.5 * (y - rows) ** 2 * (1 + 0.1 * jnp.tanh(x[:3]))) + 0.1 * y @ x[-3:]


def make(site: int, size: int):
    rows = np.random.default_rng(site).normal(site, 1, (64, 3)).astype(np.float32)
    start = lambda key: (jnp.linspace(-1, 1, size), jnp.zeros(3))
    return diamond.Problem(f, g, start, [rows], [rows])
"""
WAYS = {"plain": "", "masked": "masked = true\n"}
KILL_ROUNDS, KILLS = 60, 3


def compare_times(root: Path, sites: int, size: int, rounds: int, repeats: int) -> None:
    """Milliseconds of a round, in turns: the quickest, and the median of the ratios."""
    times: dict[str, list] = {way: [] for way in WAYS}
    for turn in range(repeats):
        for way in list(WAYS)[:: 1 if turn % 2 == 0 else -1]:
            times[way].append(run_sites(root, sites, size, rounds, more=WAYS[way])[0])
    best = {way: min(found) for way, found in times.items()}
    ratios = [m[0] / p[0] for m, p in zip(times["masked"], times["plain"])]
    work = min(t[1] for t in times["masked"]) / min(t[1] for t in times["plain"])
    print(
        f"time of a round, {size // 1000} kB: plain {1000 * best['plain'][0]:.3g} ms, masked "
        f"{1000 * best['masked'][0]:.3g} ms; quickest {best['masked'][0] / best['plain'][0]:.2f}, "
        f"median of {repeats} turns {np.median(ratios):.2f}; processor {work:.2f}",
        flush=True,
    )


class Forwarder(threading.Thread):
    """Forwards connections from one port to another, and counts the bytes."""

    def __init__(self, routes: dict[int, int]):
        super().__init__(daemon=True)
        self.routes, self.bytes, self.ready = routes, 0, threading.Event()

    def run(self) -> None:
        asyncio.run(self.serve())

    async def serve(self) -> None:
        for port, target in self.routes.items():
            await asyncio.start_server(self.accept(target), "127.0.0.1", port)
        self.ready.set()
        await asyncio.Event().wait()

    def accept(self, target: int):
        async def forward(reader, writer):
            try:
                onward, back = await asyncio.open_connection("127.0.0.1", target)
            except OSError:
                writer.close()
                return
            await asyncio.gather(self.pump(reader, back), self.pump(onward, writer))

        return forward

    async def pump(self, reader, writer) -> None:
        with contextlib.suppress(ConnectionError):
            while content := await reader.read(2**16):
                self.bytes += len(content)
                writer.write(content)
                await writer.drain()
        writer.close()


class Federation:
    """Sites as processes, each of which can be killed and started again."""

    def __init__(self, root: Path, sites: int, size: int, rounds: int, more: str, counted: bool):
        self.root, self.folder = root, Path(tempfile.mkdtemp(dir=root)) / "run"
        self.bundles = make_bundles(root, self.folder, sites, rounds, HERE, more=more)
        text = (self.folder / "trial.toml").read_text()
        listed = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", text)]
        self.listen = ports(sites) if counted else listed
        self.forwarder = None
        if counted:
            self.forwarder = Forwarder(dict(zip(listed, self.listen)))
            self.forwarder.start()
            assert self.forwarder.ready.wait(10)
        for i in range(sites):
            own = f"\n\ndef own():\n    return make({i}, {size // 8})\n"
            (self.folder / f"site{i}.py").write_text(PROBLEM + own)
        self.processes = [self.start(i) for i in range(sites)]

    def start(self, i: int) -> subprocess.Popen:
        words = ["-m", "diamond", "net", "start", self.bundles[i], "--quiet", "--out", self.folder]
        words += ["--problem", f"{self.folder / f'site{i}.py'}:own"]
        words += ["--listen", f"127.0.0.1:{self.listen[i]}", "--connect", "2"]
        env = environment(self.root, HERE)
        with (self.folder / f"site{i}.txt").open("ab") as log:
            command = [sys.executable, *map(str, words)]
            return subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=self.root)

    def metrics(self, i: int) -> Path:
        return self.folder / "trial" / f"site{i}" / "metrics.jsonl"

    def await_round(self, i: int, round: int) -> None:
        """Wait until a site has written the measures of that round."""
        until = time.monotonic() + 120
        pattern = f'"round": {round}[,}}]'
        while not (path := self.metrics(i)).exists() or not re.search(pattern, path.read_text()):
            assert time.monotonic() < until, (self.folder / f"site{i}.txt").read_text()
            time.sleep(0.005)

    def finish(self) -> tuple[list[str], np.ndarray]:
        """Wait for the end; return the digests of x, and x of all sites."""
        while None in (codes := [process.poll() for process in self.processes]) and not any(codes):
            time.sleep(0.05)
        for process in self.processes:
            process.kill()  # after a failure, the other sites would wait for that site
            process.wait()
        logs = [(self.folder / f"site{i}.txt").read_text() for i in range(len(codes))]
        assert not any(codes), logs
        x = []
        for i in range(len(codes)):
            arrays = checkpoint_file.load_newest(self.metrics(i).parent / "checkpoint").arrays
            x.append(next(a for name, a in arrays.items() if name.startswith(".state.x")))
        shutil.rmtree(self.folder)
        return [log.rsplit("sha256 of x ", 1)[1].strip() for log in logs], np.stack(x)


def compare_bytes(root: Path, sites: int, size: int, rounds: int) -> None:
    """Bytes on the connections, and the distance of the results."""
    counted, ends = {}, {}
    for way, more in WAYS.items():
        federation = Federation(root, sites, size, rounds, more, counted=True)
        _, ends[way] = federation.finish()
        counted[way] = federation.forwarder.bytes
    distance = np.linalg.norm(ends["plain"] - ends["masked"]) / np.linalg.norm(ends["plain"])
    print(
        f"bytes on the connections, {size / 1000:g} kB, {rounds} rounds: "
        f"{counted['plain'] / 1e6:.2f} MB, masked {counted['masked'] / 1e6:.2f} MB, "
        f"{counted['masked'] / counted['plain']:.3f} times"
    )
    print(f"relative distance of the final x, masked to plain: {distance:.2g}", flush=True)


def compare_kills(root: Path, sites: int, size: int) -> None:
    """Digests of x with and without kill -9 of a site, at several rounds."""
    undisturbed, _ = Federation(
        root, sites, size, KILL_ROUNDS, WAYS["masked"], counted=False
    ).finish()
    federation = Federation(root, sites, size, KILL_ROUNDS, WAYS["masked"], counted=False)
    for k in range(1, KILLS + 1):
        victim = k % sites
        federation.await_round(victim, KILL_ROUNDS * k // (KILLS + 1) // 6 * 6)
        federation.processes[victim].kill()
        federation.processes[victim].wait()
        federation.processes[victim] = federation.start(victim)
    disturbed, _ = federation.finish()
    verdict = "the same bits" if undisturbed == disturbed else "OTHER BITS"
    print(f"kill -9 of {KILLS} sites in {KILL_ROUNDS} rounds, each resumed: {verdict}", flush=True)


class Wire(InProcessNetwork):
    """A wire that collects the messages which agent 0 gets from agent 1."""

    collected: ClassVar[list] = []

    async def deliver(self, hop, content):
        if hop.is_response and (hop.sender, hop.receiver) == (0, 1) and len(content) > 10_000:
            header, arrays = unpack(content, 10**9)
            Wire.collected.append((header["arrays"], bytes(arrays)))
        return await super().deliver(hop, content)


def measure_uniformity(sites: int, size: int, rounds: int) -> None:
    """Chi-square test of the bytes of single messages, as a receiver gets them."""
    from diamond.engine import site_rehearsal

    site_rehearsal.InProcessNetwork = Wire
    for way, network in {"plain": ring(sites), "masked": ring(sites).masked()}.items():
        Wire.collected = []
        rehearse(problems(sites, size), network, METHOD, rounds)
        content = np.frombuffer(b"".join(arrays for _, arrays in Wire.collected), np.uint8)
        width = 8 if way == "masked" else 4
        columns = content.reshape(-1, width)
        values = [chisquare(np.bincount(c, minlength=256)).pvalue for c in columns.T]
        first, last = (np.frombuffer(Wire.collected[i][1], np.uint8) for i in (0, -1))
        repeated = np.mean(first == last)
        print(
            f"{len(Wire.collected)} single messages, {way}: {len(content)} bytes, smallest "
            f"p-value of {width} chi-square tests {min(values):.3g}; equal bytes of the first and "
            f"the last message {repeated:.4f} (1/256 = {1 / 256:.4f})",
            flush=True,
        )


def ring(sites: int) -> diamond.network.Network:
    return diamond.network.ring(sites)


def measure_rounding() -> None:
    """Error of the change of one exchange, in fixed point and in float32, against float64."""
    network, random = diamond.network.torus(4, 4), np.random.default_rng(0)
    exchange = ExchangeId(key(0), jnp.int32(0))
    for scale in (1e-6, 1e-3, 1.0, 1e3, 1e5):
        x = (scale * random.normal(size=(network.agents, 10_000))).astype(np.float32)
        exact = network.matrix @ x.astype(np.float64) - x
        errors = []
        for variant in (network, network.masked()):
            found = np.asarray(make_mixer(variant).exchange(x, exchange, None)[0], np.float64)
            errors.append(abs(found - exact).max() / abs(exact).max())
        far = 2 * abs(x).max()
        bound = 4 * ((0.25 + 1) * 2.0**-41 + 2.0**-33 * far) + 2.0**-23 * abs(exact).max()
        print(
            f"largest error of a change, messages of size {scale:g}: float32 {errors[0]:.2g}, "
            f"fixed point {errors[1]:.2g}, bound {bound / abs(exact).max():.2g} (relative)"
        )


def main() -> None:
    """All figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--size", type=int, default=100_000, help="bytes of a plain message")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["rounding", "view", "bytes", "kills", "time"])
    options = parser.parse_args()
    sites, size = options.sites, options.size
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}; ring of {sites}")
    with tempfile.TemporaryDirectory() as folder:
        root, rounds = Path(folder), options.rounds
        parts = {
            "rounding": measure_rounding,
            "view": lambda: measure_uniformity(sites, size, 20),
            "bytes": lambda: compare_bytes(root, sites, size, rounds),
            "kills": lambda: compare_kills(root, sites, size),
            "time": lambda: compare_times(root, sites, size, rounds, options.repeats),
        }
        for name, measure in parts.items():
            if options.only in (None, name):
                measure()


if __name__ == "__main__":
    main()
