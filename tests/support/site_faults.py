"""Sites as real processes over mutual TLS, with every link through a proxy, and faults to them."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

import numpy as np
from proxy import Proxy

from diamond import network
from diamond.sites.identity import certificate_authority

NAMES = ["north", "south", "west"]  # a path: the one in the middle is the victim
VICTIM = "south"
ROUNDS, EVERY, FAULT_ROUND = 9, 2, 4  # faults begin after LATER rounds
SIZE = 20_000  # numbers in x; a message has twice as many
OUTAGE_SECONDS = 1.5  # seconds that a stop, a stall, a cut or a death lasts
PROBLEM = f"""
import jax.numpy as jnp
import numpy as np
import diamond


def f(x, y, rows):
    return jnp.mean((y - rows) ** 2) + 0.1 * jnp.mean(x**2)


def g(x, y, rows):
    return jnp.mean(0.5 * (y - rows) ** 2 * (1 + 0.1 * jnp.tanh(x[:3]))) + 0.1 * y @ x[-3:]


def make(data: str):
    rows = np.load(data)
    start = lambda key: (jnp.linspace(-1, 1, {SIZE}), jnp.zeros(3))
    return diamond.Problem(f, g, start, [rows], [rows[::-1].copy()])
"""
ALGORITHM = {
    "name": "gt_sgd",
    "alpha": 0.05,
    "beta": 0.2,
    "batch": 4,
    "order": "paper",
    "hypergradient": {"name": "neumann", "terms": 3, "lipschitz": 1.6},
}
TERMS = {"rounds": ROUNDS, "every": EVERY, "seed": 0, "sampling": "blocks", "precision": "float32"}
PHASES = {
    "before": "outgoing_arrays",
    "transfer": "outgoing_arrays",
    "after": "finish_exchange",
    "checkpoint": "checkpoint",
}
PROCESS_FAULTS = ["kill", "stop", "old checkpoint"]
LINK_FAULTS = ["cut", "stall", "delay", "duplicate", "reorder", "truncate", "corrupt"]
LIMITS = {"--connect": 1, "--round": 4, "--give-up": 90}  # seconds


def ports(count):
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def found_site_federation(folder, addresses, terms=None, problem=PROBLEM):
    """A federation on a path, a problem, and rows for each site."""
    count = len(addresses)
    graph = {"graph": "path", "agents": count}
    terms = TERMS | {"network": graph, "algorithm": ALGORITHM} | (terms or {})
    certificate_authority.create_federation(
        folder / "trial", "trial", addresses, network.path(count), terms
    )
    (folder / "mine.py").write_text(problem)
    for i, name in enumerate(addresses):
        rows = np.random.default_rng(i).normal(i, 1, (20 + i, 3)).astype(np.float32)
        np.save(folder / f"{name}.npy", rows)


class Site:
    """One process after another, all of the same site; `wrapper` is a command to run it by."""

    def __init__(self, trial, name, listen, wrapper=()):
        self.trial, self.name, self.listen, self.wrapper = trial, name, listen, wrapper
        self.folder = trial.folder / "runs" / "trial" / name
        self.log = trial.folder / f"{name}.txt"

    async def start(self, phase="", on_phase=None):
        """`on_phase` is awaited while the process waits in the phase."""
        (signal_out, out), (back, answer) = os.pipe(), os.pipe()
        limits = [word for name, s in LIMITS.items() for word in (name, s * self.trial.patience)]
        words = ["net", "start", self.trial.folder / "trial" / self.name, "--json", *limits]
        words += ["--problem", f"{self.trial.folder / 'mine.py'}:make", "--data"]
        words += [self.trial.folder / f"{self.name}.npy", "--out", self.trial.folder / "runs"]
        words += ["--listen", self.listen]
        driver = [Path(__file__).with_name("paused_site.py"), phase, FAULT_ROUND, out, back]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *map(str, [*self.wrapper, sys.executable, *driver, *words]),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                pass_fds=(out, back),
                env={**os.environ, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(self.trial.cache)},
            )
        os.close(out), os.close(back)
        self.paused = asyncio.ensure_future(self._pause(signal_out, answer, on_phase))

    async def _pause(self, signal_out, answer, on_phase):
        if await asyncio.to_thread(os.read, signal_out, 1) and on_phase:
            await on_phase()
        with contextlib.suppress(OSError):
            os.write(answer, b".")
        os.close(signal_out), os.close(answer)

    async def kill(self):
        """SIGKILL, and the end of it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.communicate()

    async def wait_for_end(self, seconds=120):
        """What the site says in the end."""
        output, _ = await asyncio.wait_for(
            self.process.communicate(), seconds * self.trial.patience
        )
        assert self.process.returncode == 0, self.log.read_text()
        return json.loads(output)


