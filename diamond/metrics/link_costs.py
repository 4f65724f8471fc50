"""Simulated cost of a run on the links of its network: seconds and joules."""

from ..interface.traffic import Traffic
from ..network import Network
from ..network.links.link_clock import LinkClock
from ..schedules.deferred import ResolvedAlgorithm


class LinkCosts:
    """Counter of `network_seconds` and `joules` of a run; empty without links."""

    def __init__(self, network: Network, traffic: Traffic, seed: int):
        self.network, self.traffic = network, traffic
        links = network.links
        self.clock = (
            None if links is None else LinkClock(links, traffic.each, seed, network.active_edges)
        )

    def after(self, rounds: int, setup: ResolvedAlgorithm, seconds: float) -> dict[str, float]:
        """Return the costs after `rounds` rounds that took this machine `seconds`."""
        return self.of(rounds, setup.rounds, setup.bytes, seconds)

    def of(self, rounds: int, talks: int, talked: int, seconds: float) -> dict[str, float]:
        """Return the costs with `talks` exchanges of `talked` bytes for estimating numbers."""
        links = self.network.links
        if links is None or self.clock is None:
            return {}
        told = talked // (links.ways * max(len(links.edges), 1))  # per link and direction
        found = {"network_seconds": self.clock.seconds(rounds, talks, told, seconds)}
        active_rounds, each = self.clock.count_active_rounds(rounds), self.traffic
        around = (
            2 * links.headers * (active_rounds * each.exchanges + talks)
        )  # of message and request
        joules = links.joules(links.ways * (active_rounds * each.bytes + told + around))
        return found if joules is None else found | {"joules": joules}
