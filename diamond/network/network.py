"""The network: a graph and its mixing matrix, or several of them in turn."""

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from diamond.network.links.properties import Links, revised
from diamond.network.links.values import Compute, PerAgent, PerEdge
from diamond.network.spectrum import contraction, perron, smallest, survival, tracking_limit


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """Agents 0..m-1 on a connected graph, and the weights with which they average.

        s_i <- sum_j M_ij s_j,   M symmetric, rows and columns sum to 1, M_ij != 0 on edges

    Made by the functions of `diamond.network`; `weights` is M, its diagonal included. Where links
    go one way, rows of `weights` sum to 1 (what is averaged) and columns of `shares` (what must
    keep its sum); an arc (j, i) of the graph says that i hears j. A network that changes is its
    `sequence` in turn, one a round; its graph has the links of all of them, its weights are means.
    """

    graph: nx.Graph
    weights: csr_array
    name: str
    mixing: str
    labels: tuple[Hashable, ...]
    draws: int = 1
    shares: csr_array | None = None  # None: M itself
    sequence: tuple["Network", ...] = ()
    channels: tuple[Any, ...] = ()  # what becomes of a message on its way; none: perfect links
    damping: Any = 1.0  # the share of a change that is made, or a schedule of it
    links: Links | None = None  # None: what travels takes no time

    def through(self, *channels: Any, gamma: Any = None) -> "Network":
        """The same network whose messages go through `channels` (`diamond.network.channels`).

        They are given one by one, or as a list as in files. Of what is left of a change only the
        share `gamma` is made, a number or a schedule: damped mixing keeps noise, delay and
        compression from growing. None: what the channels ask for.
        """
        from diamond.network.channels.channel import check_channels

        if len(channels) == 1 and isinstance(channels[0], list | tuple):
            channels = tuple(channels[0])
        if self.channels:
            raise ValueError(f"{self.name} has channels already; give all of them at once")
        check_channels(channels, self.name if self.sequence else None)
        if gamma is None:
            gamma = min((one.gamma for one in channels), default=1.0)
        elif not callable(gamma) and not 0 < gamma <= 1:
            raise ValueError(f"gamma = {gamma}: the share of a change lies above 0, at most at 1")
        name = f"{self.name} through {', '.join(one.name for one in channels)}"
        return replace(self, channels=channels, damping=gamma, name=name if channels else self.name)

    def damped(self, *rounds: int) -> "Network":
        """As it mixes where only the share gamma of a change is made: M is (1 - gamma) I + gamma M.

        Of a gamma that is a schedule, the smallest in these `rounds`.
        """
        gamma = (
            min(map(float, map(self.damping, rounds))) if callable(self.damping) else self.damping
        )
        if gamma == 1:
            return self
        mixed = lambda m: csr_array((1 - gamma) * eye_array(self.agents) + gamma * m)
        shares = None if self.shares is None else mixed(self.shares)
        parts = tuple(replace(one, damping=gamma).damped() for one in self.sequence)
        made = replace(self, weights=mixed(self.weights), shares=shares, sequence=parts)
        return replace(made, damping=1.0)

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

    @property
    def phases(self) -> tuple["Network", ...]:
        """The networks of rounds 0, 1, ..., which repeat; of a fixed network, itself alone."""
        return self.sequence or (self,)

    @cached_property
    def kind(self) -> str:
        """What methods must know of it: "symmetric" (and always the same), "balanced" (rows and

        columns sum to 1 in every round), or "directed".
        """
        if not self.sequence and self.shares is None:
            return "symmetric"
        return "balanced" if all(_balanced(one) for one in self.phases) else "directed"

    @cached_property
    def lam(self) -> float:
        """How much of the disagreement survives one round: max(|lambda_2|, |lambda_m|).

        Of a directed or changing network, |lambda_2| of the product over a period, to the power
        1 / period; of `weights` or of `shares`, whichever is larger.
        """
        if self.kind == "symmetric":
            return contraction(self.weights)
        found = survival([one.weights for one in self.phases])
        if self.kind == "directed":
            found = max(found, survival([_shares(one).T.tocsr() for one in self.phases[::-1]]))
        return found ** (1 / len(self.phases))

    @cached_property
    def perron(self) -> NDArray[np.float64]:
        """How much the start of each agent counts in what all come to agree on, by averaging.

        pi^T R = pi^T,  R the product over a period,  sum_i pi_i = 1;  1 / m where balanced
        """
        if self.kind != "directed":
            return np.full(self.agents, 1 / self.agents)
        return perron([one.weights for one in self.phases])

    @cached_property
    def loads(self) -> NDArray[np.float64]:
        """Which share of a total each agent ends up with: C c = c, sum_i c_i = 1."""
        if self.kind != "directed":
            return np.full(self.agents, 1 / self.agents)
        return perron([_shares(one).T.tocsr() for one in self.phases[::-1]])

    @cached_property
    def least(self) -> float:
        """The smallest eigenvalue of M."""
        return smallest(self.weights)

    @property
    def pull(self) -> float:
        """How much longer a tracked step is than its mean over the agents: m sum_i pi_i c_i."""
        return float(self.agents * self.perron @ self.loads)

    @cached_property
    def tracking(self) -> dict[str, float]:
        """The largest step times curvature at which tracking is stable, by the order of mixing."""
        if self.kind == "symmetric":
            return {"atc": math.inf, "paper": math.inf}  # what curvature alone allows is less
        each = self.sequence or (self,)
        rows = [one.weights for one in each]
        columns = [one.weights if one.shares is None else one.shares for one in each]
        return {
            order: tracking_limit(rows, columns, order == "paper") for order in ("atc", "paper")
        }

    @property
    def edges(self) -> list[tuple[int, int]]:
        """The edges (i, j), i < j, in order; of a directed graph, (sender, receiver)."""
        if self.graph.is_directed():
            return sorted(self.graph.edges)
        return sorted((min(edge), max(edge)) for edge in self.graph.edges)

    def uses(self, rounds: int) -> dict[tuple[int, int], int]:
        """How many messages go over each edge in that many rounds, one each, both ways."""
        if not self.sequence:
            return dict.fromkeys(self.edges, rounds * (1 if self.graph.is_directed() else 2))
        whole, rest = divmod(rounds, len(self.sequence))
        found = Counter(dict.fromkeys(self.edges, 0))
        for t, one in enumerate(self.sequence):
            for edge, count in one.uses(whole + (t < rest)).items():
                ways = [edge] if edge in found else [edge[::-1]]
                if self.graph.is_directed() and not one.graph.is_directed():
                    ways, count = [edge, edge[::-1]], count // 2
                found.update(dict.fromkeys(ways, count))
        return dict(found)

    @property
    def active(self) -> list[list[int]] | None:
        """Where the network changes: which of `edges` are there in rounds 0, 1, ..., by number."""
        number = {edge: k for k, edge in enumerate(self.edges)}
        if not self.sequence:
            return None
        there = [one.graph.to_directed().edges for one in self.sequence]
        return [sorted({number[edge] for edge in arcs if edge in number}) for arcs in there]

    def count_messages(self, rounds: int) -> int:
        """Count the messages over all edges in `rounds` rounds, one an agent to each neighbor."""
        if not self.sequence:
            ways = 1 if self.graph.is_directed() else 2
            return rounds * ways * int(self.graph.number_of_edges())
        whole, rest = divmod(rounds, len(self.sequence))
        return sum(one.count_messages(whole + (t < rest)) for t, one in enumerate(self.sequence))

    @property
    def degrees(self) -> NDArray[np.int64]:
        """The number of neighbours of each agent, itself not counted."""
        return np.diff(self.weights.indptr).astype(np.int64) - 1

    @cached_property
    def diameter(self) -> int:
        """The most edges between two agents; if they change, how many rounds, from round 0 on, it

        takes until what anyone knows is known to all.
        """
        return _flood(self.sequence) if self.sequence else int(nx.diameter(self.graph))

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
        timeout: PerEdge | None = None,
        half_duplex: bool | None = None,
        shared_medium: bool | None = None,
        pulled: bool | None = None,
        compute: Compute | None = None,
        stragglers: PerAgent | None = None,
        slow_chance: float | None = None,
        slow_factor: float | None = None,
    ) -> "Network":
        """The same network, on which runs count `network_seconds`, and `joules` where given.

        `rate` in bit/s, `latency` in seconds, `loss` the share of packets that are lost, all by
        default 0 but the rate: one number for all links, one each in the order of `edges`, or
        {(i, j): number, "other": number}. `timeout`: seconds until a lost packet is sent again.
        `half_duplex`: an agent talks with one neighbour at a time, and one after the other;
        `shared_medium`: and nobody else within range of the two. `pulled`: each message is asked
        for first.
        `compute`: seconds of an agent in a round, one number or one each; "measured" takes those of
        this machine. `stragglers`: {agent: how many times slower}; `slow_chance`: every agent is,
        in every round with this chance, `slow_factor` times slower. What is not given stays as it
        was. The formulas are those of `diamond.network.links`.
        """
        one_way = self.graph.is_directed()
        given: dict[str, object] = {"rate": rate}
        given |= {"latency": latency, "loss": loss, "joules_per_bit": joules_per_bit}
        given |= {"timeout": timeout, "half_duplex": half_duplex, "shared_medium": shared_medium}
        given |= {"pulled": pulled, "compute": compute}
        given |= {"stragglers": stragglers, "slow_chance": slow_chance, "slow_factor": slow_factor}
        return replace(self, links=revised(self.links, self.edges, self.agents, given, one_way))

    def __repr__(self) -> str:
        """The line a log or a figure needs: sizes, rule, lam, and how often it was drawn."""
        # Three digits of 0.9999996 would read 1.000, which no connected graph has.
        lam = f"{self.lam:.3f}" if self.lam < 0.9995 else f"1 - {1 - self.lam:.1e}"
        edges = self.graph.number_of_edges()
        link = "arc" if self.graph.is_directed() else "edge"
        parts = [
            f"{self.agents} agent{'s' * (self.agents != 1)}",
            f"{edges} {link}{'s' * (edges != 1)}",
            *[f"in turn over {len(self.sequence)} rounds"] * bool(self.sequence),
            f"{self.mixing} mixing",
            f"lam = {lam}",
        ]
        if self.draws > 1:
            parts.append(f"drawn {self.draws} times")
        if self.links is not None:
            parts.append(f"links of {self.links!r}")
        return f"{self.name}: {', '.join(parts)}"


def _shares(one: Network) -> csr_array:
    return one.weights if one.shares is None else one.shares


def _balanced(one: Network) -> bool:
    """Whether the weights of a round sum to 1 both ways, and totals have the same."""
    if one.shares is None:
        return True
    sums = np.abs(one.weights.sum(axis=0) - 1).max() < 1e-9
    return bool(sums and abs(one.weights - one.shares).max() < 1e-9)


def _flood(rounds: tuple[Network, ...]) -> int:
    """Rounds until what each agent knows has reached everyone."""
    known = csr_array(np.eye(rounds[0].agents))
    hears = [csr_array(one.weights != 0).astype(np.float64) for one in rounds]
    for t in range(len(rounds) * rounds[0].agents):
        if known.nnz == rounds[0].agents ** 2:
            return t
        known = csr_array(hears[t % len(rounds)] @ known)
        known.data[:] = 1.0
    return len(rounds) * rounds[0].agents