class Trial:
    """Sites on a path, one fault; `cache` keeps what was compiled from one trial to the next.

    `patience`: how many times as long as usual anything may take, where the machine is slow.
    """

    def __init__(self, folder, cache, terms=None, patience=1, names=NAMES, problem=PROBLEM):
        self.folder, self.cache, self.patience = folder, cache, patience
        all_ports = ports(2 * len(names))
        self.fronts, behind = all_ports[: len(names)], all_ports[len(names) :]
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, self.fronts)}
        found_site_federation(folder, addresses, terms, problem)
        self.sites = {
            name: Site(self, name, f"127.0.0.1:{port}") for name, port in zip(names, behind)
        }
        self.proxies = [Proxy(port) for port in behind]
        self.deaths = 0

    async def __aenter__(self):
        for proxy, front in zip(self.proxies, self.fronts):
            await proxy.start(front)
        return self

    async def __aexit__(self, *error):
        for site in self.sites.values():
            await site.kill()
        for proxy in self.proxies:
            await proxy.close()

    async def inject(self, kind):
        """Do it to the victim, or to its links, and undo it after a while."""
        victim = self.sites[VICTIM]
        if kind in LINK_FAULTS:
            for proxy in self.proxies:
                proxy.set_fault(kind)
        elif kind == "stop":
            victim.process.send_signal(signal.SIGSTOP)
            self.deaths += 1
        else:
            await victim.kill()
            self.deaths += 1
        if kind == "old checkpoint":
            newest = max(victim.folder.glob("checkpoint/*.json"))
            newest.write_bytes(newest.read_bytes()[:-9])
        self.undoing = asyncio.ensure_future(self._undo(kind))

    async def _undo(self, kind):
        victim = self.sites[VICTIM]
        await asyncio.sleep(OUTAGE_SECONDS)
        if kind in ("cut", "stall"):
            for proxy in self.proxies:
                proxy.set_fault("")
        elif kind == "stop":
            victim.process.send_signal(signal.SIGCONT)
        elif kind in PROCESS_FAULTS:
            await victim.start()

    async def inject_in_transfer(self, kind):
        """Once half a message has left the victim."""
        proxy, now = self.proxies[NAMES.index(VICTIM)], asyncio.Event()

        def on_bytes(count):
            if count > 4 * SIZE:
                now.set()
                proxy.on_response = None

        async def inject():
            await now.wait()
            await self.inject(kind)

        proxy.watch_responses(on_bytes)
        self.injecting = asyncio.ensure_future(inject())


async def run_trial(folder, cache, kind="", phase="", patience=1):
    """The digests of x in which the sites end, with that fault; it must have met something."""
    async with Trial(folder, cache, patience=patience) as trial:

        async def now():
            await (trial.inject_in_transfer if phase == "transfer" else trial.inject)(kind)

        for name, site in trial.sites.items():
            struck = kind and name == VICTIM
            await site.start(*(PHASES[phase], now) if struck else ())
        if kind:
            await trial.sites[VICTIM].paused
            if phase == "transfer":
                await trial.injecting
            await trial.undoing
            assert (
                trial.deaths
                if kind in PROCESS_FAULTS
                else sum(p.fault_count for p in trial.proxies)
            )
        ends = [await site.wait_for_end() for site in trial.sites.values()]
    assert [end["round"] for end in ends] == [ROUNDS] * len(NAMES)
    return [end["x"] for end in ends]
