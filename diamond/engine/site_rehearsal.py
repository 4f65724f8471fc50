"""Agents as peers: one process per site with its own rows, mutual TLS, no server."""

import asyncio
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..core.sampling import Sampling
from ..core.validation import as_int
from ..interface.round_interface import Algorithm
from ..network import Network
from ..peers.agent_programs import CLIP_WARNING
from ..peers.in_process_transport import InProcessNetwork, run_inline, run_simulated
from ..peers.node import MissingPolicy, Node
from ..peers.round_progress import AgentProgress
from ..peers.site_agent import Agent, LocalMeasure
from ..peers.site_run_folder import SiteRunFolder
from ..peers.timeouts import Timeouts
from ..privacy.ledger import read_or_create_key
from ..privacy.private_runs import privacy_of, with_secret
from ..problem import Problem
from ..records.folder_writer import Writer
from ..records.manifest import RunOrigin
from ..records.write_check import check_writable
from .simulate import check_network_kind


class SiteListener(Protocol):
    """Listener to the progress of a run."""

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
    limits: Timeouts = Timeouts(),
    listener: SiteListener | None = None,
    origin: RunOrigin | None = None,
    config: str = "",
    listen: str | None = None,
    missing: MissingPolicy = "wait",
    clip: float | None = None,
    metrics: int | None = None,
    measure: LocalMeasure | None = None,
    share_loss: bool = False,
    deadline: float | str | None = None,
    signed: bool = False,
) -> AgentProgress:
    """Run this site's part of a federated run, from its checkpoint in `folder` if there is one.

    Losses, start, `network`, `algorithm`, `rounds`, `seed` and `sampling` must be equal at all
    sites; the sites compare them before round 0. The sites estimate open numbers together, each on
    its own rows. The trajectory equals that of `diamond.simulate` up to rounding. A site that was
    killed and restarted resumes from its checkpoint while the others wait, and the result equals,
    bit for bit, that of a run without the crash.

    Neighbours receive this agent's messages (x and what the algorithm tracks; y and z too if the
    lower level is common) and, for open numbers, the largest measurement known to this agent; never
    its rows or a personal y. Messages are computed from the rows and can reveal something about
    them.

    Args:
        problem: the problem with this site's rows only (lists of one entry).
        bundle: folder that the federation's authority made for this site, with the agent's number,
            its address and its neighbours.
        folder: run folder with the site's local measures (`local_measures`), one per checkpoint.
        every: rounds between checkpoints.
        limits: time limits in seconds.
        watch: is shown the node before the run, and each evaluation.
        origin, config: contents of the manifest and of config.toml in the run folder.
        listen: address to listen at if not that of the roster, as behind a mapped port. A site
            without an address in the roster listens on loopback, for its operator's commands.
        missing: "continue" makes rounds without neighbours that have been silent for `limits.round`
            seconds (`peers.edge_states`).
        clip: bounds the influence of a neighbour's message to this multiple of the usual.
        metrics: port on this machine, open to local programs only, for Prometheus.
        measure: "cheap" never solves the lower level.
        share_loss: let all sites of the federation see the local loss (`net status --all`).
        deadline: seconds, or text such as "1.5 median", after which a round continues without a
            late neighbour (`peers.round_deadline`); needs missing="continue".
        signed: sign all messages and compare what neighbours received (`peers.signed_messages`);
            equal at all sites.

    Returns:
        The progress, once this agent and all its neighbours have finished.

    Raises:
        Refused: a neighbour rejects the connection.
        NeighbourTimeout: `limits.give_up` seconds passed without news.
        FloatingPointError: this agent diverged and may not roll back.
        RunFailed: another agent diverged and may not roll back.
    """
    from ..peers.credentials import Credentials
    from ..peers.mask_keys import SiteIdentity
    from ..peers.metrics_endpoint import serve_metrics
    from ..peers.operator_address import LOOPBACK, publish_operator_address
    from ..peers.overview import StatusCollector
    from ..peers.resource_estimate import estimate_resources
    from ..peers.roster import load_bundle
    from ..peers.rpc import RpcClient
    from ..peers.server import Server
    from ..peers.signed_messages import sign_messages
    from ..peers.signed_statement import StatementSigner
    from ..peers.wire_format import max_frame_bytes

    _check(rounds, seed, every)
    _check_changes(problem, network, algorithm, missing, deadline)
    site = load_bundle(bundle)
    if privacy_of(algorithm) is not None:
        algorithm = with_secret(algorithm, read_or_create_key(folder))
    agent = Agent(problem, network, algorithm, site.me.number, seed, sampling, clip)
    agent.measure = measure or agent.measure
    if tuple(agent.neighbours) != site.me.neighbours:
        names = [member.name for member in site.roster.members]
        expected, listed = (
            ", ".join(names[j] if j < len(names) else f"agent {j}" for j in numbers)
            for numbers in (agent.neighbours, site.me.neighbours)
        )
        raise ValueError(
            f"the network gives {site.me.name} the neighbours {expected}, the roster {listed}; use "
            f"the network that the federation was founded with"
        )

    check_writable(folder, estimate_resources(agent, every, missing).disk)
    if origin is None:
        kind = type(algorithm).__name__
        origin = RunOrigin(site.me.name, site.roster.federation, "problem", kind, kind, {}, "", {})

    async def work(writer: Writer) -> AgentProgress:
        credentials, max_bytes = Credentials(site), max_frame_bytes(agent.largest_layout)
        async with RpcClient(credentials, max_bytes, limits) as client:
            names = {member.number: member.name for member in site.roster.members}
            fixed = agent, rounds, client, folder, every, limits
            signer = partial(StatementSigner, lambda: credentials.bundle)
            sign = partial(sign_messages, signer()) if signed else None
            identity = SiteIdentity(credentials) if agent.masked else None
            node = Node(
                *fixed,
                missing=missing,
                names=names,
                deadline=deadline,
                sign=sign,
                identity=identity,
            )
            folder_writer = SiteRunFolder(writer, node, origin, config)
            node.on_round = partial(_noted, folder_writer, listener)
            if listener:
                listener.begin(node)
                node.on_ready = listener.ready
            node.service.open_connections = client.open_connections

            def status() -> dict[str, Any]:
                entries = folder_writer.entries if share_loss else []
                return node.status() | ({"loss": entries[-1]["local_loss"]} if entries else {})

            node.service.answer_overview = StatusCollector(credentials, client, status).answer
            place, audit = listen or site.me.address or LOOPBACK, node.service.audit
            server = Server(credentials, node.answer_request, place, audit, client)
            async with server, serve_metrics(node, metrics):
                server.start_task(credentials.watch(bundle, audit))
                with publish_operator_address(bundle, place, server.port):
                    with folder_writer.record_outcome():
                        final = await node.run()
                    await node.shutdown.run_or_halt(server.finish_relaying())
                    return final

    with Writer(folder) as writer:
        folder.chmod(0o700)  # it holds y and received messages
        return asyncio.run(work(writer))


