"""How much room the messages of a run take at a site, said before it begins."""

from typing import NamedTuple

import jax

from .agent import Agent
from .going_back import states

FILES = 4  # of messages: those two checkpoints end in, one still wanted, one being written


class Room(NamedTuple):
    """In bytes, at most."""

    disk: int
    memory: int


def room_for(agent: Agent, every: int, missing: str = "wait") -> Room:
    """What a run with a checkpoint every `every` rounds needs beyond its computing.

    A message is on the disk once, until no neighbour can be set back so far; in memory are those
    since the last checkpoint, and while these are written those that follow. Where rounds are made
    without those away, messages heard are kept as well, in the journal; where all may go back,
    states to go to.
    """
    told = every * agent.bytes
    heard = told * len(agent.neighbours) if missing == "continue" else 0
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(agent.begin().state))
    back = states(agent, missing == "continue") * state
    disk = FILES * told + 3 * heard + 3 * (state + back)
    return Room(disk, 2 * told + 2 * heard + 2 * state + back)
