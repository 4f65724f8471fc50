"""What an agent needs to go on after a crash, on its disk."""

import json
from pathlib import Path

from .. import checkpoint, tree
from ..checkpoint import Damaged
from ..folder import found
from .agent import Progress
from .store import Store

STATES, FINISHED = "checkpoint", "finished.json"


class OtherRun(ValueError):
    """A folder with the checkpoint of another run."""


def save(folder: Path, run: str, progress: Progress, store: Store) -> None:
    """Write where the agent stands and the messages its neighbours may still need."""
    arrays = {f"own{name}": leaf for name, leaf in _named(progress).items()} | store.arrays()
    durable = {str(j): d for j, d in store.durable.items()}
    notes = {"run": run, "durable": durable, "found": found.told(progress.found)}
    checkpoint.save(folder / STATES, progress.t, arrays, notes)


def restore(folder: Path, run: str, start: Progress, store: Store) -> Progress:
    """Where the newest whole checkpoint leaves the agent, with `store` filled; else `start`.

    The algorithm is that of `start` still: the numbers found are yet to be put into it.
    Checkpoints that are damaged are removed: the one before them counts.
    """
    states = folder / STATES
    for round in reversed(checkpoint.rounds(states)):
        try:
            kept = checkpoint.load(states, round)
        except Damaged:
            checkpoint.discard(states, round)
            continue
        if kept.notes["run"] != run:
            raise OtherRun(
                f"{folder} has a checkpoint of another run (another problem, algorithm, network, "
                f"seed or number of rounds); choose another folder or remove it"
            )
        own = {name[3:]: leaf for name, leaf in kept.arrays.items() if name.startswith("own")}
        store.restore(kept.arrays, kept.notes["durable"])
        state, spent = tree.like((start.state, start.spent), own)
        numbers = found.read(kept.notes["found"])
        return start._replace(t=kept.round, state=state, spent=spent, found=numbers)
    return start


def safe(folder: Path) -> int:
    """The round that the agent would be set back to if its newest checkpoint were damaged."""
    kept = checkpoint.rounds(folder / STATES)
    return kept[-2] if len(kept) > 1 else 0


def finish(folder: Path, run: str, neighbours: set[int]) -> None:
    """Write which neighbours have finished."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"run": run, "neighbours": sorted(neighbours)}
    checkpoint.replace(folder / FINISHED, json.dumps(told).encode())


def finished(folder: Path, run: str) -> set[int]:
    """The neighbours that have finished."""
    path = folder / FINISHED
    told = json.loads(path.read_bytes()) if path.exists() else {}
    return set(told["neighbours"]) if told.get("run") == run else set()


def _named(progress: Progress) -> dict[str, object]:
    return tree.named((progress.state, progress.spent))
