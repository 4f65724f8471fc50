"""Checkpoints of an agent, from which it resumes after a crash, written in the background."""

import asyncio
import json
from collections import namedtuple
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import pytrees
from ...core.parsing import refuse_unreadable
from ...records import checkpoint_file, resolved_values
from ...records.checkpoint_file import DamagedCheckpoint
from ...records.folder_recovery import set_aside
from ..rounds.round_progress import AgentProgress, RollbackState
from ..transport.audit import log_event
from . import message_store
from .message_store import Locations
from .outbox import Outbox

if TYPE_CHECKING:
    from ..rounds.node import Node

STATE_FOLDER, MESSAGE_FOLDER, FINISHED_FILE = "checkpoint", "messages", "finished.json"
# Prefixes of the arrays of rollback states.
RECENT_PREFIX, LOWEST_PREFIX, START_PREFIX = ".recent", ".lowest", ".start"
RECEIPTS = ".receipts"


# Arrays of an `AgentProgress`, by the names in any run's checkpoint: state, cost, channel states.
_SavedArrays = namedtuple("_SavedArrays", ["state", "spent", "kept"])


class OtherRun(ValueError):
    """Error: the folder has the checkpoint of another run."""


def save(folder: Path, run: str, progress: AgentProgress, outbox: Outbox) -> Locations:
    """Write the messages that neighbours may still request, then the progress.

    Returns the locations of the messages that were in memory only.
    """
    places = message_store.save(folder / MESSAGE_FOLDER, progress.clock, outbox.frames)
    arrays = pytrees.named_leaves(
        _SavedArrays(progress.state, progress.spent, progress.channel_states)
    )
    states = {f"{RECENT_PREFIX}[{i}]": state for i, state in enumerate(progress.recent_states)}
    states |= {LOWEST_PREFIX: progress.lowest_state} if progress.lowest_state else {}
    states |= {START_PREFIX: progress.start} if progress.start else {}
    for prefix, saved in states.items():
        leaves = pytrees.named_leaves(_SavedArrays(saved.state, None, saved.channel_states))
        arrays |= {f"{prefix}{name}": leaf for name, leaf in leaves.items()}
    arrays[RECEIPTS] = outbox.receipts.to_array()
    durable = {str(j): d for j, d in outbox.durable.items()}
    estimates = resolved_values.to_json(progress.estimates)
    counts = message_store.count_messages(outbox.frames | places)
    notes: dict[str, Any] = {"run": run, "durable": durable, "found": estimates, "messages": counts}
    notes |= {"base": progress.clock_offset, "marks": {k: saved.t for k, saved in states.items()}}
    checkpoint_file.save(folder / STATE_FOLDER, progress.clock, arrays, notes)
    ends = {f"{round:010d}" for round in checkpoint_file.saved_rounds(folder / STATE_FOLDER)}
    message_store.prune(folder / MESSAGE_FOLDER, ends | set(counts))
    return places


def restore(
    folder: Path,
    run: str,
    start: AgentProgress,
    outbox: Outbox,
    tick_of: Callable[[int], int] = lambda round: round,
    remedy: str = "start all sites with --onward",
) -> AgentProgress:
    """Restore the newest complete checkpoint and fill `outbox`; else return `start`.

    The algorithm is still that of `start`: estimated numbers are put into it later. Damaged
    checkpoints are set aside. If there was only one, the run restarts, since neighbours keep all
    messages until there are two (`fallback_round`). Raises `OtherRun` if more than one is damaged
    and none is left, since neighbours have discarded the messages that a restart needs.
    """
    states = folder / STATE_FOLDER
    damage: list[str] = []
    for round in reversed(checkpoint_file.saved_rounds(states)):
        try:
            saved = checkpoint_file.load(states, round)
            with refuse_unreadable(DamagedCheckpoint, f"{states}, round {round}: no checkpoint"):
                is_of_run = saved.notes["run"] == run
                counts = saved.notes["messages"] if is_of_run else {}
                place = folder / MESSAGE_FOLDER
                frames, is_complete = message_store.load(place, round, counts, run)
                progress = _read_progress(saved, start) if is_of_run else start
                if is_of_run:
                    first = 0 if is_complete else tick_of(round)
                    outbox.restore(frames, saved.notes["durable"], first)
                    if RECEIPTS in saved.arrays:  # the first release wrote none
                        outbox.receipts.restore(saved.arrays[RECEIPTS])
        except DamagedCheckpoint as error:
            files = checkpoint_file.checkpoint_files(states, round)
            names = ", ".join(set_aside(file).name for file in files if file.exists())
            damage.append(f"{error}; moved aside as {names}")
            continue
        if not is_of_run:
            raise OtherRun(
                f"{folder} has a checkpoint of another run (another problem, algorithm, network, "
                f"seed or number of rounds); choose another folder or remove it"
            )
        _log_damage(damage, f"the run resumes from the checkpoint of round {round}")
        return progress
    attempts = {path.name[:10] for path in states.glob("[0-9]*.json*") if path.suffix != ".tmp"}
    if len(attempts) > 1:
        why = damage[0] if damage else "set aside"
        raise OtherRun(
            f"{folder}: none of its checkpoints can be read ({why}); restore one from a copy, or "
            f"{remedy}"
        )
    _log_damage(damage, "the run starts again at round 0")
    return start