def _noted(
    folder_writer: SiteRunFolder, listener: SiteListener | None, progress: AgentProgress
) -> None:
    before = len(folder_writer.entries)
    folder_writer.record_evaluation(progress)
    if listener and len(folder_writer.entries) > before:
        listener.progress(folder_writer.entries)


def rehearse(
    problems: Sequence[Problem],
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    seed: int = 0,
    sampling: Sampling = "blocks",
    names: Sequence[str] = (),
    clip: float | None = None,
) -> list[AgentProgress]:
    """Run all sites in this process without TLS, each problem with one site's rows.

    The messages and bits equal those between sites, so this tests a deployment. `names` are the
    names of the sites in the order of the problems.
    """

    async def everyone() -> list[AgentProgress]:
        wire = InProcessNetwork()
        for number, problem in enumerate(problems):
            agent = Agent(problem, network, algorithm, number, seed, sampling, clip)
            site_names = dict(enumerate(names))
            node = Node(
                agent,
                rounds,
                wire.transport(number),
                run_blocking=run_inline,
                names=site_names,
            )
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
    _check_changes(problems[0], network, algorithm)
    return run_simulated(everyone())


def _check(rounds: int, seed: int, every: int = 1) -> None:
    """Reject values with which the run would never end or never begin."""
    as_int("rounds", rounds, 1)
    as_int("every", every, 1)
    as_int("seed", seed)


def _check_changes(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    missing: MissingPolicy = "wait",
    deadline: float | str | None = None,
) -> None:
    """Reject methods that are wrong where some rounds have fewer links, and lone deadlines."""
    if deadline is not None and (missing != "continue" or network.sequence):
        raise ValueError(
            "a deadline needs missing='continue' and a network with an exchange in every round"
        )
    if network.sequence or deadline is not None:
        check_network_kind(network if network.sequence else network.every(2), algorithm, problem)
