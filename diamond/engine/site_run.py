"""Run of one site: its own rows, mutual TLS with its neighbours, no server."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..core.exclusions import check_combination
from ..core.sampling import Sampling
from ..interface.member_changes import check_member_changes
from ..interface.round_interface import Algorithm
from ..network import Network
from ..network.membership_epochs import Epoch
from ..privacy.ledger import read_or_create_key
from ..privacy.private_runs import PrivacyRefusal, with_secret
from ..problem import Problem
from ..records.folder_writer import Writer
from ..records.manifest import RunOrigin
from ..records.write_check import check_writable
from ..sites.identity.credentials import Credentials
from ..sites.identity.private_keys import BadBundle
from ..sites.identity.roster import Bundle, load_bundle
from ..sites.identity.roster_acceptance import RosterAcceptance, roster_epochs
from ..sites.memory.sent_record import record_path
from ..sites.memory.site_run_folder import SiteRunFolder
from ..sites.rounds.agent_setup import LocalMeasure
from ..sites.rounds.epoch_run import EpochRun, make_epoch_node
from ..sites.rounds.node import MissingPolicy, Node
from ..sites.rounds.overview import StatusCollector
from ..sites.rounds.resource_estimate import estimate_resources
from ..sites.rounds.round_progress import AgentProgress
from ..sites.rounds.site_agent import Agent
from ..sites.transport.operator_queries import LOOPBACK, publish_operator_address
from ..sites.transport.rpc import RpcClient
from ..sites.transport.server import Server
from ..sites.transport.timeouts import Timeouts
from ..sites.transport.wire_format import max_frame_bytes
from ..sites.trust.mask_keys import SiteIdentity
from ..sites.trust.signed_messages import sign_messages
from ..sites.trust.signed_records import StatementSigner
from .site_checks import check_changes, check_counts

NetworkBuilder = Callable[[Mapping[str, Any]], Network]


class SiteListener(Protocol):
    """Listener to the progress of a run."""

    def begin(self, node: Node) -> None: ...

    def ready(self) -> None: ...

    def progress(self, entries: list[dict[str, Any]]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class SiteSettings:
    """Settings of a site's run. Those up to `signed` must be equal at all sites.

    Attributes:
        rounds: number of rounds.
        seed: seed of the start and of every mini-batch.
        sampling: how mini-batches are drawn.
        missing: "continue" makes rounds without neighbours that have been silent for
            `limits.round` seconds (`sites.rounds.edge_states`). "asynchronous" makes every round
            with the messages that have arrived (`sites.rounds.asynchronous_mixing`).
        deadline: seconds, or text such as "1.5 median", after which a round continues without a
            late neighbour (`sites.rounds.round_deadline`); needs missing="continue".
        signed: sign all messages and compare what neighbours received
            (`sites.trust.signed_messages`).
        every: rounds between checkpoints.
        limits: time limits in seconds.
        listen: address to listen at if not that of the roster, as behind a mapped port. A site
            without an address in the roster listens on loopback, for its operator's commands.
        metrics: port on this machine, open to local programs only, for Prometheus.
        measure: "cheap" never solves the lower level.
        share_loss: let all sites of the federation see the local loss (`net status --all`); a
            private run refuses it.
    """

    rounds: int
    seed: int = 0
    sampling: Sampling = "blocks"
    missing: MissingPolicy = "wait"
    deadline: float | str | None = None
    signed: bool = False
    every: int = 10
    limits: Timeouts = field(default_factory=Timeouts)
    listen: str | None = None
    metrics: int | None = None
    measure: LocalMeasure | None = None
    share_loss: bool = False


def run(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    settings: SiteSettings,
    *,
    bundle: Path,
    folder: Path,
    listener: SiteListener | None = None,
    origin: RunOrigin | None = None,
    config: str = "",
    build_network: NetworkBuilder | None = None,
) -> AgentProgress:
    """Run this site's part of a federated run, from its checkpoint in `folder` if there is one.

    Losses, start, `network` and `algorithm` must be equal at all sites; the sites compare them
    before round 0. The sites estimate open numbers together, each on its own rows. The trajectory
    equals that of `diamond.simulate` up to rounding. A site that was killed and restarted resumes
    from its checkpoint while the others wait, and the result equals, bit for bit, that of a run
    without the crash.

    Neighbours receive this agent's messages (x and what the algorithm tracks; y and z too if the
    lower level is common) and, for open numbers, the largest measurement known to this agent; never
    its rows or a personal y. Messages are computed from the rows and can reveal something about
    them.

    Args:
        problem: the problem with this site's rows only (lists of one entry).
        bundle: folder that the federation's authority made for this site, with the agent's number,
            its address and its neighbours.
        folder: run folder with the site's local measures (`local_measures`), one per checkpoint.
        listener: is shown the node before the run, and each evaluation.
        origin, config: contents of the manifest and of config.toml in the run folder.
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
    check_counts(settings.rounds, settings.seed, settings.every)
    check_changes(problem, network, algorithm, settings.missing, deadline=settings.deadline)
    if algorithm.privacy is not None:
        shown = {"privacy": True, "--share-loss": settings.share_loss}
        check_combination(shown, "a site", "sites", error=PrivacyRefusal)
        algorithm = with_secret(algorithm, read_or_create_key(folder))
    site_run = _SiteRun(load_bundle(bundle), problem, network, algorithm, settings, build_network)
    epochs = site_run.epochs()
    agent = site_run.first_agent(epochs)
    check_writable(folder, estimate_resources(agent, settings.every, settings.missing).disk)
    if origin is None:
        name, federation = site_run.site.me.name, site_run.site.roster.federation
        kind = type(algorithm).__name__
        origin = RunOrigin(name, federation, "problem", kind, kind, {}, "", {})
    folder_of = partial(SiteRunFolder, origin=origin, config=config)
    with Writer(folder) as writer:
        folder.chmod(0o700)  # it holds y and received messages
        return asyncio.run(
            site_run.work(agent, epochs, bundle, folder, writer, folder_of, listener)
        )


