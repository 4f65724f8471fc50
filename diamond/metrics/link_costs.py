"""Simulated cost of a run on the links of its network: seconds and joules."""

import numpy as np

from ..interface.traffic import Traffic
from ..network import Network
from ..network.links.link_clock import LinkClock
from ..network.spanning_tree import count_mean_messages, mean_steps, mean_tries
from ..schedules.deferred import ResolvedAlgorithm


class LinkCosts:
    """Counter of `network_seconds` and `joules` of a run; empty without links."""

    def __init__(self, network: Network, traffic: Traffic, seed: int):
        self.network, self.traffic = network, traffic
        links, self.clock = network.links, None
        if links is not None:
            periods = range(len(network.phases) if traffic.means else 0)
            means = traffic.means, [mean_steps(network, t) for t in periods], mean_tries(network)
            self.clock = LinkClock(links, traffic.per_exchange, seed, network.active_edges, *means)

    def costs_after(
        self, rounds: int, setup: ResolvedAlgorithm, seconds: float
    ) -> dict[str, float]:
        """Return the costs after `rounds` rounds that took this machine `seconds`."""
        return self.costs(rounds, setup.rounds, setup.bytes, seconds)

    def costs(
        self, rounds: int, setup_exchanges: int, setup_bytes: int, seconds: float
    ) -> dict[str, float]:
        """Return the costs, including the exchanges for estimating numbers before the rounds."""
        links = self.network.links
        if links is None or self.clock is None:
            return {}
        setup_bytes_per_link = setup_bytes // (
            links.ways * max(len(links.edges), 1)
        )  # per link and direction
        result = {
            "network_seconds": self.clock.seconds(
                rounds, setup_exchanges, setup_bytes_per_link, seconds
            )
        }
        active_rounds, traffic = self.clock.count_active_rounds(rounds), self.traffic
        header_bytes = (
            2 * links.headers * (active_rounds * traffic.exchanges + setup_exchanges)
        )  # of message and request
        count = links.ways * (active_rounds * traffic.bytes + setup_bytes_per_link + header_bytes)
        if traffic.means:
            bytes_of_mean = sum(traffic.per_exchange[k][0] for k in traffic.means)
            bytes_of_mean += 2 * links.headers * len(traffic.means)
            messages = count_mean_messages(self.network, rounds)
            count = count + np.array([messages[edge] for edge in links.edges]) * bytes_of_mean
        joules = links.joules(count)
        return result if joules is None else result | {"joules": joules}
