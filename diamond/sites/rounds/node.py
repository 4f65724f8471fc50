"""Node: one agent that exchanges messages with its neighbours, round by round.

Later messages are subscribed to once (`subscription`). Everything can be requested as well. A
request only changes what its sender will never need again, so requests can be repeated, duplicated
or lost. An agent is never more than a round ahead of a neighbour, since it needs that neighbour's
message; an agent that is set back to its checkpoint requests the later messages again and sends the
same bits once more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakSet

from ...core.exclusions import check_combination
from ...hardware.program_cache import compile_once
from ...interface.traffic import check_exact_means
from ...privacy.ledger import BudgetExhausted, open_ledger
from ...privacy.private_runs import ledger_terms
from ...schedules.deferred import deferred_names
from ..identity.handshake import compute_digests
from ..identity.site_names import SiteNames, site_name
from ..memory import epoch_entry
from ..memory.edge_journal import EdgeJournal
from ..memory.epoch_entry import EpochEntry
from ..memory.outbox import LatestOutbox
from ..memory.sent_record import RECORD_FILE, SentBefore, SentRecord
from ..memory.site_checkpoint import CheckpointWriter
from ..memory.site_rollback import NeighbourRolledBack, RunClock, keep_state_if_due
from ..transport.errors import RunFailed
from ..transport.messages import DOWN
from ..transport.subscription import Publisher
from ..transport.timeouts import Timeouts, loop_time
from ..transport.wire_format import Frame
from ..transport.worker_thread import BlockingRunner, BriefWorkRunner
from . import warm_restart
from .client import NeighbourClient, Transport
from .edge_states import EdgeStates
from .latest_messages import LatestMessages
from .message_exchange import ExchangeRunner
from .node_status import describe_node
from .round_deadline import DeadlineEdges, describe_policy, make_deadline
from .round_progress import AgentProgress, rollback_state
from .service import Service
from .shutdown import Halted, Shutdown
from .site_agent import Agent

if TYPE_CHECKING:
    from ..trust.mask_keys import MaskIdentity
    from ..trust.message_masks import MessageMasks
    from ..trust.signed_messages import SignedMessages

MissingPolicy = Literal["wait", "continue", "asynchronous"]
BRIEF_METHODS = ("compute", "outgoing_arrays", "finish_exchange", "finish_round")  # run inline
COMPILED_AGENTS: WeakSet[Agent] = WeakSet()  # agents of this process with compiled rounds


class EvaluationInputs(NamedTuple):
    """State at the end of a round, measured while the next rounds run."""

    messages: list[dict[int, list[Any]]]  # by exchange, the agent's own included
    seconds: float
    seconds_waited: float


def start_name(first_round: int) -> str:
    """Return how the digests of a run name the start of an epoch."""
    return f"epoch {first_round}"


@dataclass
class Node:
    """Run of an agent over `rounds` rounds; `folder` keeps a checkpoint every `every` rounds.

    Without a folder nothing survives a crash. `run_blocking` runs blocking functions. `on_round` is
    called at the start and after every round. If a checkpoint is due, it is called before the
    checkpoint, while the next rounds run, and finds the state of its round in `evaluation_inputs`;
    otherwise it must be brief. `missing` is the treatment of absent neighbours, that of the agent:
    wait, or continue, see `edge_states`, or asynchronous, see `latest_messages`.
    """

    agent: Agent
    rounds: int
    transport: Transport
    folder: Path | None = None
    every: int = 10
    timeouts: Timeouts = field(default_factory=Timeouts)
    run_blocking: BlockingRunner = field(default_factory=lambda: BriefWorkRunner(BRIEF_METHODS))
    on_round: Callable[[AgentProgress], None] | None = None
    missing: MissingPolicy = "wait"
    names: SiteNames = field(default_factory=dict)  # names of the sites by agent
    deadline: float | str | None = None  # of an exchange, see `round_deadline`
    on_ready: Callable[[], None] = lambda: None  # called after compilation, before the first round
    sign: "Callable[[Node], SignedMessages] | None" = None  # signs messages of this node
    identity: "MaskIdentity | None" = None  # signs keys of masked sums; None: in one process
    entry: EpochEntry | None = None  # where an epoch begins at this agent, see `epoch_run`
    total_rounds: int | None = None  # of the run, if the epoch ends before
    ledger_folder: Path | None = None  # of spent privacy, beside the site's key
    sent_path: Path | None = None  # record of sent messages; None: in the folder

    def __post_init__(self) -> None:
        self.planned_rounds = self.total_rounds or self.rounds  # of the whole run
        start = "onward" if warm_restart.is_warm_restart(self.folder) else "anew"
        start = start if self.entry is None else start_name(self.agent.first_round)
        missing = describe_policy(self.missing, self.deadline, self.sign is not None)
        self.digests = compute_digests(self.agent, self.planned_rounds, missing, start)
        self.run_digest = self.digests["run"]
        is_ahead = self.missing != "wait"
        self.clock = RunClock(self.agent, self.rounds, self.planned_rounds, is_ahead)
        self.last_tick = self.clock.last_tick
        self.service = Service(self)
        self.sent = SentRecord(
            self.sent_path or (self.folder and self.folder / RECORD_FILE),
            self.run_digest,
            self._remedy(),
        )
        self.signatures = self.service.signatures = self.sign(self) if self.sign else None
        self.client = NeighbourClient(self)
        self.wait_records = self.client.wait_records
        self.neighbour_status = self.client.neighbour_status
        self.seconds = 0.0  # of rounds, and of waiting for background work
        self.evaluation_inputs = EvaluationInputs([], 0.0, 0.0)
        self.compile_seconds = 0.0  # before the first round
        self.greeting_seconds = 0.0  # until all neighbours had answered
        self.t = self.first_round = 0  # finished rounds, and those before this session
        self._latest_round = 0  # most finished rounds, before rollbacks
        self.progress: AgentProgress | None = None  # state of the agent
        self.is_late = False  # whether it has begun a round that a later epoch has
        self.shutdown = Shutdown(self.timeouts.connect)
        self.before_round: Callable[[], Awaitable[None]] | None = None  # delays the next round
        self.service.status, self.service.stop = self.status, self.shutdown.request
        self.edges = self._make_edges() if self.missing == "continue" else None
        self.latest_messages = self._make_latest() if self.agent.asynchronous else None
        self.round_deadline = make_deadline(self)
        self.masks = self.service.masks = self._make_masks(start) if self.agent.masked else None
        terms = ledger_terms(self.agent.algorithm, self.agent.problem)
        self.ledger = None if terms is None else open_ledger(self.ledger_folder, self.folder, terms)
        self.exchange_runner, self.checkpoints = ExchangeRunner(self), CheckpointWriter(self)

    @property
    def name(self) -> str:
        """Return the name of the agent."""
        return site_name(self.names, self.agent.number)

    @property
    def begins_run(self) -> bool:
        """Return whether the agent takes part from the first round of this node on."""
        return self.entry is None or self.entry.point is None

    @property
    def seconds_waited(self) -> float:
        """Return the seconds of rounds without own work."""
        return self.exchange_runner.seconds_waited

    def _remedy(self) -> str:
        """Return what helps if the site cannot compute the messages again that it has sent."""
        is_signed, is_masked = self.sign is not None, self.agent.masked is not None
        rewinds, is_private = self.missing == "wait", self.agent.algorithm.privacy is not None
        can_rejoin = self.missing == "continue" or (rewinds and not is_private)
        option = "--rewind " * rewinds + "--rejoin"
        rejoin = f"let it rejoin (`diamond net change {option}` with its name), or "
        renew = "renew its keys (`diamond net renew`) and " * is_signed
        how = "--restart" if is_signed or is_masked else "--onward"
        return f"{rejoin * can_rejoin}{renew}start all sites with {how}"

    def _make_edges(self) -> EdgeStates:
        network, used = self.agent.network, {"missing='continue'": True}
        check_exact_means(network, self.agent.message_shapes, used)
        check_combination(used | {"channels": network.channels}, network.name, "sites")
        folder = self.folder / "journal" if self.folder else None
        has_deadline = self.deadline is not None
        journal = EdgeJournal(self.agent.neighbours, self.run_digest, folder, has_deadline)
        kind = DeadlineEdges if has_deadline else EdgeStates
        edges = self.service.edges = kind(self, journal)
        self.service.outbox.is_unneeded = lambda j, t: journal.edge_vote(j, t) == DOWN
        return edges

    def _make_latest(self) -> LatestMessages:
        self.service.asynchronous = self.agent.asynchronous
        self.service.outbox = LatestOutbox(self.agent.neighbours)
        folder = self.folder / "journal" if self.folder else None
        journal = EdgeJournal(self.agent.neighbours, self.run_digest, folder, keeps_history=True)
        return LatestMessages(self, journal)

    def _make_masks(self, start: str) -> "MessageMasks":
        from ..trust.mask_keys import MaskIdentity
        from ..trust.message_masks import MessageMasks

        used = {"masked sums": True, "missing='continue'": self.missing == "continue"}
        used |= {"a deadline": self.deadline is not None, "--onward": start == "onward"}
        check_combination(used, self.agent.network.name, "sites")
        identity = self.identity or MaskIdentity()
        return MessageMasks(self.agent, self.run_digest, identity, self.folder)

    async def run(self) -> AgentProgress:
        """Run all rounds, from the checkpoint if any; return once no neighbour needs more."""
        progress = self.checkpoints.restore()
        self.sent.open(self.client.first_tick)
        if self.masks is not None:
            self.masks.open(is_resumed=progress.clock > self.agent.first_round)
        try:
            for owner in (self.edges, self.latest_messages):
                if owner is not None:
                    owner.journal.restore(self.agent.tick(progress))
            if self.round_deadline:
                self.round_deadline.restore(self.agent.tick(progress))
            self._end_if_finished(progress)
            if self.edges is not None:  # it may have to leave before it takes part
                self.t, self.progress = progress.t, self._enter(progress)
            if progress.t <= self.rounds:
                progress = await self._start(progress)
            while progress.t < self.rounds or not await self._all_finished(progress):
                if self.before_round is not None:
                    await self.shutdown.run_or_halt(self.before_round())
                start = loop_time()
                progress = await self.shutdown.run_or_halt(self._run_round(progress))
                self.seconds += loop_time() - start
                start = loop_time()
                self.t, self.progress = progress.t, progress
                self._latest_round = self.latest_round
                self._end_if_finished(progress)
                if progress.t % self.every == 0 or progress.t == self.rounds:
                    await self.checkpoints.wait()
                    self.evaluation_inputs = EvaluationInputs(
                        self.exchange_runner.messages, self.seconds, self.seconds_waited
                    )
                    self.checkpoints.start(progress, self._evaluate)
                    await asyncio.sleep(0)  # starts the task now
                elif self.on_round is not None:
                    self.on_round(progress)
                self.seconds += loop_time() - start
                if self.shutdown.requested:
                    raise Halted
            await self.checkpoints.wait()
            self.is_late = progress.t > self.rounds
            if not self.is_late:
                await self.shutdown.run_or_halt(self._finish())
        except Halted:
            await self.checkpoints.wait()
            if self.agent.first_round < progress.clock and progress.t < self.rounds:
                await self.checkpoints.save(progress, self.service.outbox.copy())
            raise Halted(f"stopped after round {progress.t} of {self.rounds}, as asked") from None
        except (FloatingPointError, RunFailed, BudgetExhausted) as error:
            self.service.fail(str(error))
            await asyncio.sleep(self.timeouts.connect)  # so that the neighbours receive it
            raise
        finally:
            self.client.close()
            await self.checkpoints.cancel()
            if self.round_deadline:
                self.round_deadline.close()
            for owner in (self.edges, self.latest_messages):
                if owner is not None:
                    await owner.close()
        return progress

    async def _start(self, progress: AgentProgress) -> AgentProgress:
        """Greet the neighbours, estimate the numbers left to the run, and compile a round."""
        start, run_or_halt = loop_time(), self.shutdown.run_or_halt
        is_new = progress.clock == self.agent.first_round
        is_restart = is_new and warm_restart.is_warm_restart(self.folder)
        needs_all = is_new and (is_restart or deferred_names(self.agent.algorithm))
        edges = self.edges or self.latest_messages
        await run_or_halt(self.client.greet_neighbours(None if needs_all else edges))
        if self.masks is not None:
            await run_or_halt(self.masks.agree(self.client, self.run_blocking))
        self.greeting_seconds = loop_time() - start
        if is_new:
            start = loop_time()
            if self.entry is not None:
                progress = await run_or_halt(self.exchange_runner.begin_epoch(self.entry))
            elif is_restart and self.folder is not None:
                point = warm_restart.load_point(self.folder, progress.state)
                progress = await run_or_halt(self.exchange_runner.restart_progress(point))
            progress = await run_or_halt(self.exchange_runner.resolve_deferred(progress))
            if self.entry is not None and self.edges is not None:
                progress = await self._settle_entry(self.entry, progress)
            if self.entry is not None and self.clock.can_roll_back:
                progress = progress._replace(start=rollback_state(progress))
            self.seconds += loop_time() - start
        self.evaluation_inputs = EvaluationInputs([], self.seconds, self.seconds_waited)
        self.t, self.progress = progress.t, progress
        self.first_round = progress.t
        if self.on_round is not None:
            key = f"{self.run_digest}-look"
            await self.run_blocking(compile_once, key, self.on_round, progress)
        if progress.t < self.rounds and self.agent not in COMPILED_AGENTS:
            await self._compile_round(progress)
        self.on_ready()
        return progress

    def _enter(self, progress: AgentProgress) -> AgentProgress:
        """Return the progress at the start of an epoch with the state that the agent brings."""
        entry, is_new = self.entry, progress.clock == self.agent.first_round
        if entry is None or entry.point is None or not is_new:
            return progress
        return progress._replace(state=entry.state, spent=entry.spent)

    async def _settle_entry(self, entry: EpochEntry, progress: AgentProgress) -> AgentProgress:
        """Keep the point of an agent that joins; skip the rounds before a late entry."""
        first, root = self.agent.first_round, self.folder and self.folder.parent
        if self.begins_run and root is not None:  # its neighbours may be others after a restart
            entry = entry._replace(state=progress.state, spent=progress.spent)
            await self.run_blocking(epoch_entry.save_entry, root, first, entry)
        if self.edges is not None and entry.round > first:
            ends = [t * self.agent.exchange_count for t in (first, entry.round)]
            await self.edges.skip(*ends)
            progress = progress._replace(t=entry.round)
            await self.checkpoints.save(progress, self.service.outbox.copy())
        return progress

    async def _run_round(self, progress: AgentProgress) -> AgentProgress:
        """Run one round, and after some rounds estimate the numbers again, with all agents.

        If the run diverges, here or at another agent, roll back.
        """
        try:
            if progress.t == self.rounds:  # finished here, but another agent has rolled back
                return await self.exchange_runner.roll_back(progress, None)
            if self.round_deadline:
                t = await self.round_deadline.next_round(progress.t, self.rounds, self.every)
                if t > progress.t:
                    return progress._replace(t=t)
            after = await self.exchange_runner.run_round(progress)
            await self.exchange_runner.check_growth(after)
            if self.edges is None and self.agent.needs_reestimation(after):
                updated = await self.exchange_runner.resolve_deferred(after)
                if updated.clock_offset > after.clock_offset:
                    return updated
                after = updated
            return keep_state_if_due(after) if self.clock.can_roll_back else after
        except NeighbourRolledBack:
            return await self.exchange_runner.roll_back(progress, None)
        except FloatingPointError:
            if not self.clock.may_roll_back_again(progress):
                raise
            return await self.exchange_runner.roll_back(progress, progress.t)

    async def _all_finished(self, progress: AgentProgress) -> bool:
        """Record and return whether all agents have finished all rounds; False after a rollback."""
        me = self.agent.number
        ends_alike = self.edges is None and progress.has_ended
        try:
            if (self.clock.can_roll_back or ends_alike) and me not in self.service.finished:
                confirmation = self.exchange_runner.confirm_finished(progress, self.before_round)
                await self.shutdown.run_or_halt(confirmation)
                await self.service.record_finished(me)
        except NeighbourRolledBack:
            return False
        return True

    async def _evaluate(self, progress: AgentProgress) -> None:
        if self.on_round is not None:
            await self.run_blocking(self.on_round, progress)

    async def _compile_round(self, progress: AgentProgress) -> None:
        """Compile the gradients of a round, so that later times are those of computing.

        The result is discarded; the vector operations at the end of a round compile quickly.
        """

        def compute_round() -> None:
            for exchange in range(self.agent.exchange_count):
                local_result = self.agent.compute(progress, exchange)
                self.agent.outgoing_arrays(progress, exchange, local_result)

        start = loop_time()
        await self.run_blocking(compile_once, f"{self.run_digest}-round", compute_round)
        self.compile_seconds = loop_time() - start
        COMPILED_AGENTS.add(self.agent)

    def end_after(self, rounds: int) -> None:
        """End the run of this node after fewer rounds than planned, none of which has begun."""
        if self.has_ended:
            return
        if rounds <= self.t or rounds > self.rounds:
            raise ValueError(f"round {rounds} is not to come: {self.name} is at {self.t}")
        self._shorten(rounds)

    @property
    def first_unsent_round(self) -> int:
        """Return the first round to come of which no message was sent."""
        sent = -(-self.sent.next_exchange // self.agent.exchange_count)
        return min(max(self.t, sent), self.planned_rounds)

    @property
    def latest_round(self) -> int:
        """Return the most finished rounds, also if the run has rolled back since."""
        return max(self.t, self._latest_round)

    @property
    def has_ended(self) -> bool:
        """Return whether the algorithm has ended."""
        return self.progress is not None and self.progress.has_ended

    def _end_if_finished(self, progress: AgentProgress) -> None:
        """Make the last round that of `progress`, if the algorithm has ended there.

        All agents have the same averages, so they end in the same round. In asynchronous rounds,
        an agent ends before its last round once all its neighbours have ended.
        """
        if (
            self.latest_messages
            and progress.t < self.rounds
            and self.latest_messages.has_ended(progress.t)
        ):
            self.rounds = progress.t
        if progress.t < self.rounds and progress.has_ended:
            self._shorten(progress.t)

    def _shorten(self, rounds: int) -> None:
        self.rounds = rounds
        self.clock.shorten(rounds)
        self.last_tick = self.service.last_tick = self.client.last_tick = self.clock.last_tick

    async def _finish(self) -> None:
        """Wait until every neighbour has finished too and knows that this agent has.

        The last checkpoint is verified first, since a finished agent must never be set back.
        """
        self.checkpoints.verify_last(self.rounds)
        self.service.durable = self.last_tick
        if self.round_deadline:
            self.round_deadline.finish(self.last_tick)
        try:
            self.exchange_runner.publish(self.last_tick, [])
        except SentBefore:  # but not as the last message of an epoch
            if self.edges is None or self.rounds == self.planned_rounds:
                raise
            self.is_late = True
            return
        await self.client.await_all_finished(self.edges)

    def status(self) -> dict[str, Any]:
        """Return the state of the agent and whom it waits for, as plain data."""
        return describe_node(self)

    async def answer_request(self, sender: int, request: Frame) -> Frame | Publisher:
        return await self.service.answer_request(sender, request)
