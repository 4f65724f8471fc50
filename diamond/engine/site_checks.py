"""Checks of a run of sites before it begins."""

from ..core.exclusions import check_combination
from ..core.validation import as_int
from ..interface.round_interface import Algorithm
from ..network import Network
from ..problem import Problem
from ..sites.rounds.node import MissingPolicy
from .simulate import check_network_kind


def check_counts(rounds: int, seed: int, every: int = 1) -> None:
    """Refuse values with which the run would never end or never begin."""
    as_int("rounds", rounds, 1)
    as_int("every", every, 1)
    as_int("seed", seed)


def check_changes(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    missing: MissingPolicy = "wait",
    *,
    deadline: float | str | None = None,
) -> None:
    """Refuse methods that are wrong where some rounds have fewer links, and lone deadlines."""
    used = {"a deadline": deadline is not None, f"missing='{missing}'": True}
    check_combination(network.features | used, network.name, "sites")
    if network.sequence or deadline is not None:
        check_network_kind(network if network.sequence else network.every(2), algorithm, problem)
