"""Agents as peers: one process per site with its own rows, mutual TLS, no server."""

import asyncio
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..core.sampling import Sampling
from ..core.validation import as_int
from ..interface.member_changes import check_member_changes
from ..interface.round_interface import Algorithm
from ..network import Network
from ..network.membership_epochs import Epoch
from ..privacy.ledger import read_or_create_key
from ..privacy.private_runs import PrivacyRefusal, privacy_of, with_secret
from ..problem import Problem
from ..records.folder_writer import Writer
from ..records.manifest import RunOrigin
from ..records.write_check import check_writable
from ..sites.memory.site_run_folder import SiteRunFolder
from ..sites.rounds.agent_programs import CLIP_WARNING
from ..sites.rounds.epoch_run import EpochRun, make_epoch_node
from ..sites.rounds.node import MissingPolicy, Node
from ..sites.rounds.round_progress import AgentProgress
from ..sites.rounds.site_agent import Agent, LocalMeasure
from ..sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from ..sites.transport.timeouts import Timeouts
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
    build_network: Callable[[Mapping[str, Any]], Network] | None = None,
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
            seconds (`sites.rounds.edge_states`).
        clip: bounds the influence of a neighbour's message to this multiple of the usual.
        metrics: port on this machine, open to local programs only, for Prometheus.
        measure: "cheap" never solves the lower level.
        share_loss: let all sites of the federation see the local loss (`net status --all`); a
            private run refuses it.
        deadline: seconds, or text such as "1.5 median", after which a round continues without a
            late neighbour (`sites.rounds.round_deadline`); needs missing="continue".
        signed: sign all messages and compare what neighbours received
            (`sites.trust.signed_messages`); equal at all sites.
        build_network: makes a network of its table in a roster that changes the members
            (`sites.identity.roster_acceptance`); `network` is that of round 0.

    Returns:
        The progress, once this agent and all its neighbours have finished, or this agent has left.

    Raises:
        Refused: a neighbour rejects the connection.
        NeighbourTimeout: `limits.give_up` seconds passed without news.
        FloatingPointError: this agent diverged and may not roll back.
        RunFailed: another agent diverged and may not roll back.
    """
    from ..sites.identity.credentials import Credentials
    from ..sites.identity.roster import BadBundle, load_bundle
    from ..sites.identity.roster_acceptance import RosterAcceptance, roster_epochs
    from ..sites.memory.sent_record import record_path
    from ..sites.rounds.overview import StatusCollector
    from ..sites.rounds.resource_estimate import estimate_resources
    from ..sites.transport.metrics_endpoint import serve_metrics
    from ..sites.transport.operator_queries import LOOPBACK, publish_operator_address
    from ..sites.transport.rpc import RpcClient
    from ..sites.transport.server import Server
    from ..sites.transport.wire_format import max_frame_bytes
    from ..sites.trust.mask_keys import SiteIdentity
    from ..sites.trust.signed_messages import sign_messages
    from ..sites.trust.signed_records import StatementSigner

    _check(rounds, seed, every)
    _check_changes(problem, network, algorithm, missing, deadline)
    site = load_bundle(bundle)
    is_private = privacy_of(algorithm) is not None
    if is_private and share_loss:
        raise PrivacyRefusal(
            "--share-loss shows the loss on this site's rows without noise, which a private run "
            "refuses: leave it out"
        )
    if is_private:
        algorithm = with_secret(algorithm, read_or_create_key(folder))
    epochs = [Epoch(0, network, tuple(range(network.agents)))]
    if site.roster.epochs:
        if build_network is None:
            raise ValueError("the roster changes members: give build_network")
        epochs = roster_epochs(site.roster, build_network)

    def make_agent(epoch: Epoch | None) -> Agent:
        links = network if epoch is None else epoch.network
        agent = Agent(
            problem, links, algorithm, site.me.number, seed, sampling, clip, epoch, missing
        )
        agent.measure = measure or agent.measure
        return agent

    def check_change() -> None:
        protected = signed or network.mask_limit is not None or is_private
        if build_network is None or missing != "wait" or protected:
            raise ValueError(
                "members change only with missing = 'wait', without privacy, masks and signatures"
            )
        check_member_changes(problem, algorithm)

    if len(epochs) > 1:
        try:
            check_change()
        except ValueError as cause:
            raise BadBundle(f"roster {site.roster.version} cannot be followed: {cause}") from None
    own = next((e for e in epochs if site.me.number in e.members), epochs[0])
    agent = make_agent(own if own.from_round else None)
    if len(epochs) == 1 and tuple(agent.neighbours) != site.me.neighbours:
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
        async with RpcClient(credentials, max_bytes, limits, instance=os.urandom(8)) as client:
            names: dict[int, str] = {}

            def list_names() -> None:
                roster = credentials.bundle.roster
                names.update({member.number: member.name for member in roster.members})

            list_names()
            credentials.listeners.append(list_names)
            signer = partial(StatementSigner, lambda: credentials.bundle)
            options = {
                "every": every,
                "timeouts": limits,
                "missing": missing,
                "names": names,
                "sign": partial(sign_messages, signer()) if signed else None,
                "identity": SiteIdentity(credentials) if agent.masked else None,
                "ledger_folder": bundle,
                "sent_path": record_path(bundle, folder),
            }
            make_node = make_epoch_node(make_agent, rounds, client, deadline=deadline, **options)
            site_run = EpochRun(site.me.number, epochs, rounds, make_node, folder)
            node = site_run.node
            folder_writer = SiteRunFolder(writer, node, origin, config)
            node.on_round = partial(_noted, folder_writer, listener)

            def status() -> dict[str, Any]:
                entries = folder_writer.entries if share_loss else []
                loss = {"loss": entries[-1]["local_loss"]} if entries else {}
                return site_run.node.status() | loss

            overview = StatusCollector(credentials, client, status).answer
            build = build_network or (lambda table: network)
            acceptance = RosterAcceptance(
                credentials, bundle, site_run, client, build, check_change
            )

            def attach(node: Node) -> None:
                """Connect the node of an epoch with everything else at the site."""
                service = node.service
                service.audit, folder_writer.node = audit, node
                service.open_connections = client.open_connections
                service.answer_overview = overview
                service.receive_roster = acceptance.receive
                node.before_round = acceptance.pass_on
                if listener:
                    listener.begin(node)
                    node.on_ready = listener.ready

            place, audit = listen or site.me.address or LOOPBACK, node.service.audit
            attach(node)
            site_run.on_epoch = attach
            server = Server(credentials, site_run.answer_request, place, audit, client)
            async with server, serve_metrics(lambda: site_run.node, metrics):
                server.start_task(credentials.watch(bundle, audit))
                with publish_operator_address(bundle, place, server.port):
                    with folder_writer.record_outcome():
                        final = await site_run.run()
                    await site_run.node.shutdown.run_or_halt(server.finish_relaying())
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
