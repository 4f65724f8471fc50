"""The network: a graph and its mixing matrix."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from diamond.network.link_values import Compute, PerAgent, PerEdge
from diamond.network.links import Links, revised
from diamond.network.spectrum import contraction, smallest


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """Agents 0..m-1 on a connected graph, and the weights with which they average.

        s_i <- sum_j M_ij s_j,   M symmetric, rows and columns sum to 1, M_ij != 0 on edges

    Made by the functions of `diamond.network`; `weights` is M, its diagonal included.
    """

    graph: nx.Graph
    weights: csr_array
    name: str
    mixing: str
    labels: tuple[Hashable, ...]
    draws: int = 1
    links: Links | None = None  # None: what travels takes no time

    @property
    def agents(self) -> int:
        """The number of agents, m."""
        return len(self.labels)

    @property
    def title(self) -> str:
        """Its name, with what its links are like: for tables and legends."""
        return self.name if self.links is None else f"{self.name}, {self.links!r}"

    @property
    def matrix(self) -> NDArray[np.float64]:
        """M as a dense (m, m) array."""
        return self.weights.toarray()

    @cached_property
    def lam(self) -> float:
        """How much of the disagreement survives one round: max(|lambda_2|, |lambda_m|)."""
        return contraction(self.weights)

    @cached_property
    def least(self) -> float:
        """The smallest eigenvalue of M."""
        return smallest(self.weights)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """The edges (i, j), i < j, in order."""
        return sorted((min(edge), max(edge)) for edge in self.graph.edges)

    @property
    def degrees(self) -> NDArray[np.int64]:
        """The number of neighbours of each agent, itself not counted."""
        return np.diff(self.weights.indptr).astype(np.int64) - 1

    @cached_property
    def diameter(self) -> int:
        """The most edges between two agents."""
        return int(nx.diameter(self.graph))

    def rounds_to_mix(self, tolerance: float = 1e-3) -> int:
        """Rounds until the disagreement has shrunk to `tolerance` times its start.

        ceil(log(tolerance) / log(lam)),   and 0 for one agent
        """
        if not 0 < tolerance < 1:
            raise ValueError(f"tolerance is {tolerance}; it must lie between 0 and 1")
        if self.agents == 1:
            return 0
        # The averaging matrix has lam = 0 up to rounding, and still needs its one round.
        return max(1, math.ceil(math.log(tolerance) / math.log(max(self.lam, 1e-300))))

    def with_links(
        self,
        rate: PerEdge | None = None,
        latency: PerEdge | None = None,
        loss: PerEdge | None = None,
        joules_per_bit: PerEdge | None = None,
        *,
        half_duplex: bool | None = None,
        shared_medium: bool | None = None,
        compute: Compute | None = None,
        stragglers: PerAgent | None = None,
        slow_chance: float | None = None,
        slow_factor: float | None = None,
    ) -> "Network":
        """The same network, on which runs count `network_seconds`, and `joules` where given.

        `rate` in bit/s, `latency` in seconds, `loss` the share of packets that are lost, all by
        default 0 but the rate: one number for all links, one each in the order of `edges`, or
        {(i, j): number, "other": number}. `half_duplex`: an agent talks with one neighbour at a
        time, and one after the other; `shared_medium`: and nobody else within range of the two.
        `compute`: seconds of an agent in a round, one number or one each; "measured" takes those of
        this machine. `stragglers`: {agent: how many times slower}; `slow_chance`: every agent is,
        in every round with this chance, `slow_factor` times slower. What is not given stays as it
        was. The formulas are those of `diamond.network.links` and `clock`.
        """
        one_way = self.graph.is_directed()
        given: dict[str, object] = {"rate": rate}
        given |= {"latency": latency, "loss": loss, "joules_per_bit": joules_per_bit}
        given |= {"half_duplex": half_duplex, "shared_medium": shared_medium, "compute": compute}
        given |= {"stragglers": stragglers, "slow_chance": slow_chance, "slow_factor": slow_factor}
        return replace(self, links=revised(self.links, self.edges, self.agents, given, one_way))

    def __repr__(self) -> str:
        """The line a log or a figure needs: sizes, rule, lam, and how often it was drawn."""
        # Three digits of 0.9999996 would read 1.000, which no connected graph has.
        lam = f"{self.lam:.3f}" if self.lam < 0.9995 else f"1 - {1 - self.lam:.1e}"
        edges = self.graph.number_of_edges()
        parts = [
            f"{self.agents} agent{'s' * (self.agents != 1)}",
            f"{edges} edge{'s' * (edges != 1)}",
            f"{self.mixing} mixing",
            f"lam = {lam}",
        ]
        if self.draws > 1:
            parts.append(f"drawn {self.draws} times")
        if self.links is not None:
            parts.append(f"links of {self.links!r}")
        return f"{self.name}: {', '.join(parts)}"
