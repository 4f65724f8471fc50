"""Where an epoch begins at one agent, kept on the disk until the epoch has ended."""

import os
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...core import pytrees
from ...core.pytrees import Tree
from ...records import checkpoint_file
from ..rounds.local_measures import bytes_sent
from ..rounds.round_progress import AgentProgress
from ..rounds.site_agent import Agent

ENTRY_FOLDER = "entry"
_EntryArrays = namedtuple("_EntryArrays", ["state", "spent"])


class EpochEntry(NamedTuple):
    """State in which an agent enters an epoch, and the agents that join then.

    Without a state, the agent itself joins. `past` has the last exchange of each earlier epoch by
    the digest of its run, so that the agent can confirm later that it finished them. Before
    `round`, all edges of an agent that enters late are down.
    """

    joining: frozenset[int]
    state: Any = None
    spent: Any = None
    past: Mapping[str, int] = {}
    bytes_sent: int = 0
    round: int = 0

    @property
    def point(self) -> tuple[Tree, Tree] | None:
        """Return x and y of an agent that stays."""
        return None if self.state is None else (self.state.x, self.state.y)


def epoch_folder(folder: Path, from_round: int) -> Path:
    """Return the folder of the checkpoints of an epoch."""
    return folder / f"epoch-{from_round}" if from_round else folder


def earlier_folders(folder: Path | None, from_round: int) -> list[Path]:
    """Return the folders of the epochs before the one with this folder, which begins there."""
    if folder is None or not from_round:
        return []
    rounds = (path.name.removeprefix("epoch-") for path in folder.parent.glob("epoch-*"))
    before = sorted(int(first) for first in rounds if first.isdigit() and int(first) < from_round)
    return [epoch_folder(folder.parent, first) for first in [0, *before]]


def enter_epoch(
    joining: frozenset[int],
    agent: Agent,
    last: AgentProgress,
    past: Mapping[str, int],
    round: int = 0,
) -> EpochEntry:
    """Return the entry of an agent that stays, after the last round of the epoch before."""
    return EpochEntry(joining, last.state, last.spent, past, bytes_sent(agent, last), round)


def save_entry(folder: Path, from_round: int, entry: EpochEntry) -> None:
    """Write an entry; once it is written, the epoch before has ended."""
    arrays = pytrees.named_leaves(_EntryArrays(entry.state, entry.spent))
    notes = {"past": dict(entry.past), "bytes": entry.bytes_sent, "joining": sorted(entry.joining)}
    notes |= {"round": entry.round} if entry.round else {}
    checkpoint_file.save(epoch_folder(folder, from_round) / ENTRY_FOLDER, from_round, arrays, notes)


def has_entry(folder: Path | None, from_round: int) -> bool:
    """Return whether the agent has entered that epoch."""
    place = folder and epoch_folder(folder, from_round) / ENTRY_FOLDER
    return place is not None and os.path.isdir(place) and bool(checkpoint_file.saved_rounds(place))


def load_entry(folder: Path, from_round: int, like: AgentProgress) -> EpochEntry:
    """Read an entry; `like` is the initial progress of the agent in that epoch."""
    saved = checkpoint_file.load(epoch_folder(folder, from_round) / ENTRY_FOLDER, from_round)
    state, spent = pytrees.from_named_leaves(_EntryArrays(like.state, like.spent), saved.arrays)
    joining = frozenset(int(j) for j in saved.notes["joining"])
    notes = saved.notes
    return EpochEntry(joining, state, spent, notes["past"], notes["bytes"], notes.get("round", 0))
