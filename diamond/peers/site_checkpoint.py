"""Checkpoints of an agent, from which it resumes after a crash."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from ..core import pytrees
from ..records import checkpoint, resolved_values
from ..records.checkpoint import Damaged
from ..records.folder_recovery import unused
from . import message_store
from .audit import LOG
from .message_store import Key, Written
from .outbox import Outbox
from .round_progress import Mark, Progress

STATES, MESSAGES, FINISHED = "checkpoint", "messages", "finished.json"
RECENT, LOWEST, START = ".recent", ".lowest", ".start"  # prefixes of the arrays of rollback states


class _Own(NamedTuple):
    """Arrays of a `Progress`, by the names in any run's checkpoint."""

    state: Any
    spent: Any
    kept: Any = None


class OtherRun(ValueError):
    """Error: the folder has the checkpoint of another run."""


def save(folder: Path, run: str, progress: Progress, store: Outbox) -> dict[Key, Written]:
    """Write the messages that neighbours may still request, then the progress.

    Returns the locations of the messages that were in memory only.
    """
    places = message_store.save(folder / MESSAGES, progress.clock, store.frames)
    arrays = pytrees.named(_Own(progress.state, progress.spent, progress.kept))
    marks = {f"{RECENT}[{i}]": one for i, one in enumerate(progress.recent)}
    marks |= {LOWEST: progress.lowest} if progress.lowest else {}
    marks |= {START: progress.start} if progress.start else {}
    for where, one in marks.items():
        own = pytrees.named(_Own(one.state, None, one.kept))
        arrays |= {f"{where}{name}": leaf for name, leaf in own.items()}
    durable = {str(j): d for j, d in store.durable.items()}
    found = resolved_values.to_json(progress.found)
    counted = message_store.counts(store.frames | places)
    notes: dict[str, Any] = {"run": run, "durable": durable, "found": found, "messages": counted}
    notes |= {"base": progress.base, "marks": {where: one.t for where, one in marks.items()}}
    checkpoint.save(folder / STATES, progress.clock, arrays, notes)
    ends = {f"{round:010d}" for round in checkpoint.rounds(folder / STATES)}
    message_store.prune(folder / MESSAGES, ends | set(counted))
    return places


def restore(folder: Path, run: str, start: Progress, store: Outbox, exchanges: int = 1) -> Progress:
    """Restore the newest complete checkpoint and fill `store`; else return `start`.

    The algorithm is still that of `start`: estimated numbers are put into it later. Damaged
    checkpoints are set aside. If there was only one, the run restarts, since neighbours keep all
    messages until there are two (`safe`). Raises `OtherRun` if more than one is damaged and none is
    left, since neighbours have discarded the messages that a restart needs.
    """
    states = folder / STATES
    damage: list[str] = []
    for round in reversed(checkpoint.rounds(states)):
        try:
            kept = checkpoint.load(states, round)
            counted = kept.notes["messages"] if kept.notes["run"] == run else {}
            frames, whole = message_store.load(folder / MESSAGES, round, counted, run)
        except Damaged as found_out:
            moved = [(file, unused(file)) for file in checkpoint.files(states, round)]
            for file, aside in moved:
                if file.exists():
                    os.rename(file, aside)
            names = ", ".join(aside.name for _, aside in moved if aside.exists())
            damage.append(f"{found_out}; set aside as {names}")
            continue
        if kept.notes["run"] != run:
            raise OtherRun(
                f"{folder} has a checkpoint of another run (another problem, algorithm, network, "
                f"seed or number of rounds); choose another folder or remove it"
            )
        _log(damage, f"the run resumes from the checkpoint of round {round}")
        store.restore(frames, kept.notes["durable"], 0 if whole else exchanges * round)
        own = pytrees.like(_Own(start.state, start.spent, start.kept), kept.arrays)
        numbers = resolved_values.from_json(kept.notes["found"])
        base, marks = kept.notes.get("base", 0), _marks(start, kept.notes, kept.arrays)
        back = {"base": base, "start": marks.pop(START, None), "lowest": marks.pop(LOWEST, None)}
        back |= {"recent": tuple(marks.values())}
        return start._replace(t=kept.round - base, found=numbers, **own._asdict(), **back)
    once = {path.name[:10] for path in states.glob("[0-9]*.json*") if path.suffix != ".tmp"}
    if len(once) > 1:
        why = damage[0] if damage else "set aside"
        raise OtherRun(
            f"{folder}: none of its checkpoints can be read ({why}); restore one from a copy, or "
            f"start all sites with `diamond net start ... --onward`, and a new run begins where "
            f"they stood"
        )
    _log(damage, "the run begins again at round 0")
    return start


def _log(damage: list[str], consequence: str) -> None:
    for description in damage:
        LOG.warning(f"{description}: {consequence}")


def _marks(start: Progress, notes: Any, arrays: Any) -> dict[str, Mark]:
    """Return the rollback states in the order in which they were written."""
    found, like = {}, _Own(start.state, None, start.kept)
    for where, t in notes.get("marks", {}).items():
        own = {name: arrays[f"{where}{name}"] for name in pytrees.named(like)}
        one = pytrees.like(like, own)
        found[where] = Mark(t, one.state, one.kept)
    return found


def safe(folder: Path) -> int:
    """Return the round of the agent if its newest checkpoint were damaged."""
    kept = checkpoint.rounds(folder / STATES)
    return kept[-2] if len(kept) > 1 else 0


def finish(folder: Path, run: str, neighbours: set[int]) -> None:
    """Record which neighbours have finished."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"run": run, "neighbours": sorted(neighbours)}
    checkpoint.replace(folder / FINISHED, json.dumps(told).encode())


def finished(folder: Path, run: str) -> set[int]:
    """Return the neighbours that have finished."""
    path = folder / FINISHED
    try:
        told = json.loads(path.read_bytes())
        return {int(j) for j in told["neighbours"]} if told["run"] == run else set()
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError) as cause:
        aside = unused(path)
        os.rename(path, aside)
        LOG.warning(
            f"{path} is damaged ({cause}) and set aside as {aside.name}: neighbours that have "
            f"finished have to be started once more to say so"
        )
        return set()
