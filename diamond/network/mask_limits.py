"""Which networks can mask messages, and the largest number that an agent may then send."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from diamond.core.exclusions import check_combination
from diamond.network.membership_epochs import map_epochs

if TYPE_CHECKING:
    from diamond.network.communication_network import Network

DEFAULT_LIMIT = 2.0**20


def add_masks(network: "Network", limit: float) -> "Network":
    """Return `network` with masked sums of numbers up to `limit`."""
    used = network.features | {"masked sums": True, "further masks": network.mask_limit is not None}
    check_combination(used, network.name)
    if network.epochs:
        return map_epochs(network, lambda part: add_masks(part, limit))
    if reason := explain_unmaskable(network):
        raise ValueError(reason)
    return replace(network, mask_limit=as_limit(limit), name=f"{network.name}, masked")


def as_limit(limit: float) -> float:
    """Return the smallest power of two that is at least `limit`."""
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= 2.0**60:
        raise ValueError(
            f"limit = {limit!r}: the largest number that is sent lies above 0, at most at 2^60"
        )
    return 2.0 ** max(math.ceil(math.log2(limit)), -60)


def explain_unmaskable(network: "Network") -> str:
    """Say in a sentence which agent has too few neighbours for masked sums; empty if none has."""
    few = [i for i, degree in enumerate(network.degrees) if degree < 2]
    if not few:
        return ""
    return (
        f"{network.name}: agent {few[0]} has {network.degrees[few[0]]} neighbour, whose message is "
        f"the whole sum: masked sums need two or more at every agent, as on a ring"
    )


def describe_masks(network: "Network") -> str:
    """Say in a sentence whether single messages are hidden, or could be."""
    if network.mask_limit is not None:
        return (
            f"messages are masked: each site sees only the sum over its {network.degrees.min()} or "
            f"more neighbours, and numbers up to {network.mask_limit:.7g} can be sent"
        )
    if reason := explain_unmaskable(network):
        return f"messages are not masked, and cannot be: {reason}"
    return "messages are not masked, and each neighbour sees them: masked = true in the file"