@dataclass
class _SiteRun:
    """One site's part of a run: its identity, its agent in each epoch, and its connections."""

    site: Bundle
    problem: Problem
    network: Network
    algorithm: Algorithm
    settings: SiteSettings
    build_network: NetworkBuilder | None

    def epochs(self) -> list[Epoch]:
        """Return the epochs that the roster names."""
        roster = self.site.roster
        if not roster.epochs:
            return [Epoch(0, self.network, tuple(range(self.network.agents)))]
        if self.build_network is None:
            raise ValueError("the roster changes members: give build_network")
        epochs = roster_epochs(roster, self.build_epoch_network)
        if len(epochs) > 1:
            try:
                self.check_change()
                used = {"--rewind": any(epoch.rewinds for epoch in roster.epochs)}
                used |= {f"missing='{self.settings.missing}'": True}
                used |= {"privacy": self.algorithm.privacy is not None}
                check_combination(used, roster.federation, "sites")
            except ValueError as cause:
                message = f"roster {roster.version} cannot be followed: {cause}"
                raise BadBundle(message) from None
        return epochs

    def build_epoch_network(self, table: Mapping[str, Any]) -> Network:
        """Build a network of a roster, with the masks of the federation."""
        if self.build_network is None:
            return self.network
        network, limit = self.build_network(table), self.network.mask_limit
        if limit is None or network.mask_limit is not None:
            return network
        return network.masked(limit)

    def check_change(self) -> None:
        """Refuse a change of the members that this run cannot follow."""
        if self.build_network is None:
            raise ValueError("the networks of other members are unknown: give build_network")
        used = {f"missing='{self.settings.missing}'": True, "changing members": True}
        check_combination(used, self.site.roster.federation, "sites")
        check_member_changes(self.problem, self.algorithm, self.settings.missing)

    def make_agent(self, epoch: Epoch | None) -> Agent:
        """Make the agent of an epoch; None: of a run whose members do not change."""
        settings, network = self.settings, self.network if epoch is None else epoch.network
        inputs = self.problem, network, self.algorithm, self.site.me.number
        agent = Agent(
            *inputs,
            seed=settings.seed,
            sampling=settings.sampling,
            epoch=epoch,
            missing=settings.missing,
        )
        agent.measure = settings.measure or agent.measure
        return agent

    def first_agent(self, epochs: list[Epoch]) -> Agent:
        """Return the agent of the site's first epoch, with the neighbours that the roster lists."""
        me, members = self.site.me, self.site.roster.members
        own = next((e for e in epochs if me.number in e.members), epochs[0])
        agent = self.make_agent(own if own.from_round else None)
        if len(epochs) == 1 and tuple(agent.neighbours) != me.neighbours:
            names = [member.name for member in members]
            expected, listed = (
                ", ".join(names[j] if j < len(names) else f"agent {j}" for j in numbers)
                for numbers in (agent.neighbours, me.neighbours)
            )
            raise ValueError(
                f"the network gives {me.name} the neighbours {expected}, the roster {listed}; use "
                f"the network that the federation was founded with"
            )
        return agent

    async def work(
        self,
        agent: Agent,
        epochs: list[Epoch],
        bundle: Path,
        folder: Path,
        writer: Writer,
        folder_of: Callable[[Writer, Node], SiteRunFolder],
        listener: SiteListener | None,
    ) -> AgentProgress:
        """Connect everything at the site, and run all rounds."""
        settings = self.settings
        credentials, max_bytes = Credentials(self.site), max_frame_bytes(agent.largest_layout)
        instance = os.urandom(8)
        async with RpcClient(credentials, max_bytes, settings.limits, instance=instance) as client:
            names: dict[int, str] = {}

            def list_names() -> None:
                roster = credentials.bundle.roster
                names.update({member.number: member.name for member in roster.members})

            list_names()
            credentials.listeners.append(list_names)
            signer = StatementSigner(lambda: credentials.bundle) if settings.signed else None
            make_node = make_epoch_node(
                self.make_agent,
                settings.rounds,
                client,
                deadline=settings.deadline,
                every=settings.every,
                timeouts=settings.limits,
                missing=settings.missing,
                names=names,
                sign=None if signer is None else partial(sign_messages, signer),
                identity=SiteIdentity(credentials) if agent.masked else None,
                ledger_folder=bundle,
                sent_path=record_path(bundle, folder),
            )
            number = self.site.me.number
            epoch_run = EpochRun(number, epochs, settings.rounds, make_node, folder=folder)
            node = epoch_run.node
            folder_writer = folder_of(writer, node)
            node.on_round = partial(_record_round, folder_writer, listener)

            def status() -> dict[str, Any]:
                entries = folder_writer.entries if settings.share_loss else []
                loss = {"loss": entries[-1]["local_loss"]} if entries else {}
                return epoch_run.node.status() | loss

            overview = StatusCollector(credentials, client, status).answer
            build = self.build_epoch_network
            acceptance = RosterAcceptance(
                credentials, bundle, epoch_run, client, build, self.check_change
            )
            place, audit = settings.listen or self.site.me.address or LOOPBACK, node.service.audit

            def attach(node: Node) -> None:
                """Connect the node of an epoch with everything else at the site."""
                service = node.service
                service.audit, folder_writer.node = audit, node
                service.open_connections = client.open_connections
                service.answer_overview = overview
                service.receive_roster = acceptance.receive
                service.offer_roster = None if node.edges is None else acceptance.offer
                node.before_round = acceptance.pass_on
                if listener:
                    listener.begin(node)
                    node.on_ready = listener.ready

            attach(node)
            epoch_run.on_epoch = attach
            server = Server(credentials, epoch_run.answer_request, place, audit, client=client)
            async with server, _serve_metrics(lambda: epoch_run.node, settings.metrics):
                server.start_task(credentials.watch(bundle, audit))
                with publish_operator_address(bundle, place, server.port):
                    with folder_writer.record_outcome():
                        final = await epoch_run.run()
                    await epoch_run.node.shutdown.run_or_halt(server.finish_relaying())
                    return final


def _serve_metrics(
    current_node: Callable[[], Node], port: int | None
) -> AbstractAsyncContextManager[int | None]:
    """Serve metrics if a port is given."""
    if port is None:
        return nullcontext()
    from ..sites.transport.metrics_endpoint import serve_metrics

    return serve_metrics(current_node, port)


def _record_round(
    folder_writer: SiteRunFolder, listener: SiteListener | None, progress: AgentProgress
) -> None:
    before = len(folder_writer.entries)
    folder_writer.record_evaluation(progress)
    if listener and len(folder_writer.entries) > before:
        listener.progress(folder_writer.entries)
