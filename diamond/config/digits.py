"""The problem "digits": handwritten digits, split over the agents by label."""

from typing import Any

from .. import data, gallery
from ..problem import Problem

Rows = dict[str, Any]  # "a": features, "b": labels
AGENTS = 9


def digits(agents: int = AGENTS, seed: int = 0) -> Problem:
    """Train hidden layers x shared by all agents and a last layer y_i for the digits of each."""
    return gallery.meta_learning(*partition_digits(agents, seed))


def partition_digits(
    agents: int = AGENTS, seed: int = 0
) -> tuple[list[Rows], list[Rows], list[Rows]]:
    """Partition 1,797 digits (8 x 8 pixels): each agent gets two runs of rows sorted by label."""
    a, b = data.digits().train
    parts = data.partition.by_label(b, agents, seed, shards=2)
    split = data.partition.split(parts, (0.4, 0.4, 0.2), seed)
    train, valid, test = ([{"a": a[i], "b": b[i]} for i in part] for part in split)
    return train, valid, test
