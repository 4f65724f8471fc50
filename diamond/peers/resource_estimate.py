"""Estimate of the disk and memory that the messages of a run take at a site."""

from typing import NamedTuple

import jax

from .site_agent import Agent
from .site_rollback import states

FILES = 4  # of messages: ending in two checkpoints, one still requested, one being written


class Room(NamedTuple):
    """Upper bounds in bytes."""

    disk: int
    memory: int


def room_for(agent: Agent, every: int, missing: str = "wait") -> Room:
    """Return the space of a run with a checkpoint every `every` rounds, beyond computing.

    A message is on the disk until no neighbour can be set back that far. Memory holds the messages
    since the last checkpoint and, while it is written, the following ones. If rounds continue
    without absent neighbours, the journal also keeps received messages; if runs may roll back,
    rollback states are kept.
    """
    told = every * agent.bytes
    heard = told * len(agent.neighbours) if missing == "continue" else 0
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(agent.begin().state))
    back = states(agent, missing == "continue") * state
    disk = FILES * told + 3 * heard + 3 * (state + back)
    return Room(disk, 2 * told + 2 * heard + 2 * state + back)
