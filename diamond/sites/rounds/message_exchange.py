"""Exchanges of a round: messages travel while this agent computes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ...auto import loss_monitor, rollback_limits
from ...core.exclusions import check_combination
from ...hardware.program_cache import compile_once
from ...interface.member_changes import common_point, mean_over_staying, start_between
from ...network.mixing.fixed_point import LimitExceeded
from ...privacy.private_runs import PrivacyRefusal
from ..identity.site_names import replace_agent_numbers
from ..memory import site_rollback
from ..memory.epoch_entry import EpochEntry
from ..memory.sent_record import frame_tag
from ..memory.site_rollback import MEAN_STEP, MESSAGE_STEPS, TOTAL_STEP
from ..transport import wire_format
from ..transport.audit import log_event
from ..transport.errors import RunFailed
from ..transport.timeouts import loop_time
from ..transport.wire_format import Envelope, Frame, FrameError, Layout
from ..trust.outlier_detection import OutlierDetector
from . import warm_restart
from .agent_programs import LocalResult
from .client import gather_or_cancel
from .max_consensus import MaxConsensus, NotAgreed
from .round_progress import AgentProgress
from .site_agent import MEAN_SOURCE
from .warm_restart import RestartPoint

if TYPE_CHECKING:
    from .node import Node


class ExchangeRunner:
    """Exchanges of the agent of a node with all neighbours."""

    def __init__(self, node: "Node"):
        agent, service = self.agent, self.service = node.agent, node.service
        self.run, self.name, self.clock = node.run_digest, node.name, node.clock
        self.client, self.edges, self.round_deadline = node.client, node.edges, node.round_deadline
        self.latest_messages = node.latest_messages
        self.run_blocking, self.sent = node.run_blocking, node.sent
        self.ledger, self.signatures, self.masks = node.ledger, node.signatures, node.masks
        sources, own_index = agent.sources, agent.sources.index(agent.number)
        names = [service.site_name(j) for j in sources]
        self.outlier_detector = OutlierDetector(sources, own_index, names, service.audit)
        # Messages of the last round by exchange, the agent's own included.
        self.messages: list[dict[int, list[Any]]] = []
        self.seconds_waited = 0.0  # without own work
        self.spent: Any = None  # oracle calls of the agent, discarded rounds included

    async def resolve_deferred(self, progress: AgentProgress) -> AgentProgress:
        """Estimate the numbers left to the run from the maximum over all agents.

        If the objective has risen, the agent rolls back and estimates them again; the next check
        sees whether the objective is above its start there as well.
        """
        progress = await self._resolve(progress)
        if (
            not self.clock.can_roll_back
            or not loss_monitor.MonitorState.read(progress.estimates).increase
        ):
            return progress
        progress, message = site_rollback.roll_back_to_lowest(self.agent, progress, self.clock.span)
        return await self._resume_after_rollback(progress, message)

    async def _resolve(self, progress: AgentProgress) -> AgentProgress:
        consensus, t = MaxConsensus(), self.agent.tick(progress)
        step = self.agent.first_consensus_step(progress.t)
        while True:
            try:
                work = self.agent.resolve_deferred, progress, consensus
                resolved: AgentProgress = await self.run_blocking(
                    compile_once, f"{self.run}-find", *work
                )
                self.spent = resolved.spent
                return resolved
            except NotAgreed as error:
                maximum = await self._network_maximum(error.values, t, step)
                consensus.agreed[error.name] = maximum
            step += self.agent.links.diameter

    async def _network_maximum(self, values: np.ndarray, t: int, step: int) -> np.ndarray:
        """Return the maximum over all agents, sent before exchange t, after `step` messages.

        Each agent sends its neighbours the largest values it knows, as often as the diameter.
        """
        used = {"masked sums": self.masks is not None, "privacy": self.ledger is not None}
        place = self.agent.network.name
        check_combination(used | {"open numbers": True}, place, error=PrivacyRefusal)
        for i in range(1, self.agent.links.diameter + 1):
            received = await self._exchange_arrays(t, [values], step + i)
            values = np.max([values, *(others for (others,) in received)], axis=0)
        return values

    async def _exchange_arrays(self, t: int, arrays: list[Any], step: int) -> list[list[Any]]:
        """Send arrays to all neighbours, and return theirs."""
        self.publish(t, arrays, step)
        start, layout = loop_time(), wire_format.layout_of(arrays)
        fetch = self.client.fetch_message
        neighbours = self.agent.neighbours
        received = await gather_or_cancel(fetch(j, t, step, layout) for j in neighbours)
        self.seconds_waited += loop_time() - start
        return [message for j, message in zip(neighbours, received) if not self._is_out(j, t)]

    async def check_growth(self, progress: AgentProgress) -> None:
        """Raise if x and y of any agent have outgrown the start, as in a simulation."""
        if not self.clock.can_roll_back or not site_rollback.is_state_due(progress):
            return
        sizes, t = site_rollback.current_sizes(self.agent, progress), self.agent.tick(progress)
        step = site_rollback.SIZE_CHECK_STEP + self.agent.first_consensus_step(progress.t)
        maxima = await self._network_maximum(sizes, t, step)
        current, start, before = maxima.tolist()
        if rollback_limits.has_exploded(current, start, before):
            raise FloatingPointError(
                f"{self.name} diverged by round {progress.t - 1}: x or y of a site is "
                f"{current:.2g} in size, where it began at {start:.2g}; start again with "
                f"smaller steps"
            )

    async def confirm_finished(
        self, progress: AgentProgress, before_step: Callable[[], Awaitable[None]] | None
    ) -> None:
        """Wait until all agents have finished all rounds.

        Then none can roll back any more, and all know of every change of members that any has
        accepted before, as `before_step` passes these on.
        """
        for i in range(1, self.agent.links.diameter + 1):
            if before_step is not None:
                await before_step()
            await self._exchange_arrays(self.clock.finish_tick(progress), [], i)

    async def roll_back(self, progress: AgentProgress, diverged_round: int | None) -> AgentProgress:
        """Roll back with all agents after divergence, here in `diverged_round` or elsewhere."""
        progress = progress._replace(spent=progress.spent if self.spent is None else self.spent)
        t = self.clock.rollback_tick(progress)
        self.service.record_rollback(t)
        local_round = site_rollback.MAX_SENT if diverged_round is None else diverged_round
        (latest,) = await self._network_maximum(np.array([-local_round], float), t, 0)
        diverged_round = int(min(-latest, self.clock.rounds))
        own_sizes = site_rollback.state_sizes(self.agent, progress, diverged_round)
        sizes = await self._network_maximum(own_sizes, t, self.agent.links.diameter)
        progress, message = site_rollback.roll_back_from_divergence(
            self.agent, progress, diverged_round, sizes.tolist(), span=self.clock.span
        )
        return await self._resume_after_rollback(progress, message)

    async def _resume_after_rollback(self, progress: AgentProgress, message: str) -> AgentProgress:
        """Continue after the rollback."""
        log_event(self.name, message)
        self.service.record_rollback(self.agent.tick(progress))
        return await self._resolve(progress)

    async def restart_progress(self, point: RestartPoint | None) -> AgentProgress:
        """Return the initial progress of this site in a warm restart; see `warm_restart`."""
        progress = self.agent.initial_progress()
        x, y = progress.state.x, progress.state.y
        arrays, step = warm_restart.outgoing_arrays(point, x), warm_restart.POINT_STEP
        self.publish(0, arrays, step)
        if point is None:
            layout, fetch = wire_format.layout_of(arrays), self.client.fetch_message
            received = await gather_or_cancel(
                fetch(j, 0, step, layout) for j in self.agent.neighbours
            )
            point = RestartPoint(warm_restart.mean_of_neighbours(received, x), y)
        if self.agent.mean_place is not None:  # such methods have one x, and one common y
            has_common_y = self.agent.problem.lower_level == "common"
            leaves, structure = jax.tree.flatten(point if has_common_y else point.x)
            own = [np.asarray(leaf) for leaf in leaves]
            mean = jax.tree.unflatten(structure, await self._exact_mean(0, own, step - 2, step - 1))
            point = mean if has_common_y else point._replace(x=mean)
        return self.agent.initial_progress_at(*point)

    async def begin_epoch(self, entry: EpochEntry) -> AgentProgress:
        """Return the progress at the first round of an epoch; see `interface.member_changes`."""
        agent, progress = self.agent, self.agent.initial_progress()
        tick, step = agent.tick(progress), warm_restart.POINT_STEP
        x, y = progress.state.x, progress.state.y
        if entry.point is not None:
            progress = progress._replace(state=entry.state, spent=entry.spent)
        if agent.mean_place is not None:
            return await self._begin_at_exact_mean(progress, entry)
        if agent.masked is not None:  # no x is sent in the clear
            return progress
        if entry.point is not None:
            if {*agent.neighbours} & entry.joining:
                self.publish(
                    tick, warm_restart.outgoing_arrays(RestartPoint(*entry.point), x), step
                )
            return progress
        layout = wire_format.layout_of(warm_restart.outgoing_arrays(None, x))
        sources = [j for j in agent.neighbours if j not in entry.joining]
        fetch = self.client.fetch_message if self.edges is None else self.edges.fetch_point
        points, is_last = dict[int, list[Any]](), not sources
        while not is_last:  # once one has answered, absent ones are asked once more
            is_last, missing = bool(points), [j for j in sources if j not in points]
            received = await gather_or_cancel(fetch(j, tick, step, layout) for j in missing)
            points |= {j: point for j, point in zip(missing, received) if point is not None}
        starts = [points[j][1:] for j in sources if points.get(j)]
        x = start_between(starts, x, agent.network)
        return progress._replace(state=agent.template.init(x, y))

    async def _begin_at_exact_mean(
        self, progress: AgentProgress, entry: EpochEntry
    ) -> AgentProgress:
        """Return the progress at the mean x, and common y, of the agents that stay."""
        agent, state, step = self.agent, progress.state, warm_restart.POINT_STEP
        leaves, structure = jax.tree.flatten(common_point(agent.problem, state.x, state.y))
        own = [np.asarray(leaf) for leaf in leaves]
        if entry.point is None:
            own = [np.zeros_like(leaf) for leaf in own]
        means = await self._exact_mean(agent.tick(progress), own, step - 2, step - 1)
        count = len(agent.members)
        means = mean_over_staying(means, count, count - len(entry.joining))
        point = jax.tree.unflatten(structure, [jax.numpy.asarray(mean) for mean in means])
        return progress._replace(state=state._replace(**dict(zip("xy", point))))

    async def run_round(self, progress: AgentProgress) -> AgentProgress:
        """Run one exchange after another."""
        all_messages: list[dict[int, list[Any]]] = []
        for exchange in range(self.agent.exchange_count):
            if not self.agent.has_exchange(progress.t):
                progress = await self._run_alone(progress, exchange)
                continue
            is_mean = self.agent.sends_mean(exchange)
            run_exchange = self._run_mean if is_mean else self._run_exchange
            run_exchange = self._run_asynchronous if self.latest_messages else run_exchange
            progress, messages = await run_exchange(progress, exchange)
            all_messages.append(messages)
        self.messages = all_messages or self.messages
        after: AgentProgress = await self.run_blocking(self.agent.finish_round, progress)
        self.spent = after.spent
        return after

    async def _run_alone(self, progress: AgentProgress, exchange: int) -> AgentProgress:
        """Run an exchange of a round without neighbours: nothing is sent."""
        local_result = await self.run_blocking(self.agent.compute, progress, exchange)
        self.spent = local_result.spent
        needed = None if self.agent.sends_before_gradient(exchange) else local_result
        own = await self.run_blocking(self.agent.outgoing_arrays, progress, exchange, needed)
        messages = dict.fromkeys(self.agent.sources, own)
        return await self._finish_exchange(progress, exchange, local_result, messages)

    async def _finish_exchange(self, *inputs: Any) -> AgentProgress:
        """Finish an exchange; the error of divergence has the names of sites."""
        try:
            after: AgentProgress = await self.run_blocking(self.agent.finish_exchange, *inputs)
        except FloatingPointError as error:
            raise FloatingPointError(
                replace_agent_numbers(str(error), self.service.names)
            ) from None
        return after

    async def _run_mean(
        self, progress: AgentProgress, exchange: int
    ) -> tuple[AgentProgress, dict[int, list[Any]]]:
        """Run an exchange that is an exact mean: totals go up the tree, the mean comes down."""
        agent, t = self.agent, self.agent.tick(progress, exchange)
        local_result = await self.run_blocking(agent.compute, progress, exchange)
        self.spent = local_result.spent
        own_message = await self.run_blocking(
            agent.outgoing_arrays, progress, exchange, local_result
        )
        mean = await self._exact_mean(t, own_message, TOTAL_STEP, MEAN_STEP)
        messages = {agent.number: own_message, MEAN_SOURCE: mean}
        return await self._finish_exchange(progress, exchange, local_result, messages), messages

    async def _exact_mean(
        self, t: int, arrays: list[Any], total_step: int, mean_step: int
    ) -> list[Any]:
        """Return the mean of the arrays over all agents, with messages of these steps."""
        start, layout, fetch = loop_time(), wire_format.layout_of(arrays), self._fetch_for_mean
        place = self.agent.mean_place
        assert place is not None
        received = await gather_or_cancel(fetch(j, t, total_step, layout) for j in place.children)
        mean = await self.run_blocking(place.add, arrays, received)
        if place.parent is not None:
            self.publish(t, mean, total_step)
            mean = await fetch(place.parent, t, mean_step, layout)
        if place.children:
            self.publish(t, mean, mean_step)
        self.seconds_waited += loop_time() - start
        return mean

    async def _fetch_for_mean(self, j: int, t: int, step: int, layout: Layout) -> list[Any]:
        """Return a total or the mean of neighbour j; raises `RunFailed` if j is proven to lie."""
        message = await self.client.fetch_message(j, t, step, layout)
        if self._is_out(j, t):
            raise RunFailed(
                f"{self.service.site_name(j)} is proven to lie, and an exact mean needs all sites: "
                f"start the run again without it"
            )
        return message

    async def _run_exchange(
        self, progress: AgentProgress, exchange: int
    ) -> tuple[AgentProgress, dict[int, list[Any]]]:
        """Run one exchange; requests and early messages are sent first."""
        is_early, own_message = self.agent.sends_before_gradient(exchange), []
        begin, t = loop_time(), self.agent.tick(progress, exchange)
        if self.round_deadline:
            self.round_deadline.begin_exchange(t)
        if is_early:
            own_message = await self._publish_outgoing(progress, exchange, None)
        neighbours = self.agent.neighbours
        requests = {
            j: asyncio.ensure_future(self._receive_message(j, t))
            for j in neighbours
            if not self.client.is_subscribed(j, t)
        }
        try:
            if requests:
                await asyncio.sleep(0)
            local_result = await self.run_blocking(self.agent.compute, progress, exchange)
            self.spent = local_result.spent
            if not is_early:
                own_message = await self._publish_outgoing(progress, exchange, local_result)
            start = loop_time()
            if self.round_deadline:
                responses = await self.round_deadline.collect(requests, t, begin)
            else:
                responses = dict(zip(requests, await asyncio.gather(*requests.values())))
            received = [
                responses[j] if j in responses else await self._receive_message(j, t)
                for j in neighbours
            ]
        finally:
            for task in requests.values():
                task.cancel()
        self.seconds_waited += loop_time() - start
        if self.edges:
            self.service.outbox.drop_unneeded()
        by_neighbour = [
            (j, None if self._is_out(j, t) else message) for j, message in zip(neighbours, received)
        ]
        absent = [j for j, message in by_neighbour if message is None]
        messages = {j: own_message if message is None else message for j, message in by_neighbour}
        messages[self.agent.number] = own_message
        try:
            after: AgentProgress = await self.run_blocking(
                self.agent.finish_exchange, progress, exchange, local_result, messages
            )
        except FloatingPointError as error:
            reason = replace_agent_numbers(str(error), self.service.names)
            self._detect_outliers(t, exchange, absent)
            counts = self.outlier_detector.describe_counts()
            raise FloatingPointError("; ".join([reason, *counts])) from None
        self._detect_outliers(t, exchange, absent)
        return after, messages

    async def _run_asynchronous(
        self, progress: AgentProgress, exchange: int
    ) -> tuple[AgentProgress, dict[int, list[Any]]]:
        """Run the exchange of a round with the messages that have arrived."""
        agent, mixing, states = self.agent, self.agent.asynchronous, progress.channel_states
        assert mixing is not None and self.latest_messages is not None
        is_early, t = agent.sends_before_gradient(exchange), agent.tick(progress, exchange)
        work = agent.outgoing_arrays, progress, exchange
        own = await self.run_blocking(*work, None) if is_early else []
        bundle = self.publish(t, mixing.bundle(states, own)) if is_early else []
        local_result = await self.run_blocking(agent.compute, progress, exchange)
        self.spent = local_result.spent
        if not is_early:
            own = await self.run_blocking(*work, local_result)
            bundle = self.publish(t, mixing.bundle(states, own))
        received = await self.latest_messages.use_messages(t)
        mixed, states = mixing.receive(states, own, bundle, received)
        messages = mixed | {agent.number: own}
        after = await self._finish_exchange(progress, exchange, local_result, messages)
        sources = dict(zip(agent.neighbours, [[*state.received] for state in states]))
        return after._replace(channel_states=states), sources | {agent.number: own}

    def _is_out(self, j: int, t: int) -> bool:
        """Return whether messages of j are not used, since it is proven to lie."""
        return self.signatures is not None and self.signatures.is_out(j, t)

    def _detect_outliers(self, t: int, exchange: int, absent: list[int]) -> None:
        """Detect outliers among the messages of exchange t, number `exchange` of its round."""
        if self.agent.distances is not None:
            round = self.clock.round_of(t)
            self.outlier_detector.detect_outliers(round, *self.agent.distances, absent, exchange)

    async def _publish_outgoing(
        self, progress: AgentProgress, exchange: int, local_result: LocalResult | None
    ) -> list[Any]:
        work = self.agent.outgoing_arrays, progress, exchange, local_result
        return self.publish(self.agent.tick(progress, exchange), await self.run_blocking(*work))

    def publish(self, t: int, arrays: list[Any], consensus_step: int = 0) -> list[Any]:
        """Publish arrays as the message of exchange t, or before it.

        Privacy is spent in the ledger first. Before round 0 only the x of an earlier run is sent,
        which that run has paid for.
        """
        if self.ledger is not None and arrays and not consensus_step:
            self.ledger.record(t, self.clock.round_of(t), arrays)
        envelope = Envelope(self.run, self.agent.number, t, consensus_step)
        try:
            encode = self.signatures.encode if self.signatures else wire_format.encode
            frame = encode(envelope, arrays)
            if self.signatures is None and not self.clock.negotiates(t):
                self._record_sent(envelope, arrays, frame)
            self.service.publish(t, frame, consensus_step)
        except (FrameError, LimitExceeded) as cause:
            what = "its message" if consensus_step in MESSAGE_STEPS else "what it measures"
            raise FloatingPointError(
                f"{self.name} diverged in round {self.clock.round_of(t)}: {what} has {cause}; "
                f"start again with smaller steps"
            ) from None
        return arrays

    def _record_sent(self, envelope: Envelope, arrays: list[Any], frame: Frame) -> None:
        """Record a message that is not signed, before it is sent."""
        t, step = envelope.round, envelope.consensus_step
        place = t, step, frame_tag(frame), self.clock.round_of(t)
        if self.agent.asynchronous is not None and arrays:
            numbers = {self.service.site_name(j): j for j in self.agent.neighbours}
            part = self.agent.asynchronous.frame_for
            digest_for = lambda name: frame_tag(part(numbers[name], envelope, frame))
            return self.sent.record(*place, digest_for=digest_for)
        if self.masks is None or step or not arrays:
            return self.sent.record(*place)
        masks, numbers = self.masks, {self.service.site_name(j): j for j in self.agent.neighbours}
        masks.prepare(t, arrays)
        digest_for = lambda name: frame_tag(masks.mask_frame(numbers[name], t, frame))
        self.sent.record(*place, f"mask {masks.keys.public_key.hex()}", digest_for)

    async def _receive_message(self, j: int, t: int) -> list[Any] | None:
        """Return the message of j of exchange t; None if the edge is down."""
        if self.edges is None:
            return await self.client.fetch_message(j, t)
        with self.client.neighbour_status[j].mark_awaited():
            message = await self.edges.agree_on_message(j, t)
        if message is not None:
            self.client.neighbour_status[j].round = self.clock.round_of(t)
        return message
