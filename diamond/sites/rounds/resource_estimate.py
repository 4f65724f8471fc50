"""Estimate of the disk and memory that the messages of a run take at a site."""

from typing import NamedTuple

import jax

from ..memory.site_rollback import max_rollback_states
from .site_agent import Agent

MESSAGE_FILES = 4  # of messages: ending in two checkpoints, one still requested, one being written


class ResourceEstimate(NamedTuple):
    """Upper bounds in bytes."""

    disk: int
    memory: int


def estimate_resources(agent: Agent, every: int, missing: str = "wait") -> ResourceEstimate:
    """Return the space of a run with a checkpoint every `every` rounds, beyond computing.

    A message is on the disk until no neighbour can be set back that far. Memory holds the messages
    since the last checkpoint and, while it is written, the following ones. If rounds continue
    without absent neighbours, the journal also keeps received messages; if runs may roll back,
    rollback states are kept.
    """
    sent_bytes = every * (agent.bytes_per_round + 2 * agent.mean_bytes_per_round)
    received_bytes = sent_bytes * len(agent.neighbours) if missing != "wait" else 0
    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(agent.initial_progress().state))
    rollback_bytes = max_rollback_states(agent, missing != "wait") * state_bytes
    disk = MESSAGE_FILES * sent_bytes + 3 * received_bytes + 3 * (state_bytes + rollback_bytes)
    return ResourceEstimate(
        disk, 2 * sent_bytes + 2 * received_bytes + 2 * state_bytes + rollback_bytes
    )
