"""Checkpoints of a node, written in the background of the next rounds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..rounds.round_progress import AgentProgress
from . import site_checkpoint
from .outbox import Outbox

if TYPE_CHECKING:
    from ..rounds.node import Node


class CheckpointWriter:
    """Writer of a node's checkpoints in its folder; without a folder, nothing is written."""

    def __init__(self, node: "Node"):
        self.agent, self.run, self.folder = node.agent, node.run_digest, node.folder
        self.service, self.client, self.edges = node.service, node.client, node.edges
        self.run_blocking = node.run_blocking
        self._pending: asyncio.Task[None] | None = None

    def restore(self) -> AgentProgress:
        """Return the progress of the last checkpoint, or else of the start.

        Fills the outbox, and sets what the checkpoint implies for the service and the client.
        """
        progress = self.agent.initial_progress()
        if self.folder is None:
            return progress
        outbox, tick_of = self.service.outbox, self.client.clock.tick_of
        source = self.folder, self.run, progress, outbox, tick_of
        progress = site_checkpoint.restore(*source)
        if progress.clock > self.agent.first_round:
            progress = self.agent.apply_estimates(progress)
        tick = self.agent.tick(progress)
        self.service.rollback_tick = progress.clock_offset * self.agent.exchange_count
        self.client.first_tick = tick
        fallback_tick = tick_of(site_checkpoint.fallback_round(self.folder))
        self.service.durable = min(fallback_tick, tick)
        self.service.finished = site_checkpoint.load_finished(self.folder, self.run)
        if self.agent.number in self.service.finished:
            self.client.first_tick = self.service.last_tick
        return progress

    def start(
        self, progress: AgentProgress, evaluate: Callable[[AgentProgress], Awaitable[None]]
    ) -> None:
        """Start a task that evaluates the progress, then saves it."""
        outbox = self.service.outbox.copy()

        async def evaluate_and_save() -> None:
            await evaluate(progress)
            await self.save(progress, outbox)

        self._pending = asyncio.ensure_future(evaluate_and_save())

    async def wait(self) -> None:
        """Wait until the pending checkpoint is on the disk."""
        if self._pending is not None:
            await self._pending

    async def cancel(self) -> None:
        """Cancel the pending checkpoint."""
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)

    async def save(self, progress: AgentProgress, outbox: Outbox) -> None:
        """Write a checkpoint with the messages; afterwards neighbours may discard theirs."""
        tick = self.agent.tick(progress)
        if self.folder is None:
            self.service.durable = tick
        else:
            self.service.outbox.replace_by_locations(
                await self.run_blocking(
                    site_checkpoint.save, self.folder, self.run, progress, outbox
                )
            )
            fallback_round = site_checkpoint.fallback_round(self.folder)
            self.service.durable = self.client.clock.tick_of(fallback_round)
        self.client.report_durable()
        if self.edges:
            first_round = self.service.outbox.first_round
            await self.edges.rotate_journal(tick, self.service.durable, first_round)

    def verify_last(self, rounds: int) -> None:
        """Raise if the checkpoint after the last round cannot be read back."""
        if self.folder is None:
            return
        start, outbox = self.agent.initial_progress(), Outbox(self.agent.neighbours)
        if site_checkpoint.restore(self.folder, self.run, start, outbox).t != rounds:
            raise OSError(f"{self.folder}: the last checkpoint cannot be read back")
