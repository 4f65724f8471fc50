"""Agents as peers: one process a site, its own rows only, neighbours by mutual TLS, no server."""

import asyncio
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..core.sampling import Sampling
from ..core.whole_numbers import whole
from ..network import Network
from ..peers.agent import Agent, LocalMeasure
from ..peers.in_process import Wire, inline, play
from ..peers.node import Missing, Node
from ..peers.programs import CLIP_WARNING
from ..peers.progress import Progress
from ..peers.run_folder import SiteFolder
from ..peers.timeouts import Limits
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from ..runs.manifest import Origin
from ..runs.writable import room
from ..runs.writer import Writer


class Watch(Protocol):
    """Whoever wants to see how the run comes along."""

    def begin(self, node: Node) -> None: ...

    def ready(self) -> None: ...

    def progress(self, entries: list[dict[str, Any]]) -> None: ...


def run(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    bundle: Path,
    folder: Path,
    seed: int = 0,
    sampling: Sampling = "blocks",
    every: int = 10,
    limits: Limits = Limits(),
    watch: Watch | None = None,
    origin: Origin | None = None,
    config: str = "",
    listen: str | None = None,
    missing: Missing = "wait",
    clip: float | None = None,
    metrics: int | None = None,
    measure: LocalMeasure | None = None,
) -> Progress:
    """This site's part of a run, from its checkpoint in `folder` if there is one.

    `problem` has this site's rows only (lists of one entry); losses, start, `network`, `algorithm`,
    `rounds`, `seed` and `sampling` must be those of all sites, which is compared before round 0.
    Numbers that the algorithm leaves open are found by all sites together, each measuring on its
    own rows. `bundle` is the folder that the federation's authority made for this site: it says
    which agent this is, where it listens, and who its neighbours are. A checkpoint is written every
    `every` rounds; a site that was killed and is started again goes on from there while the others
    wait, and the end is that of a run without the crash, bit for bit. The trajectory is that of
    `diamond.simulate`, to rounding. `listen` is where to listen if that is not the address in the
    roster, as behind a mapped port. With `missing="continue"`, rounds are made without neighbours
    that have been silent for `limits.round` seconds, as `peers.edges` describes. With `clip`, what
    a neighbour says counts for no more than that many times what is usual.

    `folder` becomes an ordinary run folder with what the site can tell alone (`peers.look`),
    measured as often as checkpoints are written; `origin` and `config` are what its manifest and
    its config.toml say. `measure="cheap"` never solves the lower level. `watch` is shown the node
    before the run, and each evaluation. `metrics` is a port of this machine, for its own programs
    only, at which Prometheus finds where the run is.

    Neighbours get this agent's messages (x and what the algorithm tracks; y and z too, where the
    lower level is common) and, for numbers left open, the largest measurement it knows of; never
    its rows, nor a y that is its own. What travels is computed
    from the rows and can tell something of them.

    Returns once this agent and all its neighbours have finished. Raises `Refused` if
    a neighbour will not talk, `GaveUp` after `limits.give_up` seconds without news,
    `FloatingPointError` or `Stopped` if this agent or another one diverges and may not go back.
    """
    from ..peers.disk_and_memory import room_for
    from ..peers.frame import limit
    from ..peers.prometheus import served
    from ..peers.roster import load
    from ..peers.rpc import Client
    from ..peers.server import Server

    _check(rounds, seed, every)
    site = load(bundle)
    agent = Agent(problem, network, algorithm, site.me.number, seed, sampling, clip)
    agent.measure = measure or agent.measure
    if tuple(agent.neighbours) != site.me.neighbours:
        names = [member.name for member in site.roster.members]
        own, listed = (
            ", ".join(names[j] if j < len(names) else f"agent {j}" for j in found)
            for found in (agent.neighbours, site.me.neighbours)
        )
        raise ValueError(
            f"the network gives {site.me.name} the neighbours {own}, the roster {listed}; use the "
            f"network that the federation was founded with"
        )

    room(folder, room_for(agent, every, missing).disk)
    if origin is None:
        kind = type(algorithm).__name__
        origin = Origin(site.me.name, site.roster.federation, "problem", kind, kind, {}, "", {})

    async def work(writer: Writer) -> Progress:
        async with Client(site, limit(agent.largest), limits) as client:
            names = {member.number: member.name for member in site.roster.members}
            fixed = agent, rounds, client, folder, every, limits
            node = Node(*fixed, missing=missing, names=names)
            diary = SiteFolder(writer, node, origin, config)
            node.on_round = partial(_noted, diary, watch)
            if watch:
                watch.begin(node)
                node.on_ready = watch.ready
            door = Server(site, node.answer, listen, node.service.audit)
            async with door, served(node, metrics):
                with diary.closed():
                    return await node.run()

    with Writer(folder) as writer:
        folder.chmod(0o700)  # it holds y, and what was heard
        return asyncio.run(work(writer))


def _noted(diary: SiteFolder, watch: Watch | None, progress: Progress) -> None:
    before = len(diary.entries)
    diary.note(progress)
    if watch and len(diary.entries) > before:
        watch.progress(diary.entries)


def rehearse(
    problems: Sequence[Problem],
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    seed: int = 0,
    sampling: Sampling = "blocks",
    names: Sequence[str] = (),
    clip: float | None = None,
) -> list[Progress]:
    """The run of all sites in this process, over a wire without TLS: each problem has one's rows.

    The same messages and the same bits as between sites; a trial of what is to be deployed. `names`
    are those of the sites, in the order of the problems.
    """

    async def everyone() -> list[Progress]:
        wire = Wire()
        for number, problem in enumerate(problems):
            agent = Agent(problem, network, algorithm, number, seed, sampling, clip)
            called = dict(enumerate(names))
            node = Node(agent, rounds, wire.end(number), work=inline, names=called)
            wire.nodes[number] = node
        try:
            return list(await asyncio.gather(*(node.run() for node in wire.nodes.values())))
        finally:
            wire.close()

    _check(rounds, seed)
    if clip is not None:
        warnings.warn(CLIP_WARNING, RuntimeWarning, stacklevel=2)
    if len(problems) != network.agents:
        raise ValueError(f"{len(problems)} problems for a network of {network.agents} agents")
    return play(everyone())


def _check(rounds: int, seed: int, every: int = 1) -> None:
    """Refuse what would never end, or never begin."""
    whole("rounds", rounds, 1)
    whole("every", every, 1)
    whole("seed", seed)