def _read_progress(saved: checkpoint_file.Checkpoint, start: AgentProgress) -> AgentProgress:
    """Return the progress in a checkpoint."""
    like = _SavedArrays(start.state, start.spent, start.channel_states)
    state, spent, channel_states = pytrees.from_named_leaves(like, saved.arrays)
    clock_offset = saved.notes.get("base", 0)
    rollback_states = _rollback_states(start, saved.notes, saved.arrays)
    return start._replace(
        t=saved.round - clock_offset,
        state=state,
        spent=spent,
        estimates=resolved_values.from_json(saved.notes["found"]),
        channel_states=channel_states,
        clock_offset=clock_offset,
        start=rollback_states.pop(START_PREFIX, None),
        lowest_state=rollback_states.pop(LOWEST_PREFIX, None),
        recent_states=tuple(rollback_states.values()),
    )


def load_round(folder: Path, round: int, start: AgentProgress) -> AgentProgress:
    """Load the progress in the checkpoint of one round."""
    return _read_progress(checkpoint_file.load(folder / STATE_FOLDER, round), start)


def _log_damage(damage: list[str], consequence: str) -> None:
    for description in damage:
        log_event(description, consequence)


def _rollback_states(start: AgentProgress, notes: Any, arrays: Any) -> dict[str, RollbackState]:
    """Return the rollback states in the order in which they were written."""
    states, like = {}, _SavedArrays(start.state, None, start.channel_states)
    for prefix, t in notes.get("marks", {}).items():
        leaves = {name: arrays[f"{prefix}{name}"] for name in pytrees.named_leaves(like)}
        state, _, channel_states = pytrees.from_named_leaves(like, leaves)
        states[prefix] = RollbackState(t, state, channel_states)
    return states


def fallback_round(folder: Path) -> int:
    """Return the round of the agent if its newest checkpoint were damaged."""
    rounds = checkpoint_file.saved_rounds(folder / STATE_FOLDER)
    return rounds[-2] if len(rounds) > 1 else 0


def record_finished(folder: Path, run: str, neighbours: set[int]) -> None:
    """Record which neighbours have finished."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"run": run, "neighbours": sorted(neighbours)}
    checkpoint_file.replace_file(folder / FINISHED_FILE, json.dumps(document).encode())


def load_finished(folder: Path, run: str) -> set[int]:
    """Return the neighbours that have finished."""
    path = folder / FINISHED_FILE
    if not path.exists():
        return set()
    try:
        with refuse_unreadable(DamagedCheckpoint, "not what was written"):
            document = json.loads(path.read_bytes())
            return {int(j) for j in document["neighbours"]} if document["run"] == run else set()
    except DamagedCheckpoint as cause:
        log_event(
            f"{path} is damaged ({cause}) and moved aside as {set_aside(path).name}",
            "neighbours that have finished must be started again to confirm it",
        )
        return set()


class CheckpointWriter:
    """Writer of a node's checkpoints in its folder; without a folder, nothing is written."""

    def __init__(self, node: "Node"):
        self.agent, self.run, self.folder = node.agent, node.run_digest, node.folder
        self.remedy = node.sent.remedy
        self.service, self.client = node.service, node.client
        self.edges = node.edges or node.latest_messages
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
        source = self.folder, self.run, progress, outbox, tick_of, self.remedy
        progress = restore(*source)
        if progress.clock > self.agent.first_round:
            progress = self.agent.apply_estimates(progress)
        tick = self.agent.tick(progress)
        self.service.rollback_tick = progress.clock_offset * self.agent.exchange_count
        self.client.first_tick = tick
        fallback_tick = tick_of(fallback_round(self.folder))
        self.service.durable = min(fallback_tick, tick)
        self.service.finished = load_finished(self.folder, self.run)
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
                await self.run_blocking(save, self.folder, self.run, progress, outbox)
            )
            self.service.durable = self.client.clock.tick_of(fallback_round(self.folder))
        self.client.report_durable()
        if self.edges:
            first_round = self.service.outbox.first_round
            await self.edges.rotate_journal(tick, self.service.durable, first_round)

    def verify_last(self, rounds: int) -> None:
        """Raise if the checkpoint after the last round cannot be read back."""
        if self.folder is None:
            return
        start, outbox = self.agent.initial_progress(), Outbox(self.agent.neighbours)
        if restore(self.folder, self.run, start, outbox).t != rounds:
            raise OSError(f"{self.folder}: the last checkpoint cannot be read back")
